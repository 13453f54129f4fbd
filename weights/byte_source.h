// ByteSource: random access to the bytes of one weight file, wherever they come from.
//
// The room weights/ opens nothing: files reach it through this interface (daemon/load reads
// descriptors with pread, tests read memory).
//
// Thread: any thread, many at once.

#ifndef STICKY_WEIGHTS_BYTE_SOURCE_H_
#define STICKY_WEIGHTS_BYTE_SOURCE_H_

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace sticky::weights {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills all of `out` from `offset` bytes into the file.
  // Errors: kCorrupt when the file ends before that ("changed while it was read"), or on EIO.
  virtual Status ReadAt(std::uint64_t offset, std::span<std::uint8_t> out) const = 0;

  // Whether the file is still what it was when this object was made, as far as can be told.
  // Errors: kCorrupt when its size or time of change is another.
  virtual Status CheckUnchanged() const { return Ok{}; }
};

// One file of a model. Does not own `bytes`.
struct SourceFile {
  std::string name;  // plain file name within the model: "model-00001-of-00004.safetensors"
  std::uint64_t size_bytes = 0;
  const ByteSource* bytes = nullptr;
};

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_BYTE_SOURCE_H_
