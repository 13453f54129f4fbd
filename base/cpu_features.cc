#include "base/cpu_features.h"

#include <cpuid.h>

namespace sticky {

// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, CPUID leaf 7:
// sub-leaf 0 EDX bit 22 is AMX-BF16, sub-leaf 1 EAX bit 5 is AVX512-BF16.
Dtype BestMatrixDtype() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return Dtype::kF32;
  const bool amx_bf16 = ((edx >> 22) & 1U) != 0;
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) == 0) return Dtype::kF32;
  const bool avx512_bf16 = ((eax >> 5) & 1U) != 0;
  return amx_bf16 || avx512_bf16 ? Dtype::kBf16 : Dtype::kF32;
}

}  // namespace sticky
