// The files of `run --as-file KEY=STATE/FILE`: what was asked for, where it stands in the command's
// words, and which of a lease's descriptors it is.
//
// Thread: any thread.
// Source: docs/file-states.md.

#ifndef STICKY_TOOLS_STICKYCTL_LENT_FILES_H_
#define STICKY_TOOLS_STICKYCTL_LENT_FILES_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "flatbuffers/wire_manifest.h"

namespace sticky::stickyctl {

struct AsFile {
  std::string key;    // [A-Za-z_][A-Za-z0-9_]*
  std::string state;  // a state's name
  std::string file;   // as the state calls it: any text without '/'; untrusted
  bool operator==(const AsFile&) const = default;
};

// The values of --as-file. Errors: kInvalidArgument for one that is not KEY=STATE/FILE, and for two
// keys of one variable.
Result<std::vector<AsFile>> ParseAsFiles(std::span<const std::string> texts);

// "STICKYINVOC_FILE_MODEL" of the key "model".
std::string VariableOf(const AsFile& file);

// Errors: kInvalidArgument, naming the key, when a file is used nowhere: {KEY} stands in none of
// `words`, and its variable is not named in any.
Status CheckAllUsed(std::span<const AsFile> files, std::span<const std::string> words);

// `word` with each {KEY} replaced by the path of that file. paths: as many as files. Other braces
// stay as they are.
std::string PutPaths(const std::string& word, std::span<const AsFile> files,
                     std::span<const std::string> paths);

// The arena that is the file; nothing when the file is empty.
// Errors: kInvalidArgument when the state keeps no whole files; kNotFound naming those there are.
Result<std::optional<std::uint32_t>> FindLentFile(const AsFile& wanted,
                                                  const wire::ManifestView& manifest);

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_LENT_FILES_H_
