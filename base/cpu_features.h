// What this node's CPU multiplies well; decides what `dtype: auto` means.
//
// Thread: any thread.

#ifndef STICKY_BASE_CPU_FEATURES_H_
#define STICKY_BASE_CPU_FEATURES_H_

#include "base/dtype.h"

namespace sticky {

// kBf16 when the CPU has bf16 dot products (AVX512-BF16 or AMX), else kF32: oneDNN computes bf16
// products only from AVX-512 on, and without the instructions slower than in f32.
Dtype BestMatrixDtype();

}  // namespace sticky

#endif  // STICKY_BASE_CPU_FEATURES_H_
