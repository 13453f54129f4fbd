#include "weights/json_text.h"

#include <utility>
#include <vector>

#include "base/text.h"

namespace sticky::weights {
namespace {

using nlohmann::json;

// Builds the tree from the parser's events. The library's own builder keeps the last of two equal
// keys in silence and has no bound on depth.
// NOLINTNEXTLINE(bugprone-exception-escape): the library's default constructors do not throw.
class TreeBuilder : public nlohmann::json_sax<json> {
 public:
  bool null() override { return Put(nullptr) != nullptr; }
  bool boolean(bool value) override { return Put(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return Put(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return Put(value) != nullptr; }
  bool number_float(number_float_t value, const string_t&) override {
    return Put(value) != nullptr;
  }
  bool string(string_t& value) override { return Put(std::move(value)) != nullptr; }
  bool binary(binary_t&) override { return false; }  // no such thing in text
  bool start_object(std::size_t) override { return Enter(json::object()); }
  bool start_array(std::size_t) override { return Enter(json::array()); }
  bool end_object() override { return Leave(); }
  bool end_array() override { return Leave(); }

  bool key(string_t& value) override {
    if (open_.back()->contains(value)) {
      reason_ = "duplicate key '" + Escape(value) + "'";
      return false;
    }
    key_ = std::move(value);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    reason_ = Format("not JSON at byte %zu", position);
    return false;
  }

  const std::string& reason() const { return reason_; }
  json TakeRoot() { return std::move(root_); }

 private:
  json* Put(json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    json& slot = parent[key_];
    slot = std::move(value);
    return &slot;
  }

  bool Enter(json value) {
    if (open_.size() >= kJsonDepthMax) {
      reason_ = Format("nested more than %zu deep", kJsonDepthMax);
      return false;
    }
    open_.push_back(Put(std::move(value)));
    return true;
  }

  bool Leave() {
    open_.pop_back();
    return true;
  }

  json root_;
  std::vector<json*> open_;  // containers that are not closed yet; parents do not move meanwhile
  std::string key_;
  std::string reason_;
};

}  // namespace

std::string NotJsonReason(std::string_view text) {
  if (text.substr(0, 3) == "\xef\xbb\xbf") return "not JSON: it begins with a byte order mark";
  const std::size_t nul = text.find('\0');
  return nul == std::string_view::npos ? "" : Format("not JSON: byte %zu is NUL", nul);
}

Result<nlohmann::json> ParseJson(std::string_view text, const std::string& what) {
  if (const std::string reason = NotJsonReason(text); !reason.empty()) {
    return Error{Code::kCorrupt, "read '" + Escape(what) + "': " + reason};
  }
  TreeBuilder builder;
  bool parsed = false;
  try {
    parsed = json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const json::exception& error) {
    return Error{Code::kCorrupt, "read '" + Escape(what) + "': " + Escape(error.what())};
  }
  if (!parsed) {
    return Error{Code::kCorrupt, "read '" + Escape(what) + "': " +
                                     (builder.reason().empty() ? "not JSON" : builder.reason())};
  }
  return builder.TakeRoot();
}

}  // namespace sticky::weights
