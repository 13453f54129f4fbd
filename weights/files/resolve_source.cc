#include <algorithm>
#include <cerrno>
#include <utility>

#include <sys/stat.h>

#include "base/text.h"
#include "weights/files/resolve.h"
#include "weights/small_file.h"

namespace sticky::weights {
namespace {

std::string Quoted(const std::string& path) { return "'" + Escape(path) + "'"; }

// Whether nothing stands at `path`. A dangling link is something: an incomplete download.
bool IsAbsent(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

// Opens them all, and tells of every one that is missing: one trip to the download, not one each.
Result<std::vector<OpenFile>> OpenAll(std::span<const NamedPath> files,
                                      bool (*is_weights)(std::string_view name)) {
  std::vector<OpenFile> out;
  std::string missing;
  for (const NamedPath& file : files) {
    auto opened = OpenRegular(file.path, file.name, is_weights(file.name));
    if (opened.ok()) {
      out.push_back(std::move(opened).value());
    } else if (opened.error().code == Code::kNotFound) {
      missing += (missing.empty() ? "" : "; ") + opened.error().message;
    } else {
      return opened.error();
    }
  }
  if (missing.empty()) return out;
  return Error{Code::kNotFound, missing, ENOENT};
}

// What expect.bytes counts, and a single expect.sha256 is of: a model's weight files, or every
// file.
std::vector<OpenFile*> Counted(SourceKind kind, std::vector<OpenFile>& files) {
  std::vector<OpenFile*> counted;
  for (OpenFile& file : files) {
    if (kind == SourceKind::kFiles || file.is_weights) counted.push_back(&file);
  }
  return counted;
}

Status CheckBytes(std::uint64_t expected, const std::vector<OpenFile*>& counted) {
  std::uint64_t found = 0;
  for (const OpenFile* const file : counted) found += file->size_bytes;
  if (found == expected) return Ok{};
  return Error{Code::kCorrupt,
               Format("check the source: %zu files have %llu bytes, but source.expect.bytes is "
                      "%llu: another version, or an incomplete download",
                      counted.size(), static_cast<unsigned long long>(found),
                      static_cast<unsigned long long>(expected))};
}

Status SetSha256s(const Expected& expected, const std::vector<OpenFile*>& counted,
                  std::vector<OpenFile>& files) {
  if (expected.sha256 && counted.size() != 1) {
    return Error{Code::kInvalidArgument,
                 Format("check the source: source.expect.sha256 is of one file, and there are %zu; "
                        "give a mapping of file names to digests",
                        counted.size())};
  }
  if (expected.sha256) counted[0]->expected_sha256 = expected.sha256;
  for (const auto& [name, sha256] : expected.sha256_of) {
    const auto file =
        std::find_if(files.begin(), files.end(),
                     [&name = name](const OpenFile& candidate) { return candidate.name == name; });
    if (file == files.end()) {
      return Error{Code::kInvalidArgument, "check the source: source.expect.sha256 names " +
                                               Quoted(name) + ", which is none of its files"};
    }
    file->expected_sha256 = sha256;
  }
  return Ok{};
}

Result<ResolvedSource> ResolveKind(const Source& source) {
  if (source.kind == SourceKind::kPath) return ResolveFirst(source.candidates);
  ResolvedSource resolved;
  STICKY_ASSIGN(resolved.files, source.kind == SourceKind::kPaths ? ResolveParts(source.files)
                                                                  : ResolveFiles(source.files));
  return resolved;
}

}  // namespace

Result<ResolvedSource> ResolveFirst(std::span<const std::string> candidates) {
  std::string all;
  for (const std::string& path : candidates) {
    all += (all.empty() ? "" : ", ") + Quoted(path);
    if (candidates.size() > 1 && IsAbsent(path)) continue;
    ResolvedSource resolved;
    resolved.path = path;
    STICKY_ASSIGN(resolved.files, ResolveModel(path));
    return resolved;
  }
  return Error{Code::kNotFound, "find a model: nothing is at any of " + all, ENOENT};
}

Result<std::vector<OpenFile>> ResolveParts(std::span<const NamedPath> parts) {
  STICKY_ASSIGN(std::vector<OpenFile> files,
                OpenAll(parts, [](std::string_view name) { return !IsSmallFileName(name); }));
  std::sort(files.begin(), files.end(), [](const OpenFile& a, const OpenFile& b) {
    return std::pair(!a.is_weights, std::string_view(a.name)) <
           std::pair(!b.is_weights, std::string_view(b.name));
  });
  if (files.empty() || !files[0].is_weights) {
    return Error{Code::kInvalidArgument,
                 Format("find a model: none of its %zu files is a weight file; give a safetensors "
                        "or GGUF file among them",
                        files.size())};
  }
  return files;
}

Result<std::vector<OpenFile>> ResolveFiles(std::span<const NamedPath> files) {
  STICKY_ASSIGN(std::vector<OpenFile> whole,
                OpenAll(files, [](std::string_view) { return false; }));
  for (OpenFile& file : whole) file.is_whole = true;
  return whole;
}

Result<ResolvedSource> Resolve(const Source& source) {
  STICKY_ASSIGN(ResolvedSource resolved, ResolveKind(source));
  const std::vector<OpenFile*> counted = Counted(source.kind, resolved.files);
  if (source.expected.bytes) STICKY_TRY(CheckBytes(*source.expected.bytes, counted));
  STICKY_TRY(SetSha256s(source.expected, counted, resolved.files));
  return resolved;
}

}  // namespace sticky::weights
