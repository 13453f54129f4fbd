// The loops of the CPU's Ops that are ours. They are built for AVX-512, for AVX2 with FMA and
// for any x86-64, from one source (kernels_inl.h); Kernels() picks at run time.
//
// Results do not depend on how rows are grouped or on the number of threads: each output is summed
// by one thread in one fixed order.
//
// Thread: any thread; each call may use OpenMP's threads.

#ifndef STICKY_ENGINE_CPU_KERNELS_H_
#define STICKY_ENGINE_CPU_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "engine/ops.h"

namespace sticky::engine::cpu {

struct KernelTable {
  const char* name;  // "avx512", "avx2", "generic"

  // y = x * transpose(w) + bias, with any number of rows. Shapes as Ops::MatMul.
  void (*mat_mul)(const float* x, int row_count, const WeightMatrix& w, const float* bias,
                  float* y);
  // `count` elements of dtype f32, bf16 or f16 to float32.
  void (*to_float)(const void* from, Dtype dtype, std::size_t count, float* to);
  // To bfloat16, rounding to nearest, ties to even. `rest`, unless null, gets what rounding took
  // off, rounded likewise: the two together have 16 bits of precision.
  void (*to_bf16)(const float* from, std::size_t count, std::uint16_t* to, std::uint16_t* rest);
  void (*rms_norm)(const float* x, const float* weight, float* y, int row_count, int dim,
                   float epsilon);
  // scores: scratch, [position_begin + row_count] floats per thread.
  void (*attention)(const float* queries, const AttentionChunk& chunk, const AttentionShape& shape,
                    float* scores, std::size_t scores_stride, float* y);
  void (*silu_multiply)(const float* x, float* y, std::size_t count);
};

extern const KernelTable kAvx512Kernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kGenericKernels;

// The best table for this CPU.
const KernelTable& Kernels();

}  // namespace sticky::engine::cpu

#endif  // STICKY_ENGINE_CPU_KERNELS_H_
