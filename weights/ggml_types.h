// The closed list of ggml's element types: which exist, and which of them are read.
//
// Thread: any thread.
// Source: ggml/include/ggml.h (enum ggml_type) and ggml/src/ggml-common.h (sizes of the blocks).

#ifndef STICKY_WEIGHTS_GGML_TYPES_H_
#define STICKY_WEIGHTS_GGML_TYPES_H_

#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "weights/load_plan.h"

namespace sticky::weights {

struct GgmlType {
  std::uint32_t id;
  const char* name;              // static
  std::uint32_t block_elements;  // a row is a whole number of blocks
  std::uint32_t block_bytes;
  bool supported;
  Encoding encoding;  // when supported
  Dtype dtype;        // when supported and kPlain
};

// Null when no such type is known.
const GgmlType* FindGgmlType(std::uint32_t id);

// "F32, F16, ...": what is read, for messages.
std::string SupportedGgmlTypes();

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_GGML_TYPES_H_
