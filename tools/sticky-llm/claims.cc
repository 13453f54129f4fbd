#include "tools/sticky-llm/claims.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace sticky::llm {
namespace {

using Json = nlohmann::ordered_json;

Error Bad(const std::string& reason) {
  return Error{Code::kCorrupt, "read a line of JSON: " + reason};
}

Result<Json> ParseObject(std::string_view line) {
  // The library would end there, without a look at the rest.
  if (line.find('\0') != std::string_view::npos) return Bad("it holds a NUL byte");
  Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Bad("it is not JSON");
  if (!json.is_object()) return Bad("it is not an object");
  return json;
}

Result<std::int64_t> IdOf(const Json& json) {
  const auto id = json.find("id");
  const bool whole = id != json.end() && id->is_number_integer();
  // The library would take a number past 63 bits for a negative one.
  const bool fits = whole && (!id->is_number_unsigned() ||
                              id->get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max());
  if (!fits) return Bad("'id' wants a whole number of at most 63 bits");
  return id->get<std::int64_t>();
}

Result<std::optional<std::size_t>> LabelOf(const Json& json) {
  const auto label = json.find("label");
  if (label == json.end() || label->is_null()) return std::optional<std::size_t>();
  if (label->is_string()) {
    const auto found = std::find(kLabels.begin(), kLabels.end(), label->get<std::string>());
    if (found != kLabels.end()) {
      return std::optional(static_cast<std::size_t>(found - kLabels.begin()));
    }
  }
  // Only what has no depth is quoted: the library writes a tree with a call for each level.
  const std::string found = label->is_structured() ? label->type_name() : Escape(label->dump());
  return Bad("'label' wants SUPPORTS, REFUTES or NOT ENOUGH INFO, found " + found);
}

// Five digits after the point.
double AsWritten(double score) { return std::round(score * 1e5) / 1e5; }

}  // namespace

Result<Claim> ParseClaim(std::string_view line) {
  STICKY_ASSIGN(const Json json, ParseObject(line));
  Claim claim;
  STICKY_ASSIGN(claim.id, IdOf(json));
  STICKY_ASSIGN(claim.label, LabelOf(json));
  const auto text = json.find("claim");
  if (text == json.end() || !text->is_string() || text->get<std::string>().empty()) {
    return Bad("'claim' wants text");
  }
  claim.text = text->get<std::string>();
  return claim;
}

std::size_t Verdict::best() const {
  const auto best = std::max_element(
      scores.begin(), scores.end(), [](double a, double b) { return AsWritten(a) < AsWritten(b); });
  return static_cast<std::size_t>(best - scores.begin());
}

std::string FormatVerdict(const Verdict& verdict) {
  Json scores = Json::object();
  for (std::size_t i = 0; i < kLabels.size(); ++i) {
    scores[std::string(kLabels[i])] = AsWritten(verdict.scores[i]);
  }
  Json json = {{"id", verdict.id}, {"claim", verdict.claim}};
  if (verdict.label) json["label"] = kLabels[*verdict.label];
  json["verdict"] = kLabels[verdict.best()];
  json["scores"] = scores;
  return json.dump();
}

Result<Verdict> ParseVerdict(std::string_view line) {
  STICKY_ASSIGN(const Claim claim, ParseClaim(line));
  STICKY_ASSIGN(const Json json, ParseObject(line));
  Verdict verdict{claim.id, claim.text, claim.label, {}};
  const auto scores = json.find("scores");
  for (std::size_t i = 0; i < kLabels.size(); ++i) {
    const std::string label(kLabels[i]);
    if (scores == json.end() || !scores->is_object() || !scores->contains(label) ||
        !(*scores)[label].is_number()) {
      return Bad("'scores' wants a number for " + label);
    }
    verdict.scores[i] = (*scores)[label].get<double>();
  }
  if (FormatVerdict(verdict) != line) return Bad("it is not as a run writes a verdict");
  return verdict;
}

}  // namespace sticky::llm
