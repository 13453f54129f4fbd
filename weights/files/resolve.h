// Finds and opens the files of a model: the requester's half of a load.
//
// This is the one corner of weights/ that touches the file system, and it runs in the process of
// whoever asks (stickyctl, sticky-llm --model), with that user's credentials: the daemon is only
// ever given open descriptors of regular files.
//
// Thread: any thread.

#ifndef STICKY_WEIGHTS_FILES_RESOLVE_H_
#define STICKY_WEIGHTS_FILES_RESOLVE_H_

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/source.h"
#include "weights/files/open_file.h"

namespace sticky::weights {

// `path`: a GGUF file, a safetensors file, a directory with Hugging Face's layout (an index with
// shards, or one safetensors file), a snapshot of the hub's cache, or models--org--name of it
// (refs/main is followed). Shards are those that the index names, every one of them; names with a
// path in them are refused; links may lead out of the directory, as the hub's cache does.
// Weight files first, in the index's order of first mention sorted by name; then small files.
// Errors: kNotFound for a path or shard that is not there (all that are missing are named, and a
//   dangling link with its target); kPermissionDenied; kCorrupt for an index that does not parse;
//   kInvalidArgument for a directory with no model in it, naming what was looked for.
Result<std::vector<OpenFile>> ResolveModel(const std::string& path);

struct ResolvedSource {
  std::string path;  // of a kPath, the candidate that was taken; else empty
  std::vector<OpenFile> files;
};

// The model at the first of `candidates` that is there, as above. What is there and bad is an
// error: the next one is not tried in its place. Errors: as above; kNotFound naming every candidate
// when none is there.
Result<ResolvedSource> ResolveFirst(std::span<const std::string> candidates);

// The files of one model, wherever they lie: weight files and small ones, told apart by their
// names. Weight files first, then small files, each sorted by name. Errors: kNotFound naming all
// that are missing; kPermissionDenied; kInvalidArgument for what is no regular file, and without a
// weight file.
Result<std::vector<OpenFile>> ResolveParts(std::span<const NamedPath> parts);

// Files to be kept whole (is_whole), in the order given. Errors: as ResolveParts.
Result<std::vector<OpenFile>> ResolveFiles(std::span<const NamedPath> files);

// Whichever of these `source` says; then holds its sizes against what is expected, and gives the
// files their expected_sha256, which nothing is compared with here.
// Errors: as these; kCorrupt when the sizes differ, with both; kInvalidArgument when a SHA-256 is
//   expected of a file that is not there, or one SHA-256 of several files.
Result<ResolvedSource> Resolve(const Source& source);

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_FILES_RESOLVE_H_
