// Element types of tensors: one closed list for weight files, manifests, the C ABI and the engine.
//
// Thread: any thread.

#ifndef STICKY_BASE_DTYPE_H_
#define STICKY_BASE_DTYPE_H_

#include <cstddef>
#include <cstdint>

namespace sticky {

// Mirrors wire Dtype and the C ABI's sti_dtype, value for value (tests/layout checks it).
enum class Dtype : std::int8_t {
  kBool = 0,
  kU8 = 1,
  kI8 = 2,
  kU16 = 3,
  kI16 = 4,
  kU32 = 5,
  kI32 = 6,
  kU64 = 7,
  kI64 = 8,
  kF16 = 9,
  kBf16 = 10,
  kF32 = 11,
  kF64 = 12,
};
inline constexpr int kDtypeCount = 13;

inline constexpr bool IsKnown(Dtype dtype) {
  return static_cast<int>(dtype) >= 0 && static_cast<int>(dtype) < kDtypeCount;
}

// Bytes of one element. Requires IsKnown(dtype).
inline constexpr std::size_t SizeBytes(Dtype dtype) {
  constexpr std::size_t kSizes[kDtypeCount] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};
  return kSizes[static_cast<int>(dtype)];
}

// "bf16", "f32", ... Requires IsKnown(dtype). The text is static.
inline constexpr const char* Name(Dtype dtype) {
  constexpr const char* kNames[kDtypeCount] = {"bool", "u8",  "i8",  "u16",  "i16", "u32", "i32",
                                               "u64",  "i64", "f16", "bf16", "f32", "f64"};
  return kNames[static_cast<int>(dtype)];
}

inline constexpr bool IsFloat(Dtype dtype) { return static_cast<int>(dtype) >= 9; }

// What `dtype:` of a template asks for. Mirrors wire DtypeChoice (tests/layout checks it).
enum class DtypeChoice : std::int8_t {
  kAuto = 0,  // of a language model, what this node's CPU multiplies best; else as stored
  kBf16 = 1,
  kF16 = 2,
  kF32 = 3,
};
inline constexpr int kDtypeChoiceCount = 4;

// "auto", "bf16", "f16", "f32". The text is static.
inline constexpr const char* Name(DtypeChoice choice) {
  constexpr const char* kNames[kDtypeChoiceCount] = {"auto", "bf16", "f16", "f32"};
  return kNames[static_cast<int>(choice)];
}

}  // namespace sticky

#endif  // STICKY_BASE_DTYPE_H_
