// Matrix products of many rows through oneDNN. Weights are read where they lie, never reordered.
//
// Thread: one thread at a time.

#ifndef STICKY_ENGINE_CPU_ONE_DNN_H_
#define STICKY_ENGINE_CPU_ONE_DNN_H_

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "engine/ops.h"

namespace sticky::engine::cpu {

// y = x * transpose(w), all float32. Within an OpenMP loop it runs on the calling thread alone.
//   x: [row_count, depth]   w: [out_count, depth]   y: [row_count, out_count], rows y_stride apart
// Returns oneDNN's status, 0 for success.
int SgemmTransposed(const float* x, int row_count, const float* w, int out_count, int depth,
                    float* y, int y_stride);

// The same for bfloat16 inputs and weights, float32 results, on CPUs that multiply bfloat16.
class Bf16MatMul {
 public:
  Bf16MatMul();
  ~Bf16MatMul();
  // Whether oneDNN has bf16 instructions to use: those of the CPU, less what ONEDNN_MAX_CPU_ISA
  // forbids. Where it has none, it would be slower than float32, or refuse.
  bool available() const;
  // x: bfloat16 [row_count, w.columns]. Errors:
  // kInternal with oneDNN's message; kOutOfMemory.
  Status Run(const std::uint16_t* x, int row_count, const WeightMatrix& w, float* y);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sticky::engine::cpu

#endif  // STICKY_ENGINE_CPU_ONE_DNN_H_
