// Finds and opens the files of a model: the requester's half of a load.
//
// This is the one corner of weights/ that touches the file system, and it runs in the process of
// whoever asks (stickyctl, sticky-llm --model), with that user's credentials: the daemon is only
// ever given open descriptors of regular files.
//
// Thread: any thread.

#ifndef STICKY_WEIGHTS_FILES_RESOLVE_H_
#define STICKY_WEIGHTS_FILES_RESOLVE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sticky::weights {

struct OpenFile {
  std::string name;         // plain file name within the model
  bool is_weights = false;  // else a small file: config.json, tokenizer.json, ...
  std::uint64_t size_bytes = 0;
  std::int64_t modified_ns = 0;  // mtime, since the epoch
  UniqueFd fd;                   // a regular file, open for reading, close-on-exec
};

// `path`: a GGUF file, a safetensors file, a directory with Hugging Face's layout (an index with
// shards, or one safetensors file), a snapshot of the hub's cache, or models--org--name of it
// (refs/main is followed). Shards are those that the index names, every one of them; names with a
// path in them are refused; links may lead out of the directory, as the hub's cache does.
// Weight files first, in the index's order of first mention sorted by name; then small files.
// Errors: kNotFound for a path or shard that is not there (all that are missing are named, and a
//   dangling link with its target); kPermissionDenied; kCorrupt for an index that does not parse;
//   kInvalidArgument for a directory with no model in it, naming what was looked for.
Result<std::vector<OpenFile>> ResolveModel(const std::string& path);

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_FILES_RESOLVE_H_
