#include "tools/stickyctl/options.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/text.h"
#include "flatbuffers/wire_codec.h"

namespace sticky::stickyctl {
namespace {

Error Usage(const std::string& what) { return Error{Code::kInvalidArgument, what}; }

Result<OptionSpec> Find(std::string_view name, std::span<const OptionSpec> known) {
  std::vector<std::string_view> names;
  for (const OptionSpec& spec : known) {
    if (spec.name == name) return spec;
    names.push_back(spec.name);
  }
  const std::string_view near = NearestWord(name, names.data(), names.size());
  return Usage("unknown option '--" + Escape(name) + "'" +
               (near.empty() ? "" : "; did you mean '--" + std::string(near) + "'?"));
}

}  // namespace

Result<Options> Options::Parse(std::span<const std::string> words, const Grammar& grammar) {
  Options options;
  std::size_t at = 0;
  bool only_operands = false;
  while (at < words.size()) {
    const std::string& word = words[at];
    const bool is_option = !only_operands && word.size() > 1 && word.starts_with('-');
    if (!is_option) {
      if (grammar.command_follows) break;
      options.operands_.push_back(word);
      ++at;
      continue;
    }
    ++at;
    if (word == "--") {
      only_operands = true;
      continue;
    }
    if (!word.starts_with("--")) {
      return Usage("unknown option '" + Escape(word) + "': options have long names, as --json");
    }
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    STICKY_ASSIGN(const OptionSpec spec, Find(name, grammar.options));
    std::optional<std::string> value;
    if (equals != std::string::npos) value = word.substr(equals + 1);
    if (spec.kind == ValueKind::kNone && value) {
      return Usage("option '--" + name + "' takes no value");
    }
    const bool wants_value = spec.kind == ValueKind::kRequired || spec.kind == ValueKind::kRepeated;
    if (wants_value && !value) {
      if (at == words.size()) return Usage("option '--" + name + "' wants a value after it");
      value = words[at++];
    }
    if (spec.kind != ValueKind::kRepeated && options.Has(name)) {
      return Usage("option '--" + name + "' is given twice");
    }
    options.values_.emplace(name, std::move(value));
  }
  options.command_.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  if (options.Has("help")) return options;
  const bool wants_command = grammar.command_follows && !grammar.operand_names.empty();
  const std::size_t least = grammar.operand_count - (grammar.last_is_optional ? 1 : 0);
  if ((wants_command && options.command_.empty()) || options.operands_.size() < least) {
    return Usage(std::string(grammar.operand_names) + " is missing");
  }
  if (options.operands_.size() > grammar.operand_count) {
    return Usage("'" + Escape(options.operands_[grammar.operand_count]) + "' is one word too many");
  }
  return options;
}

std::optional<std::string> Options::Value(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::nullopt : found->second;
}

std::vector<std::string> Options::Values(std::string_view name) const {
  std::vector<std::string> values;
  const auto [begin, end] = values_.equal_range(name);
  for (auto at = begin; at != end; ++at) values.push_back(at->second.value_or(""));
  return values;
}

Result<std::uint32_t> Options::WaitMs(std::uint32_t otherwise_ms) const {
  if (!Has("wait")) return std::uint32_t{0};
  return Ms("wait", otherwise_ms);
}

Result<std::uint32_t> Options::Ms(std::string_view name, std::uint32_t otherwise_ms) const {
  const std::optional<std::string> text = Value(name);
  if (!text) return otherwise_ms;
  const bool plain = !text->empty() && text->find_first_not_of("0123456789.") == std::string::npos;
  char* end = nullptr;
  const double seconds = std::strtod(text->c_str(), &end);
  if (!plain || *end != '\0' || !(seconds * 1000 >= 1 && seconds * 1000 <= wire::kWaitMsMax)) {
    return Usage(Format("option '--%s=%s': want seconds, 0.001 to %u", std::string(name).c_str(),
                        Escape(*text).c_str(), wire::kWaitMsMax / 1000));
  }
  return static_cast<std::uint32_t>(std::llround(seconds * 1000));
}

Result<std::uint64_t> Options::Number(std::string_view name) const {
  constexpr std::size_t kDigitsMax = 18;
  const std::optional<std::string> text = Value(name);
  if (!text) return std::uint64_t{0};
  const bool plain = !text->empty() && text->find_first_not_of("0123456789") == std::string::npos;
  if (!plain || text->size() > kDigitsMax) {
    return Usage("option '--" + std::string(name) + "=" + Escape(*text) +
                 "': want a whole number of at most 18 digits");
  }
  return std::strtoull(text->c_str(), nullptr, 10);
}

}  // namespace sticky::stickyctl
