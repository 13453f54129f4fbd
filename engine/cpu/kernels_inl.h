// The source of every build of the kernels: included once by each kernels_<name>.cc, inside its own
// namespace and with its own compiler flags. It uses nothing of the standard library that could be
// inlined, so that no code for one CPU leaks into the rest.
//
// Vectors are the compilers' vector extension: kLanes floats, 16 with AVX-512 and 8 otherwise.
//
// Thread: see kernels.h.

#ifndef STICKY_KERNELS_NAMESPACE
#error "include this from a kernels_<name>.cc"
#endif

#ifdef __F16C__
#include <immintrin.h>
#endif

#include <omp.h>

namespace sticky::engine::cpu::STICKY_KERNELS_NAMESPACE {

// A tile's sums, its inputs and one weight fill the registers: 3 x 4 + 3 + 1 of 16 with AVX2,
// 6 x 4 + 6 + 1 of 32 with AVX-512.
#ifdef __AVX512F__
constexpr int kLanes = 16;
constexpr int kTileRows = 6;
#else
constexpr int kLanes = 8;
constexpr int kTileRows = 3;
#endif
constexpr int kTileOuts = 4;

typedef float F32s __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
typedef std::int32_t I32s __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
typedef std::uint32_t U32s __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
typedef std::uint16_t U16s __attribute__((vector_size(2 * kLanes), aligned(2), may_alias));

inline float BitsToFloat(std::uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
inline std::uint32_t FloatToBits(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

// IEEE 754 binary16 to binary32.
inline float HalfToFloat(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 31u;
  const std::uint32_t fraction = half & 1023u;
  if (exponent == 31) return BitsToFloat(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return BitsToFloat(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // zero or subnormal
  return BitsToFloat(sign | FloatToBits(magnitude));
}

inline F32s Load(const float* from) { return *reinterpret_cast<const F32s*>(from); }

// Element types as they are stored.
struct Float32 {
  using Stored = float;
  static F32s Several(const Stored* from) { return Load(from); }
  static float One(Stored value) { return value; }
};
struct Bfloat16 {
  using Stored = std::uint16_t;
  static F32s Several(const Stored* from) {
    const U16s half = *reinterpret_cast<const U16s*>(from);
    return reinterpret_cast<F32s>(__builtin_convertvector(half, U32s) << 16);
  }
  static float One(Stored value) { return BitsToFloat(static_cast<std::uint32_t>(value) << 16); }
};
struct Float16 {
  using Stored = std::uint16_t;
  static F32s Several(const Stored* from) {
#if defined(__AVX512F__)
    // All lanes by mask: the form without one warns in GCC 12 (its bug 105593).
    return reinterpret_cast<F32s>(
        _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
#elif defined(__F16C__)
    return reinterpret_cast<F32s>(
        _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#else
    F32s several;
    for (int i = 0; i < kLanes; ++i) several[i] = HalfToFloat(from[i]);
    return several;
#endif
  }
  static float One(Stored value) { return HalfToFloat(value); }
};

// In halves: what vector instructions do best, and one order for every row.
inline float Sum(F32s v) {
  float part[kLanes];
  __builtin_memcpy(part, &v, sizeof part);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) part[i] += part[i + width];
  }
  return part[0];
}

// kRows x kTileOuts dot products over `depth`.
template <typename Type, int kRows>
inline void Tile(const float* x, const typename Type::Stored* w, int depth, int out_count,
                 const float* bias, float* y, std::size_t y_stride) {
  F32s sums[kRows][kTileOuts] = {};
  const typename Type::Stored* w_rows[kTileOuts];
  for (int o = 0; o < kTileOuts; ++o) {
    w_rows[o] = w + static_cast<std::size_t>(o < out_count ? o : 0) * depth;
  }
  int k = 0;
  for (; k + kLanes <= depth; k += kLanes) {
    F32s inputs[kRows];
    for (int r = 0; r < kRows; ++r) inputs[r] = Load(x + static_cast<std::size_t>(r) * depth + k);
    for (int o = 0; o < kTileOuts; ++o) {
      const F32s weights = Type::Several(w_rows[o] + k);
      for (int r = 0; r < kRows; ++r) sums[r][o] += inputs[r] * weights;
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int o = 0; o < out_count; ++o) {
      float sum = Sum(sums[r][o]);
      for (int tail = k; tail < depth; ++tail) {
        sum += x[static_cast<std::size_t>(r) * depth + tail] * Type::One(w_rows[o][tail]);
      }
      y[r * y_stride + o] = bias != nullptr ? sum + bias[o] : sum;
    }
  }
}

template <typename Type>
void MatMulAs(const float* x, int row_count, const WeightMatrix& w, const float* bias, float* y) {
  const auto* const weights = static_cast<const typename Type::Stored*>(w.data);
  const int depth = w.columns;
  const int tile_count = (w.rows + kTileOuts - 1) / kTileOuts;
#pragma omp parallel for schedule(static)
  for (int tile = 0; tile < tile_count; ++tile) {
    const int out = tile * kTileOuts;
    const int out_count = w.rows - out < kTileOuts ? w.rows - out : kTileOuts;
    const auto* const w_tile = weights + static_cast<std::size_t>(out) * depth;
    const float* const bias_tile = bias != nullptr ? bias + out : nullptr;
    int row = 0;
    for (; row + kTileRows <= row_count; row += kTileRows) {
      Tile<Type, kTileRows>(x + static_cast<std::size_t>(row) * depth, w_tile, depth, out_count,
                            bias_tile, y + static_cast<std::size_t>(row) * w.rows + out, w.rows);
    }
    for (; kTileRows > 3 && row + 3 <= row_count; row += 3) {
      Tile<Type, 3>(x + static_cast<std::size_t>(row) * depth, w_tile, depth, out_count, bias_tile,
                    y + static_cast<std::size_t>(row) * w.rows + out, w.rows);
    }
    for (; row < row_count; ++row) {
      Tile<Type, 1>(x + static_cast<std::size_t>(row) * depth, w_tile, depth, out_count, bias_tile,
                    y + static_cast<std::size_t>(row) * w.rows + out, w.rows);
    }
  }
}

inline void MatMul(const float* x, int row_count, const WeightMatrix& w, const float* bias,
                   float* y) {
  if (w.dtype == Dtype::kF32) return MatMulAs<Float32>(x, row_count, w, bias, y);
  if (w.dtype == Dtype::kBf16) return MatMulAs<Bfloat16>(x, row_count, w, bias, y);
  MatMulAs<Float16>(x, row_count, w, bias, y);
}

template <typename Type>
void ToFloatAs(const void* from, std::size_t count, float* to) {
  const auto* const stored = static_cast<const typename Type::Stored*>(from);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    *reinterpret_cast<F32s*>(to + i) = Type::Several(stored + i);
  }
  for (; i < count; ++i) to[i] = Type::One(stored[i]);
}

inline void ToFloat(const void* from, Dtype dtype, std::size_t count, float* to) {
  if (dtype == Dtype::kF32) return ToFloatAs<Float32>(from, count, to);
  if (dtype == Dtype::kBf16) return ToFloatAs<Bfloat16>(from, count, to);
  ToFloatAs<Float16>(from, count, to);
}

inline std::uint16_t RoundToBf16(float value) {
  const std::uint32_t bits = FloatToBits(value);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline void ToBf16(const float* from, std::size_t count, std::uint16_t* to, std::uint16_t* rest) {
  for (std::size_t i = 0; i < count; ++i) to[i] = RoundToBf16(from[i]);
  if (rest == nullptr) return;
  for (std::size_t i = 0; i < count; ++i) rest[i] = RoundToBf16(from[i] - Bfloat16::One(to[i]));
}

inline void RmsNorm(const float* x, const float* weight, float* y, int row_count, int dim,
                    float epsilon) {
  for (int row = 0; row < row_count; ++row) {
    const float* const x_row = x + static_cast<std::size_t>(row) * dim;
    float* const y_row = y + static_cast<std::size_t>(row) * dim;
    double square_sum = 0;  // double: the reference that other devices are measured against
    for (int c = 0; c < dim; ++c) square_sum += static_cast<double>(x_row[c]) * x_row[c];
    const auto scale = static_cast<float>(1.0 / __builtin_sqrt(square_sum / dim + epsilon));
    for (int c = 0; c < dim; ++c) y_row[c] = x_row[c] * scale * weight[c];
  }
}

// exp(x), within about 2 units in the last place where the result is normal; below -87.3 it is the
// smallest normal number, above 88.3 about 2.4e38.
// Source: Moshier, Cephes mathematical library, expf: reduction by ln 2 and its polynomial.
inline F32s Exp(F32s x) {
  const F32s low = x < -87.3f ? (F32s{} - 87.3f) : x;
  const F32s clipped = low > 88.3f ? (F32s{} + 88.3f) : low;
  const F32s scaled = clipped * 1.44269504088896341f;
  const I32s n =
      __builtin_convertvector(scaled + (scaled < 0.0f ? (F32s{} - 0.5f) : (F32s{} + 0.5f)), I32s);
  const F32s whole = __builtin_convertvector(n, F32s);
  const F32s r = clipped - whole * 0.693359375f - whole * -2.12194440e-4f;
  F32s p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const F32s fraction = p * r * r + r + 1.0f;
  return fraction * reinterpret_cast<F32s>((n + 127) << 23);
}

inline float ExpOne(float x) {
  F32s several = {};
  several[0] = x;
  return Exp(several)[0];
}

inline void SiluMultiply(const float* x, float* y, std::size_t count) {
  const auto whole = static_cast<std::ptrdiff_t>(count / kLanes);
#pragma omp parallel for schedule(static)
  for (std::ptrdiff_t i = 0; i < whole; ++i) {
    auto* const out = reinterpret_cast<F32s*>(y + i * kLanes);
    const F32s gate = *out;
    *out = gate / (1.0f + Exp(-gate)) * Load(x + i * kLanes);
  }
  for (std::size_t i = static_cast<std::size_t>(whole) * kLanes; i < count; ++i) {
    y[i] = y[i] / (1.0f + ExpOne(-y[i])) * x[i];
  }
}

inline float Dot(const float* a, const float* b, int count) {
  F32s sums = {};
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) sums += Load(a + i) * Load(b + i);
  float sum = Sum(sums);
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// Softmax of scores[0..count) in place, without the division; returns the divisor.
inline float ExpAndSum(float* scores, int count) {
  float most = scores[0];
  for (int p = 1; p < count; ++p) most = scores[p] > most ? scores[p] : most;
  F32s sums = {};
  int p = 0;
  for (; p + kLanes <= count; p += kLanes) {
    const F32s e = Exp(Load(scores + p) - most);
    *reinterpret_cast<F32s*>(scores + p) = e;
    sums += e;
  }
  float sum = Sum(sums);
  for (; p < count; ++p) {
    scores[p] = ExpOne(scores[p] - most);
    sum += scores[p];
  }
  return sum;
}

inline void AttendOne(const float* query, std::span<const KvSegment> segments, std::size_t kv_at,
                      int length, const AttentionShape& shape, float* scores, float* y) {
  const std::size_t stride = static_cast<std::size_t>(shape.kv_head_count) * shape.head_dim;
  const int dim = shape.head_dim;
  int p = 0;
  for (const KvSegment& segment : segments) {
    const int end = segment.position_count < length - p ? p + segment.position_count : length;
    for (const float* key = segment.keys + kv_at; p < end; ++p, key += stride) {
      scores[p] = Dot(query, key, dim) * shape.scale;
    }
  }
  const float divisor = ExpAndSum(scores, length);
  for (int c = 0; c < dim; ++c) y[c] = 0;
  p = 0;
  for (const KvSegment& segment : segments) {
    const int end = segment.position_count < length - p ? p + segment.position_count : length;
    for (const float* value = segment.values + kv_at; p < end; ++p, value += stride) {
      const float weight = scores[p] / divisor;
      int c = 0;
      for (; c + kLanes <= dim; c += kLanes) {
        *reinterpret_cast<F32s*>(y + c) += Load(value + c) * weight;
      }
      for (; c < dim; ++c) y[c] += value[c] * weight;
    }
  }
}

inline void Attention(const float* queries, const AttentionChunk& chunk,
                      const AttentionShape& shape, float* scores, std::size_t scores_stride,
                      float* y) {
  const int task_count = chunk.row_count * shape.head_count;
  const int group = shape.head_count / shape.kv_head_count;
  const int dim = shape.head_dim;
#pragma omp parallel for schedule(static)
  for (int task = 0; task < task_count; ++task) {
    const int row = task / shape.head_count;
    const int head = task % shape.head_count;
    const std::size_t at =
        (static_cast<std::size_t>(chunk.row_begin + row) * shape.head_count + head) * dim;
    const std::size_t kv_at = static_cast<std::size_t>(head / group) * dim;
    AttendOne(queries + at, chunk.segments, kv_at, chunk.position_begin + row + 1, shape,
              scores + static_cast<std::size_t>(omp_get_thread_num()) * scores_stride, y + at);
  }
}

}  // namespace sticky::engine::cpu::STICKY_KERNELS_NAMESPACE
