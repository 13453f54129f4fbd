#include "config/yaml_reader.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <set>
#include <sstream>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml-cpp/anchor.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include "base/text.h"
#include "base/unique_fd.h"

namespace sticky::config {
namespace {

constexpr const char* kQuotedTag = "!";

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

std::string KindOf(const YAML::Node& node) {
  if (node.IsSequence()) return "a list";
  if (node.IsMap()) return "a mapping";
  if (node.IsNull()) return "nothing";
  return "'" + Escape(node.Scalar()) + "'";
}

}  // namespace

struct YamlMapping::Impl {
  std::string file;
  std::string path;  // of the mapping inside the file: "lifetime"; empty at the top
  YAML::Node node;

  YAML::Node Find(std::string_view key) const {
    if (!node.IsMap()) return YAML::Node(YAML::NodeType::Undefined);
    for (const auto& entry : node) {
      if (entry.first.IsScalar() && entry.first.Scalar() == key) return entry.second;
    }
    return YAML::Node(YAML::NodeType::Undefined);
  }
  YAML::Mark KeyMark(std::string_view key) const {
    for (const auto& entry : node) {
      if (entry.first.IsScalar() && entry.first.Scalar() == key) return entry.first.Mark();
    }
    return node.Mark();
  }
  std::string Named(std::string_view key) const {
    return path.empty() ? std::string(key) : path + "." + std::string(key);
  }
};

YamlMapping::YamlMapping(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
YamlMapping::YamlMapping(const YamlMapping&) = default;
YamlMapping& YamlMapping::operator=(const YamlMapping&) = default;
YamlMapping::~YamlMapping() = default;

Result<YamlMapping> YamlMapping::Parse(std::string_view text, const std::string& file_name) {
  if (text.size() > kYamlBytesMax) {
    return Error{Code::kInvalidArgument,
                 Format("%s: %zu bytes, at most %zu are read", Escape(file_name).c_str(),
                        text.size(), kYamlBytesMax)};
  }
  // YAML has no such byte; yaml-cpp would read it as an escape of what follows.
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos) {
    return Error{
        Code::kInvalidArgument,
        Format("%s:%td: a NUL byte, which YAML does not allow", Escape(file_name).c_str(),
               1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'))};
  }
  try {
    std::istringstream events{std::string(text)};
    YAML::Parser parser(events);
    Inspector inspector(file_name);
    while (!inspector.complaint() && parser.HandleNextDocument(inspector)) {
    }
    if (inspector.complaint()) return *inspector.complaint();
    auto impl = std::make_shared<Impl>();
    impl->file = file_name;
    impl->node = YAML::Load(std::string(text));
    if (!impl->node.IsMap() && !impl->node.IsNull()) {
      return PlacedError(Code::kInvalidArgument, file_name, impl->node.Mark(),
                         "want a mapping of keys to values, found " + KindOf(impl->node));
    }
    return YamlMapping(std::move(impl));
  } catch (const YAML::Exception& error) {
    return SyntaxError(text, file_name, error);
  } catch (const std::exception& error) {
    return PlacedError(Code::kCorrupt, file_name, YAML::Mark::null_mark(),
                       "not YAML: " + Escape(error.what()));
  }
}

Status YamlMapping::OnlyKeys(const std::vector<std::string_view>& known) const {
  if (!impl_->node.IsMap()) return Ok{};
  for (const auto& entry : impl_->node) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : KindOf(entry.first);
    bool is_known = false;
    std::string list;
    for (const std::string_view word : known) {
      is_known = is_known || word == key;
      list += (list.empty() ? "" : ", ") + std::string(word);
    }
    if (is_known) continue;
    const std::string_view near = NearestWord(key, known.data(), known.size());
    const std::string hint =
        near.empty() ? "; known keys: " + list : "; did you mean '" + std::string(near) + "'?";
    return PlacedError(Code::kInvalidArgument, impl_->file, entry.first.Mark(),
                       "unknown key '" + Escape(impl_->Named(key)) + "'" + hint);
  }
  return Ok{};
}

bool YamlMapping::Has(std::string_view key) const { return impl_->Find(key).IsDefined(); }

Error YamlMapping::At(std::string_view key, const std::string& what) const {
  const YAML::Node value = impl_->Find(key);
  YAML::Mark mark = value.IsDefined() ? value.Mark() : impl_->node.Mark();
  // Of a value that is not there, yaml-cpp gives the place of what comes next.
  if (value.IsDefined() && value.IsNull()) mark = impl_->KeyMark(key);
  return PlacedError(Code::kInvalidArgument, impl_->file, mark, what);
}

Result<YamlMapping> YamlMapping::Mapping(std::string_view key) const {
  auto impl = std::make_shared<Impl>();
  impl->file = impl_->file;
  impl->path = impl_->Named(key);
  impl->node.reset(impl_->Find(key));
  // A section whose every key is commented out is an empty one.
  if (!impl->node.IsDefined() || impl->node.IsNull()) {
    impl->node.reset(YAML::Node(YAML::NodeType::Map));  // `=` would write into the parent's tree
  }
  if (!impl->node.IsMap()) {
    return At(key, "'" + impl->path + "' wants a mapping, found " + KindOf(impl->node));
  }
  return YamlMapping(std::move(impl));
}

Result<std::optional<std::string>> YamlMapping::Text(std::string_view key) const {
  const YAML::Node node = impl_->Find(key);
  if (!node.IsDefined()) return std::optional<std::string>();
  if (!node.IsScalar())
    return At(key, "'" + impl_->Named(key) + "' wants text, found " + KindOf(node));
  return std::optional<std::string>(node.Scalar());
}

Result<std::optional<std::string>> YamlMapping::Plain(std::string_view key,
                                                      const char* wanted) const {
  STICKY_ASSIGN(std::optional<std::string> text, Text(key));
  if (text && impl_->Find(key).Tag() == kQuotedTag) {
    return At(key, "'" + impl_->Named(key) + "' wants " + wanted + ", found text in quotes");
  }
  return text;
}

Result<std::optional<bool>> YamlMapping::Bool(std::string_view key) const {
  STICKY_ASSIGN(const std::optional<std::string> text, Plain(key, "true or false"));
  if (!text) return std::optional<bool>();
  if (*text == "true") return std::optional<bool>(true);
  if (*text == "false") return std::optional<bool>(false);
  return At(key, "'" + impl_->Named(key) + "' wants true or false, found '" + Escape(*text) + "'");
}

Result<std::optional<std::uint32_t>> YamlMapping::Number(std::string_view key, std::uint32_t least,
                                                         std::uint32_t most) const {
  STICKY_ASSIGN(const std::optional<std::string> text, Plain(key, "a whole number"));
  if (!text) return std::optional<std::uint32_t>();
  std::uint32_t value = 0;
  const char* const end = text->data() + text->size();
  const auto [stop, failure] = std::from_chars(text->data(), end, value);
  if (failure != std::errc() || stop != end || value < least || value > most) {
    return At(key, Format("'%s' wants a whole number from %u to %u, found '%s'",
                          impl_->Named(key).c_str(), least, most, Escape(*text).c_str()));
  }
  return std::optional<std::uint32_t>(value);
}

Result<std::optional<std::uint64_t>> YamlMapping::Bytes(std::string_view key,
                                                        std::uint64_t least) const {
  STICKY_ASSIGN(const std::optional<std::string> text, Text(key));
  if (!text) return std::optional<std::uint64_t>();
  const Result<std::uint64_t> bytes = ParseByteCount(*text);
  if (!bytes.ok()) {
    return At(key, "'" + impl_->Named(key) + "' wants a size such as 8GiB, found '" +
                       Escape(*text) + "'");
  }
  if (bytes.value() < least) {
    return At(key, "'" + impl_->Named(key) + "' wants " + ByteCount(least) + " or more, found '" +
                       Escape(*text) + "'");
  }
  return std::optional<std::uint64_t>(bytes.value());
}

Result<std::string> ReadSmallFile(const std::string& path) {
  const std::string doing = "read '" + Escape(path) + "'";
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return ErrnoError(doing, errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return ErrnoError(doing, errno);
  if (!S_ISREG(status.st_mode)) return Error{Code::kInvalidArgument, doing + ": not a file"};
  if (static_cast<std::uint64_t>(status.st_size) > kYamlBytesMax) {
    return Error{Code::kInvalidArgument,
                 Format("%s: %lld bytes, at most %zu are read", doing.c_str(),
                        static_cast<long long>(status.st_size), kYamlBytesMax)};
  }
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::read(fd.get(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoError(doing, errno);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  text.resize(done);
  return text;
}

}  // namespace sticky::config
