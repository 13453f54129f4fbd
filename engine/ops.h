// The numeric operations that a forward pass is made of; one implementation per device.
//
// Conventions: row-major, innermost dimension last; shapes are written [rows, columns]; sizes are
// in elements unless the name ends in _bytes. Pointers are device pointers of the Ops' own device
// and are not owned; spans are host memory. Every row of a result depends on its own inputs alone,
// bit for bit, whatever other rows there are (docs/engine.md says where that was measured).
// engine/cpu is the reference: every other device is tested against it.
//
// Thread: one thread at a time.

#ifndef STICKY_ENGINE_OPS_H_
#define STICKY_ENGINE_OPS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/result.h"

namespace sticky::engine {

// A matrix as a state holds it: [rows, columns], rows are outputs.
struct WeightMatrix {
  const void* data = nullptr;
  Dtype dtype = Dtype::kF32;  // kF32, kBf16 or kF16
  int rows = 0;
  int columns = 0;
};

// How rows are multiplied. The choice must depend on the row's own sequence only, since the two may
// differ in the last bits.
enum class RowPath : std::int8_t {
  kBlocked = 0,  // many rows: prompts. Their number must be a multiple of kRowBlock.
  kSingle,       // any number: decoding, and logits
};
inline constexpr int kRowBlock = 24;

// Whether a product's inputs may be rounded to the dtype of its weights, where the device
// multiplies that faster. Attention amplifies such an error, the rest does not (docs/engine.md,
// "Numbers").
enum class Inputs : std::int8_t { kMayBeRounded = 0, kAsTheyAre };

// Keys and values of consecutive positions of a sequence, in one layer.
struct KvSegment {
  const float* keys = nullptr;    // [position_count, kv_head_count * head_dim]
  const float* values = nullptr;  // the same
  int position_count = 0;
};

// The rows of one sequence in a batch, and its keys and values in one layer.
struct AttentionChunk {
  int row_begin = 0;  // first row of the batch
  int row_count = 0;
  int position_begin = 0;               // of the first row; it and all before it are attended to
  std::span<const KvSegment> segments;  // in order; position_begin + row_count positions or more
};

struct AttentionShape {
  int head_count = 0;
  int kv_head_count = 0;  // divides head_count
  int head_dim = 0;
  float scale = 0;  // of the products before the softmax
};

class Ops {
 public:
  virtual ~Ops() = default;

  // Memory for activations and caches, float32, zeroed. Errors: kOutOfMemory.
  virtual Result<float*> Allocate(std::size_t count) = 0;
  virtual void Free(float* memory) = 0;                                      // null is allowed
  virtual Status Copy(float* to, const float* from, std::size_t count) = 0;  // on the device
  virtual Status CopyToHost(std::span<float> to, const float* from) = 0;

  // y[r] = row tokens[r] of `table`. y: float32 [tokens.size(), table.columns].
  // Requires 0 <= tokens[r] < table.rows.
  virtual Status Embed(const WeightMatrix& table, std::span<const std::int32_t> tokens,
                       float* y) = 0;

  // y[r, c] = x[r, c] * weight[c] / sqrt(mean over c of x[r, c]^2 + epsilon)
  //   x, y: float32 [row_count, dim], may alias   weight: float32 [dim]   epsilon: > 0
  // Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", section 3.
  virtual Status RmsNorm(const float* x, const float* weight, float* y, int row_count, int dim,
                         float epsilon) = 0;

  // y = x * transpose(w) + bias.
  //   x: float32 [row_count, w.columns]   y: float32 [row_count, w.rows]
  //   bias: float32 [w.rows] or null
  // Products are accumulated in float32. Errors: kInternal when the library refuses; kDeviceLost.
  virtual Status MatMul(const float* x, int row_count, const WeightMatrix& w, const float* bias,
                        float* y, RowPath path, Inputs inputs) = 0;

  // Turns pair (i, i + head_dim/2) of every head of row r by positions[r] * inverse_frequencies[i].
  //   x: float32 [positions.size(), head_count * head_dim], in place
  //   inverse_frequencies: [head_dim / 2], radians per position
  // Source: Su et al. 2021, "RoFormer", in the half-split order of Hugging Face's models.
  virtual Status Rope(float* x, std::span<const std::int32_t> positions,
                      std::span<const float> inverse_frequencies, int head_count, int head_dim) = 0;

  // Causal attention of every row over its own sequence.
  //   queries, y: float32 [rows of the batch, head_count * head_dim]; rows of no chunk are left
  // Source: Vaswani et al. 2017, section 3.2; Ainslie et al. 2023 (grouped queries).
  virtual Status Attention(const float* queries, std::span<const AttentionChunk> chunks,
                           const AttentionShape& shape, float* y) = 0;

  // y[i] = y[i] / (1 + exp(-y[i])) * x[i]. Source: Shazeer 2020, "GLU Variants Improve
  // Transformer".
  virtual Status SiluMultiply(const float* x, float* y, std::size_t count) = 0;

  // y[i] += x[i]
  virtual Status Add(const float* x, float* y, std::size_t count) = 0;
};

}  // namespace sticky::engine

#endif  // STICKY_ENGINE_OPS_H_
