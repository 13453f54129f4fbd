#include "config/yaml_reader.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include "base/text.h"
#include "base/unique_fd.h"
#include "config/yaml_inspector.h"

namespace sticky::config {

struct YamlNode {
  std::string file;
  std::string path;  // of the value inside the file: "lifetime.pin"; empty at the top
  YAML::Mark mark;
  YAML::Node node;
};

namespace {

std::string KindOf(const YAML::Node& node) {
  if (node.IsSequence()) return "a list";
  if (node.IsMap()) return "a mapping";
  if (node.IsNull()) return "nothing";
  return "'" + Escape(node.Scalar()) + "'";
}

std::string NameIn(const YamlNode& mapping, std::string_view key) {
  return mapping.path.empty() ? std::string(key) : mapping.path + "." + std::string(key);
}

// The whole number that all of `text` is.
std::optional<std::int64_t> WholeNumber(std::string_view text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc() || stop != end) return std::nullopt;
  return value;
}

// Milliseconds of "30s" and the like; nothing for other text, and past 2^62.
std::optional<std::uint64_t> ParseDurationMs(std::string_view text) {
  static constexpr std::pair<std::string_view, std::int64_t> kUnits[] = {
      {"ms", 1}, {"s", 1000}, {"min", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}};
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::optional<std::int64_t> count = WholeNumber(text.substr(0, digits));
  for (const auto& [unit, unit_ms] : kUnits) {
    if (text.substr(digits) != unit || !count || *count > (std::int64_t{1} << 62) / unit_ms) {
      continue;
    }
    return static_cast<std::uint64_t>(*count * unit_ms);
  }
  return std::nullopt;
}

}  // namespace

// --- YamlValue ----------------------------------------------------------------------------------

bool YamlValue::IsList() const { return node_->node.IsSequence(); }

bool YamlValue::IsMapping() const { return node_->node.IsMap(); }

Error YamlValue::At(const std::string& what) const {
  return PlacedError(Code::kInvalidArgument, node_->file, node_->mark, what);
}

Error YamlValue::Wants(const std::string& wanted) const {
  return At("'" + Escape(node_->path) + "' wants " + wanted + ", found " + KindOf(node_->node));
}

Result<std::string> YamlValue::Text() const {
  if (!node_->node.IsScalar()) return Wants("text");
  return node_->node.Scalar();
}

Result<std::string> YamlValue::Plain(const std::string& wanted) const {
  if (!node_->node.IsScalar()) return Wants(wanted);
  if (node_->node.Tag() == kQuotedTag) {
    return At("'" + Escape(node_->path) + "' wants " + wanted + ", found text in quotes");
  }
  return node_->node.Scalar();
}

Result<bool> YamlValue::Bool() const {
  const std::string wanted = "true or false";
  STICKY_ASSIGN(const std::string text, Plain(wanted));
  if (text == "true") return true;
  if (text == "false") return false;
  return Wants(wanted);
}

Result<std::int64_t> YamlValue::Number(std::int64_t least, std::int64_t most) const {
  const std::string wanted =
      "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  STICKY_ASSIGN(const std::string text, Plain(wanted));
  const std::optional<std::int64_t> value = WholeNumber(text);
  if (!value || *value < least || *value > most) return Wants(wanted);
  return *value;
}

Result<std::uint64_t> YamlValue::Bytes(std::uint64_t least) const {
  STICKY_ASSIGN(const std::string text, Text());
  const Result<std::uint64_t> bytes = ParseByteCount(text);
  if (!bytes.ok()) return Wants("a size such as 8GiB");
  if (bytes.value() < least) return Wants(ByteCount(least) + " or more");
  return bytes.value();
}

Result<std::uint64_t> YamlValue::DurationMs(std::uint64_t most_ms) const {
  STICKY_ASSIGN(const std::string text, Text());
  const std::optional<std::uint64_t> ms = ParseDurationMs(text);
  if (!ms) return Wants("a duration such as 30s, 10min, 2h or 1d");
  if (*ms < 1 || *ms > most_ms) {
    return Wants(Format("a duration from 1ms to %llud",
                        static_cast<unsigned long long>(most_ms / 86'400'000)));
  }
  return *ms;
}

Result<std::vector<YamlValue>> YamlValue::List(std::size_t count_max) const {
  if (!node_->node.IsSequence()) return Wants("a list");
  if (node_->node.size() > count_max) {
    return At(Format("'%s' has %zu entries, at most %zu are taken", Escape(node_->path).c_str(),
                     node_->node.size(), count_max));
  }
  std::vector<YamlValue> values;
  for (const YAML::Node& entry : node_->node) {
    auto node = std::make_shared<YamlNode>();
    node->file = node_->file;
    node->path = node_->path + "[" + std::to_string(values.size()) + "]";
    // Of a value that is not there, yaml-cpp gives the place of what comes next.
    node->mark = entry.IsNull() ? node_->mark : entry.Mark();
    node->node.reset(entry);
    values.push_back(YamlValue(std::move(node)));
  }
  return values;
}

Result<YamlMapping> YamlValue::Mapping() const {
  // A section whose every key is commented out is an empty one.
  if (!node_->node.IsMap() && !node_->node.IsNull()) return Wants("a mapping");
  return YamlMapping(node_);
}

