// Reads one of a model's small files (configuration, tokenizer) whole.
//
// Thread: any thread.

#ifndef STICKY_WEIGHTS_SMALL_FILE_H_
#define STICKY_WEIGHTS_SMALL_FILE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "weights/byte_source.h"

namespace sticky::weights {

inline constexpr std::uint64_t kSmallFileBytesMax = 64ull << 20;  // twice the largest known

// Whether `name` is a small file that a load looks at, rather than one with weights.
bool IsSmallFileName(std::string_view name);
// All such names.
std::span<const std::string_view> SmallFileNames();

// The text of the file called `name`; empty when there is none.
// Errors: kInvalidArgument past kSmallFileBytesMax; kCorrupt when it ends early, or is a Git-LFS
//   pointer.
Result<std::string> ReadSmallFile(std::span<const SourceFile> files, std::string_view name);

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_SMALL_FILE_H_
