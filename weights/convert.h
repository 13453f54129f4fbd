// Turns stored elements into a state's elements: dtype conversion and dequantisation.
//
// The results do not depend on the CPU (no fused multiply-add), so the same file has the same
// content digest on every node.
//
// Thread: any thread.
// Source: ggml/src/ggml-common.h for the layout of the quantised blocks.

#ifndef STICKY_WEIGHTS_CONVERT_H_
#define STICKY_WEIGHTS_CONVERT_H_

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/result.h"
#include "weights/load_plan.h"

namespace sticky::weights {

struct Conversion {
  Encoding encoding = Encoding::kPlain;
  Dtype from = Dtype::kF32;  // when kPlain
  Dtype to = Dtype::kF32;
};

// Elements that are stored together, and the bytes they take: 1 and the element's size when kPlain.
std::uint64_t BlockElements(Encoding encoding);
std::uint64_t BlockBytes(Encoding encoding, Dtype stored_dtype);

// Whether the bytes stay as they are.
bool IsIdentity(const Conversion& conversion);

// Converts whole blocks. `stored`: any alignment. `out`: aligned to the element size, exactly as
// long as the elements of `stored` need (checked).
// Rounds to nearest, ties to even; NaN stays NaN.
// Errors: kInvalidArgument when a finite value is too large for `to`, when there is no such
//   conversion (integers to anything else), and for sizes that do not match.
Status ConvertElements(const Conversion& conversion, std::span<const std::uint8_t> stored,
                       std::span<std::uint8_t> out);

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_CONVERT_H_