// --- YamlMapping --------------------------------------------------------------------------------

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
    if (const std::optional<Error> complaint = Inspect(text, file_name)) return *complaint;
    auto top = std::make_shared<YamlNode>();
    top->file = file_name;
    top->node = YAML::Load(std::string(text));
    top->mark = top->node.Mark();
    if (!top->node.IsMap() && !top->node.IsNull()) {
      return PlacedError(Code::kInvalidArgument, file_name, top->mark,
                         "want a mapping of keys to values, found " + KindOf(top->node));
    }
    return YamlMapping(std::move(top));
  } catch (const YAML::Exception& error) {
    return SyntaxError(text, file_name, error);
  } catch (const std::exception& error) {
    return PlacedError(Code::kCorrupt, file_name, YAML::Mark::null_mark(),
                       "not YAML: " + Escape(error.what()));
  }
}

Status YamlMapping::OnlyKeys(const std::vector<std::string_view>& known) const {
  if (!node_->node.IsMap()) return Ok{};
  for (const auto& entry : node_->node) {
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
    return PlacedError(Code::kInvalidArgument, node_->file, entry.first.Mark(),
                       "unknown key '" + Escape(NameIn(*node_, key)) + "'" + hint);
  }
  return Ok{};
}

Result<std::vector<std::string>> YamlMapping::Keys() const {
  std::vector<std::string> keys;
  if (!node_->node.IsMap()) return keys;
  for (const auto& entry : node_->node) {
    if (!entry.first.IsScalar()) {
      return PlacedError(Code::kInvalidArgument, node_->file, entry.first.Mark(),
                         "a key wants text, found " + KindOf(entry.first));
    }
    keys.push_back(entry.first.Scalar());
  }
  return keys;
}

std::optional<YamlValue> YamlMapping::Find(std::string_view key) const {
  if (!node_->node.IsMap()) return std::nullopt;
  for (const auto& entry : node_->node) {
    if (!entry.first.IsScalar() || entry.first.Scalar() != key) continue;
    auto node = std::make_shared<YamlNode>();
    node->file = node_->file;
    node->path = NameIn(*node_, key);
    // Of a value that is not there, yaml-cpp gives the place of what comes next.
    node->mark = entry.second.IsNull() ? entry.first.Mark() : entry.second.Mark();
    node->node.reset(entry.second);  // `=` would write into the parent's tree
    return YamlValue(std::move(node));
  }
  return std::nullopt;
}

Error YamlMapping::At(std::string_view key, const std::string& what) const {
  const std::optional<YamlValue> value = Find(key);
  return value ? value->At(what) : YamlValue(node_).At(what);
}

Error YamlMapping::AtKey(std::string_view key, const std::string& what) const {
  for (const auto& entry : node_->node) {
    if (!entry.first.IsScalar() || entry.first.Scalar() != key) continue;
    return PlacedError(Code::kInvalidArgument, node_->file, entry.first.Mark(), what);
  }
  return At(key, what);
}

Result<YamlMapping> YamlMapping::Mapping(std::string_view key) const {
  if (const std::optional<YamlValue> value = Find(key)) return value->Mapping();
  auto empty = std::make_shared<YamlNode>();
  empty->file = node_->file;
  empty->path = NameIn(*node_, key);
  empty->mark = node_->mark;
  return YamlMapping(std::move(empty));
}

Result<std::optional<std::string>> YamlMapping::Text(std::string_view key) const {
  const std::optional<YamlValue> value = Find(key);
  if (!value) return std::optional<std::string>();
  STICKY_ASSIGN(std::string text, value->Text());
  return std::optional<std::string>(std::move(text));
}

Result<std::optional<bool>> YamlMapping::Bool(std::string_view key) const {
  const std::optional<YamlValue> value = Find(key);
  if (!value) return std::optional<bool>();
  STICKY_ASSIGN(const bool is_true, value->Bool());
  return std::optional<bool>(is_true);
}

Result<std::optional<std::uint32_t>> YamlMapping::Number(std::string_view key, std::uint32_t least,
                                                         std::uint32_t most) const {
  const std::optional<YamlValue> value = Find(key);
  if (!value) return std::optional<std::uint32_t>();
  STICKY_ASSIGN(const std::int64_t number, value->Number(least, most));
  return std::optional<std::uint32_t>(static_cast<std::uint32_t>(number));
}

Result<std::optional<std::uint64_t>> YamlMapping::Bytes(std::string_view key,
                                                        std::uint64_t least) const {
  const std::optional<YamlValue> value = Find(key);
  if (!value) return std::optional<std::uint64_t>();
  STICKY_ASSIGN(const std::uint64_t bytes, value->Bytes(least));
  return std::optional<std::uint64_t>(bytes);
}

Result<std::optional<std::uint64_t>> YamlMapping::DurationMs(std::string_view key,
                                                             std::uint64_t most_ms) const {
  const std::optional<YamlValue> value = Find(key);
  if (!value) return std::optional<std::uint64_t>();
  STICKY_ASSIGN(const std::uint64_t ms, value->DurationMs(most_ms));
  return std::optional<std::uint64_t>(ms);
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
