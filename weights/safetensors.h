// Reads the header of a safetensors file: 8 bytes of length, JSON, then the tensors' bytes.
//
// Thread: any thread.
// Source: https://github.com/huggingface/safetensors, README "Format", and its limit of 100 MB.

#ifndef STICKY_WEIGHTS_SAFETENSORS_H_
#define STICKY_WEIGHTS_SAFETENSORS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "weights/byte_source.h"

namespace sticky::weights {

inline constexpr std::uint64_t kSafetensorsHeaderBytesMax = 100'000'000;

struct SafetensorsTensor {
  std::string name;
  std::string dtype_name;      // as the header spells it: "BF16"
  std::optional<Dtype> dtype;  // none: a dtype that is not supported, or not known
  bool dtype_known = false;
  std::vector<std::int64_t> shape;  // outermost first
  std::uint64_t file_offset = 0;    // bytes from the start of the file
  std::uint64_t size_bytes = 0;
};

// Returns the tensors in order of their bytes. Checks everything that the reference
// implementation does: the tensors cover the data exactly, without holes, overlaps or bytes left
// over, each as long as its shape and dtype say. The size of a tensor whose dtype is not known
// cannot be checked against its shape; its range is.
// Errors: kCorrupt naming file, tensor, expected and found values; kInvalidArgument past a limit.
Result<std::vector<SafetensorsTensor>> ReadSafetensors(const SourceFile& file);

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_SAFETENSORS_H_
