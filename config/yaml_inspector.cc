#include "config/yaml_inspector.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include <yaml-cpp/anchor.h>
#include <yaml-cpp/eventhandler.h>

#include "base/text.h"
#include "config/yaml_reader.h"

namespace sticky::config {
namespace {

// Watches the parser's events before any tree is built: yaml-cpp keeps both of two equal keys, and
// would expand aliases without bound.
class Inspector : public YAML::EventHandler {
 public:
  explicit Inspector(std::string file) : file_(std::move(file)) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++document_count_ > 1) Complain(mark, "more than one document in the file");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { Scalar(mark, "null"); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Complain(mark, "aliases (*name) are not supported here");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    CheckTag(mark, tag);
    if (value.find('\0') != std::string::npos) Complain(mark, "a NUL character in a value");
    Scalar(mark, value);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    CheckTag(mark, tag);
    Open(mark, /*is_map=*/false);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    CheckTag(mark, tag);
    Open(mark, /*is_map=*/true);
  }
  void OnMapEnd() override { Close(); }

  const std::optional<Error>& complaint() const { return complaint_; }

 private:
  struct Level {
    bool is_map;
    bool key_is_next;
    std::set<std::string> keys;
  };

  void Complain(const YAML::Mark& mark, const std::string& what) {
    if (!complaint_) complaint_ = PlacedError(Code::kInvalidArgument, file_, mark, what);
  }
  // "?" and "!" are what yaml-cpp reports for a plain and a quoted scalar without a tag.
  void CheckTag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == kQuotedTag) return;
    Complain(mark, "tags (" + Escape(tag) + ") are not supported here");
  }
  void Scalar(const YAML::Mark& mark, const std::string& value) {
    Count(mark);
    if (levels_.empty() || !levels_.back().is_map) return;
    Level& level = levels_.back();
    if (level.key_is_next && !level.keys.insert(value).second) {
      Complain(mark, "key '" + Escape(value) + "' stands twice");
    }
    level.key_is_next = !level.key_is_next;
  }
  void Open(const YAML::Mark& mark, bool is_map) {
    Count(mark);
    if (!levels_.empty() && levels_.back().is_map) {
      levels_.back().key_is_next = !levels_.back().key_is_next;
    }
    levels_.push_back({is_map, /*key_is_next=*/true, {}});
    if (levels_.size() > kYamlDepthMax) Complain(mark, Format("nested past %d", kYamlDepthMax));
  }
  void Close() { levels_.pop_back(); }
  void Count(const YAML::Mark& mark) {
    if (++node_count_ > kYamlNodesMax) Complain(mark, Format("more than %d values", kYamlNodesMax));
  }

  std::string file_;
  std::vector<Level> levels_;
  std::optional<Error> complaint_;
  int node_count_ = 0;
  int document_count_ = 0;
};

}  // namespace

Error PlacedError(Code code, const std::string& file, const YAML::Mark& mark,
                  const std::string& what) {
  if (mark.is_null()) return Error{code, Escape(file) + ": " + what};
  return Error{code, Format("%s:%d:%d: %s", Escape(file).c_str(), mark.line + 1, mark.column + 1,
                            what.c_str())};
}

// A tab in the indentation makes yaml-cpp complain of something further on: say what it is.
Error SyntaxError(std::string_view text, const std::string& file, const YAML::Exception& error) {
  YAML::Mark mark = error.mark;
  std::string what = "not YAML: " + Escape(error.msg);
  std::size_t begin = 0;
  for (int line = 0; line < mark.line && begin < text.size(); ++line) {
    begin = std::min(text.find('\n', begin), text.size() - 1) + 1;
  }
  const std::size_t indent = std::min(text.find_first_not_of(" \t", begin), text.size()) - begin;
  const std::size_t tab = text.substr(begin, indent).find('\t');
  if (!mark.is_null() && tab != std::string_view::npos) {
    mark.column = static_cast<int>(tab);
    what += "; the line is indented with a tab, and YAML wants blanks";
  }
  return PlacedError(Code::kCorrupt, file, mark, what);
}

std::optional<Error> Inspect(std::string_view text, const std::string& file) {
  std::istringstream events{std::string(text)};
  YAML::Parser parser(events);
  Inspector inspector(file);
  while (!inspector.complaint() && parser.HandleNextDocument(inspector)) {
  }
  return inspector.complaint();
}

}  // namespace sticky::config
