// Source: where a template says that a state's bytes come from, and what they are expected to be.
//
// Thread: any thread (plain values).
// Source: docs/templates.md.

#ifndef STICKY_BASE_SOURCE_H_
#define STICKY_BASE_SOURCE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/digest.h"

namespace sticky {

enum class SourceKind : std::int8_t {
  kPath = 0,   // one model at the first of `candidates` that is there
  kPaths = 1,  // one model that `files` are together: weight files and small ones
  kFiles = 2,  // `files`, kept whole: no model
};
inline constexpr int kSourceKindCount = 3;

// "path", "paths", "files": the template's keys. The text is static.
inline constexpr const char* Name(SourceKind kind) {
  constexpr const char* kNames[kSourceKindCount] = {"path", "paths", "files"};
  return kNames[static_cast<int>(kind)];
}

struct NamedPath {
  std::string name;  // a plain file name, unlike every other of the same source
  std::string path;  // absolute
  bool operator==(const NamedPath&) const = default;
};

// What is not there is not checked.
struct Expected {
  std::optional<std::uint64_t> bytes;       // of all weight files together, or of all of kFiles
  std::optional<Sha256> sha256;             // of the only one of those
  std::map<std::string, Sha256> sha256_of;  // by file name; at most kSourceFilesMax
  std::optional<Digest> digest;             // of the state's content
  bool operator==(const Expected&) const = default;
};

struct Source {
  SourceKind kind = SourceKind::kPath;
  std::vector<std::string> candidates;  // absolute; 1 to kSourceCandidatesMax of a kPath
  std::vector<NamedPath> files;         // 1 to kSourceFilesMax of the other kinds
  Expected expected;
  bool operator==(const Source&) const = default;
};
inline constexpr std::size_t kSourceCandidatesMax = 16;
inline constexpr std::size_t kSourceFilesMax = 4096;  // what one load request can carry
inline constexpr std::size_t kSourceFileNameBytesMax = 255;

}  // namespace sticky

#endif  // STICKY_BASE_SOURCE_H_
