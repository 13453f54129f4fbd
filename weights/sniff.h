// Recognises the things that are found in place of weight files: a Git-LFS pointer, a web page.
//
// Thread: any thread.

#ifndef STICKY_WEIGHTS_SNIFF_H_
#define STICKY_WEIGHTS_SNIFF_H_

#include "base/result.h"
#include "weights/byte_source.h"

namespace sticky::weights {

enum class WeightFormat : std::int8_t { kSafetensors = 0, kGguf };

// Looks at the first bytes of `file`, and at its name when they do not tell.
// Errors: kCorrupt naming the file, its size and what it is instead of weights; kInvalidArgument
//   for a format that is recognised but not read (a PyTorch checkpoint).
Result<WeightFormat> SniffFormat(const SourceFile& file);

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_SNIFF_H_
