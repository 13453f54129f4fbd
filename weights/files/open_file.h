// OpenFile: a regular file of a model, open for reading with the rights of whoever asks.
//
// Thread: any thread.

#ifndef STICKY_WEIGHTS_FILES_OPEN_FILE_H_
#define STICKY_WEIGHTS_FILES_OPEN_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/digest.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace sticky::weights {

struct OpenFile {
  std::string name;         // plain file name within the model
  bool is_weights = false;  // else a small file (config.json, tokenizer.json, ...), or is_whole
  bool is_whole = false;    // kept as it is, whatever it has in it
  std::uint64_t size_bytes = 0;
  std::int64_t modified_ns = 0;           // mtime, since the epoch
  std::optional<Sha256> expected_sha256;  // what the template says of it; a load compares it
  // What the hub's cache says of it: large files lie there in blobs/ under their SHA-256.
  std::optional<Sha256> blob_sha256;
  UniqueFd fd;  // a regular file, open for reading, close-on-exec
};

// Opens a regular file and nothing else; links are followed, FIFOs not waited for.
// name: what it is called within the model.
// Errors: kNotFound, of a dangling link with its target; kPermissionDenied; kInvalidArgument for
//   what is no regular file.
Result<OpenFile> OpenRegular(const std::string& path, std::string name, bool is_weights);

// What went wrong at open(2) or stat(2) of `path`, or, of a link, that its target is not there.
Error OpenError(const std::string& path, int errno_value);

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_FILES_OPEN_FILE_H_
