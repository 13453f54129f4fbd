#include "config/source_reader.h"

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/text.h"
#include "config/paths.h"

namespace sticky::config {
namespace {

bool IsFileName(std::string_view name) {
  return !name.empty() && name.size() <= kSourceFileNameBytesMax && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos;
}

Result<std::string> ReadPath(const YamlValue& value, const std::string& directory) {
  STICKY_ASSIGN(const std::string text, value.Text());
  if (text.empty()) return value.Wants("a path");
  Result<std::string> path = AbsolutePath(text, directory);
  if (!path.ok()) return value.At(path.error().message);
  return path;
}

Status ReadCandidates(const YamlValue& value, const std::string& directory, Source& source) {
  std::vector<YamlValue> values = {value};
  if (value.IsList()) {
    STICKY_ASSIGN(values, value.List(kSourceCandidatesMax));
  }
  if (values.empty()) return value.Wants("one path at least");
  for (const YamlValue& one : values) {
    STICKY_ASSIGN(std::string path, ReadPath(one, directory));
    source.candidates.push_back(std::move(path));
  }
  return Ok{};
}

// A path, or with `names_allowed` also {name: ..., path: ...}.
Result<NamedPath> ReadNamedPath(const YamlValue& value, const std::string& directory,
                                bool names_allowed) {
  NamedPath file;
  if (!names_allowed || !value.IsMapping()) {
    STICKY_ASSIGN(file.path, ReadPath(value, directory));
    file.name = file.path.substr(file.path.rfind('/') + 1);
    if (!IsFileName(file.name)) return value.Wants("the path of a file");
    return file;
  }
  STICKY_ASSIGN(const YamlMapping mapping, value.Mapping());
  STICKY_TRY(mapping.OnlyKeys({"name", "path"}));
  const std::optional<YamlValue> path = mapping.Find("path");
  if (!path) return value.At("'path' is missing: where the file is");
  STICKY_ASSIGN(file.path, ReadPath(*path, directory));
  STICKY_ASSIGN(const auto name, mapping.Text("name"));
  file.name = name ? *name : file.path.substr(file.path.rfind('/') + 1);
  if (name && !IsFileName(*name)) {
    return mapping.Find("name")->Wants(
        Format("a plain file name of at most %zu bytes", kSourceFileNameBytesMax));
  }
  if (!IsFileName(file.name)) return path->Wants("the path of a file");
  return file;
}

Status ReadFiles(const YamlValue& value, const std::string& directory, Source& source) {
  STICKY_ASSIGN(const std::vector<YamlValue> values, value.List(kSourceFilesMax));
  if (values.empty()) return value.Wants("one file at least");
  std::set<std::string> names;
  for (const YamlValue& one : values) {
    STICKY_ASSIGN(NamedPath file, ReadNamedPath(one, directory, source.kind == SourceKind::kFiles));
    if (!names.insert(file.name).second) {
      return one.At("two files are called '" + Escape(file.name) +
                    "'; each needs a name of its own" +
                    (source.kind == SourceKind::kFiles ? ": {name: ..., path: ...}" : ""));
    }
    source.files.push_back(std::move(file));
  }
  return Ok{};
}

Result<Sha256> ReadSha256(const YamlValue& value) {
  STICKY_ASSIGN(const std::string text, value.Text());
  Result<Sha256> sha256 = Sha256FromHex(text);
  if (!sha256.ok()) return value.Wants("64 hexadecimal digits");
  return sha256;
}

Status ReadSha256s(const YamlValue& value, Expected& expected) {
  if (!value.IsMapping()) {
    STICKY_ASSIGN(expected.sha256, ReadSha256(value));
    return Ok{};
  }
  STICKY_ASSIGN(const YamlMapping mapping, value.Mapping());
  STICKY_ASSIGN(const std::vector<std::string> names, mapping.Keys());
  if (names.size() > kSourceFilesMax) {
    return value.At(Format("'source.expect.sha256' has %zu entries, at most %zu are taken",
                           names.size(), kSourceFilesMax));
  }
  for (const std::string& name : names) {
    if (!IsFileName(name)) {
      return mapping.AtKey(name, "'" + Escape(name) + "' is not a plain file name");
    }
    STICKY_ASSIGN(expected.sha256_of[name], ReadSha256(*mapping.Find(name)));
  }
  return Ok{};
}

Result<Expected> ReadExpected(const YamlMapping& source) {
  STICKY_ASSIGN(const YamlMapping mapping, source.Mapping("expect"));
  STICKY_TRY(mapping.OnlyKeys({"bytes", "sha256", "digest"}));
  Expected expected;
  STICKY_ASSIGN(expected.bytes, mapping.Bytes("bytes", /*least=*/0));
  if (const std::optional<YamlValue> sha256 = mapping.Find("sha256")) {
    STICKY_TRY(ReadSha256s(*sha256, expected));
  }
  if (const std::optional<YamlValue> value = mapping.Find("digest")) {
    STICKY_ASSIGN(const std::string text, value->Text());
    const Result<Digest> digest = DigestFromHex(text);
    if (!digest.ok()) return value->Wants("32 hexadecimal digits");
    expected.digest = digest.value();
  }
  return expected;
}

// Which of the three ways to name files the template takes.
Result<SourceKind> ReadKind(const YamlMapping& top, const YamlMapping& source) {
  std::optional<SourceKind> kind;
  for (int i = 0; i < kSourceKindCount; ++i) {
    const auto one = static_cast<SourceKind>(i);
    if (!source.Has(Name(one))) continue;
    if (kind) {
      return source.AtKey(Name(one), "'source." + std::string(Name(one)) + "' beside 'source." +
                                         Name(*kind) + "': of path, paths and files one is wanted");
    }
    kind = one;
  }
  if (kind) return *kind;
  return top.At("source",
                "'source.path' is missing: the model's file or folder (or source.paths: the files "
                "of one model; or source.files: files to keep whole); a template without a "
                "source is for `stickyctl build`");
}

std::string Line(const std::string& key, const std::string& value) {
  return key + "=" + std::to_string(value.size()) + ":" + value + "\n";
}

}  // namespace

Result<Source> ReadSource(const YamlMapping& top, const std::string& directory) {
  STICKY_ASSIGN(const YamlMapping mapping, top.Mapping("source"));
  STICKY_TRY(mapping.OnlyKeys({"path", "paths", "files", "expect"}));
  Source source;
  STICKY_ASSIGN(source.kind, ReadKind(top, mapping));
  const std::optional<YamlValue> value = mapping.Find(Name(source.kind));
  if (source.kind == SourceKind::kPath) {
    STICKY_TRY(ReadCandidates(*value, directory, source));
  } else {
    STICKY_TRY(ReadFiles(*value, directory, source));
  }
  STICKY_ASSIGN(source.expected, ReadExpected(mapping));
  return source;
}

std::string CanonicalSource(const Source& source) {
  const std::string key = "source." + std::string(Name(source.kind));
  std::string text;
  for (const std::string& path : source.candidates) text += Line(key, path);
  for (const NamedPath& file : source.files) {
    text += Line(key + ".name", file.name) + Line(key, file.path);
  }
  const Expected& expected = source.expected;
  if (expected.bytes) text += "source.expect.bytes=" + std::to_string(*expected.bytes) + "\n";
  if (expected.sha256) text += "source.expect.sha256=" + ToHex(*expected.sha256) + "\n";
  for (const auto& [name, sha256] : expected.sha256_of) {
    text +=
        Line("source.expect.sha256.name", name) + "source.expect.sha256=" + ToHex(sha256) + "\n";
  }
  if (expected.digest) text += "source.expect.digest=" + ToHex(*expected.digest) + "\n";
  return text;
}

}  // namespace sticky::config
