#include "base/cpu_features.h"

namespace sticky {

// The compiler's test asks the operating system too, which must save the wide registers. Every CPU
// with AMX-BF16 has AVX512-BF16.
Dtype BestMatrixDtype() {
  return __builtin_cpu_supports("avx512bf16") ? Dtype::kBf16 : Dtype::kF32;
}

}  // namespace sticky
