// The CPU's Ops, and the one function by which the module is entered.

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include <cpuid.h>
#include <omp.h>
#include <sys/mman.h>

#include "base/text.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/one_dnn.h"
#include "engine/module_entry.h"
#include "engine/ops.h"

namespace sticky::engine::cpu {
namespace {

constexpr std::size_t kAlignment = 64;  // bytes; a cache line
constexpr std::size_t kHugePageBytes = 2u << 20;
// Memory from this size on is given huge pages. Smaller buffers are seldom filled to the end, and
// clearing the rest of a huge page costs a short-lived process more than its page faults do.
constexpr std::size_t kHugeMemoryBytes = 2 * kHugePageBytes;
// Rows that one call of oneDNN gets at most. Up to here, and in whole blocks, its kernels sum every
// row in the same order, however many there are (measured with AVX2); past it they do not.
constexpr int kCallRowsMax = 4 * kRowBlock;
// A tile of outputs, which one thread multiplies: it stays in a core's cache, if columns allow.
constexpr int kTileFloats = 64 << 10;
constexpr int kTileOutsMin = 8;
constexpr int kTileOutsMax = 64;

// Depends on the shape alone, as results must.
int TileOuts(int columns) {
  return std::clamp(kTileFloats / columns / kTileOutsMin * kTileOutsMin, kTileOutsMin,
                    kTileOutsMax);
}

// Rotates each pair (head[i], head[i + half]) of one head by its angle.
void Rotate(float* head, std::span<const float> cosines, std::span<const float> sines) {
  const std::size_t half = cosines.size();
  for (std::size_t i = 0; i < half; ++i) {
    const float a = head[i];
    const float b = head[i + half];
    head[i] = a * cosines[i] - b * sines[i];
    head[i + half] = b * cosines[i] + a * sines[i];
  }
}

class CpuOps : public Ops {
 public:
  explicit CpuOps(int thread_count) : kernels_(Kernels()) {
    if (thread_count > 0) omp_set_num_threads(thread_count);
  }

  // Pages that are never used never exist. Large memory gets huge pages where the kernel allows.
  Result<float*> Allocate(std::size_t count) override {
    const std::size_t size_bytes = count * sizeof(float);
    const std::size_t whole_bytes =
        size_bytes < kHugeMemoryBytes ? size_bytes : size_bytes + kHugePageBytes;
    void* const whole = ::mmap(nullptr, whole_bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, /*offset=*/0);
    if (whole == MAP_FAILED) {
      return ErrnoError(Format("allocate %zu bytes for activations or a cache", size_bytes), errno);
    }
    char* memory = static_cast<char*>(whole);
    if (size_bytes >= kHugeMemoryBytes) {
      memory += (kHugePageBytes - reinterpret_cast<std::uintptr_t>(whole) % kHugePageBytes) %
                kHugePageBytes;
      static_cast<void>(::madvise(memory, size_bytes, MADV_HUGEPAGE));
    }
    auto* const floats = reinterpret_cast<float*>(memory);
    mappings_[floats] = {whole, whole_bytes};
    return floats;
  }

  void Free(float* memory) override {
    const auto found = mappings_.find(memory);
    if (found == mappings_.end()) return;
    ::munmap(found->second.first, found->second.second);
    mappings_.erase(found);
  }

  Status Copy(float* to, const float* from, std::size_t count) override {
    std::memcpy(to, from, count * sizeof(float));
    return Ok{};
  }

  Status CopyToHost(std::span<float> to, const float* from) override {
    return Copy(to.data(), from, to.size());
  }

  Status Embed(const WeightMatrix& table, std::span<const std::int32_t> tokens, float* y) override {
    const auto columns = static_cast<std::size_t>(table.columns);
    const std::size_t row_bytes = columns * SizeBytes(table.dtype);
    for (std::size_t r = 0; r < tokens.size(); ++r) {
      const auto* const row = static_cast<const std::uint8_t*>(table.data) +
                              static_cast<std::size_t>(tokens[r]) * row_bytes;
      kernels_.to_float(row, table.dtype, columns, y + r * columns);
    }
    return Ok{};
  }

  Status RmsNorm(const float* x, const float* weight, float* y, int row_count, int dim,
                 float epsilon) override {
    kernels_.rms_norm(x, weight, y, row_count, dim, epsilon);
    return Ok{};
  }

  Status MatMul(const float* x, int row_count, const WeightMatrix& w, const float* bias, float* y,
                RowPath path, Inputs inputs) override {
    if (row_count == 0) return Ok{};
    if (path == RowPath::kSingle) {
      kernels_.mat_mul(x, row_count, w, bias, y);
      return Ok{};
    }
    for (int row = 0; row < row_count; row += kCallRowsMax) {
      const auto at = static_cast<std::size_t>(row);
      STICKY_TRY(Blocked(x + at * static_cast<std::size_t>(w.columns),
                         std::min(kCallRowsMax, row_count - row), w,
                         y + at * static_cast<std::size_t>(w.rows), inputs));
    }
    if (bias == nullptr) return Ok{};
    for (int r = 0; r < row_count; ++r) {
      float* const row = y + static_cast<std::size_t>(r) * static_cast<std::size_t>(w.rows);
      for (int c = 0; c < w.rows; ++c) row[c] += bias[c];
    }
    return Ok{};
  }

  Status Rope(float* x, std::span<const std::int32_t> positions,
              std::span<const float> inverse_frequencies, int head_count, int head_dim) override {
    const std::size_t half = inverse_frequencies.size();
    std::vector<float> cosines(half);
    std::vector<float> sines(half);
    for (std::size_t row = 0; row < positions.size(); ++row) {
      for (std::size_t i = 0; i < half; ++i) {
        const float angle = static_cast<float>(positions[row]) * inverse_frequencies[i];
        cosines[i] = std::cos(angle);
        sines[i] = std::sin(angle);
      }
      for (int head = 0; head < head_count; ++head) {
        const std::size_t index =
            row * static_cast<std::size_t>(head_count) + static_cast<std::size_t>(head);
        Rotate(x + index * static_cast<std::size_t>(head_dim), cosines, sines);
      }
    }
    return Ok{};
  }

  Status Attention(const float* queries, std::span<const AttentionChunk> chunks,
                   const AttentionShape& shape, float* y) override {
    std::size_t longest = 0;
    for (const AttentionChunk& chunk : chunks) {
      longest = std::max(longest, static_cast<std::size_t>(chunk.position_begin + chunk.row_count));
    }
    constexpr std::size_t kLineFloats = kAlignment / sizeof(float);
    const std::size_t stride = (longest + kLineFloats - 1) / kLineFloats * kLineFloats;
    scores_.resize(
        std::max(scores_.size(), stride * static_cast<std::size_t>(omp_get_max_threads())));
    for (const AttentionChunk& chunk : chunks) {
      kernels_.attention(queries, chunk, shape, scores_.data(), stride, y);
    }
    return Ok{};
  }

  Status SiluMultiply(const float* x, float* y, std::size_t count) override {
    kernels_.silu_multiply(x, y, count);
    return Ok{};
  }

  Status Add(const float* x, float* y, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i) y[i] += x[i];
    return Ok{};
  }

 private:
  Status Blocked(const float* x, int row_count, const WeightMatrix& w, float* y, Inputs inputs) {
    if (w.dtype == Dtype::kBf16 && bf16_.available()) return InBf16(x, row_count, w, y, inputs);
    return InTiles(x, row_count, w, y);
  }

  // Inputs that must not be rounded are multiplied in two parts, as twice as many rows: the rounded
  // ones and what rounding took off.
  Status InBf16(const float* x, int row_count, const WeightMatrix& w, float* y, Inputs inputs) {
    const std::size_t count =
        static_cast<std::size_t>(row_count) * static_cast<std::size_t>(w.columns);
    rounded_.resize(std::max(rounded_.size(), 2 * count));
    if (inputs == Inputs::kMayBeRounded) {
      kernels_.to_bf16(x, count, rounded_.data(), /*rest=*/nullptr);
      return bf16_.Run(rounded_.data(), row_count, w, y);
    }
    kernels_.to_bf16(x, count, rounded_.data(), rounded_.data() + count);
    const std::size_t out_count =
        static_cast<std::size_t>(row_count) * static_cast<std::size_t>(w.rows);
    scratch_.resize(std::max(scratch_.size(), 2 * out_count));
    STICKY_TRY(bf16_.Run(rounded_.data(), 2 * row_count, w, scratch_.data()));
    for (std::size_t i = 0; i < out_count; ++i) y[i] = scratch_[i] + scratch_[out_count + i];
    return Ok{};
  }

  // In float32, a tile of outputs for each call of the library, and each call on one thread: cut
  // up among threads by the library, a row's sums would depend on their number. Weights that are
  // not float32 are converted a tile at a time.
  Status InTiles(const float* x, int row_count, const WeightMatrix& w, float* y) {
    const auto columns = static_cast<std::size_t>(w.columns);
    const std::size_t row_bytes = columns * SizeBytes(w.dtype);
    const int tile_outs = TileOuts(w.columns);
    const int tile_count = (w.rows + tile_outs - 1) / tile_outs;
    const std::size_t tile_floats = static_cast<std::size_t>(tile_outs) * columns;
    scratch_.resize(
        std::max(scratch_.size(), tile_floats * static_cast<std::size_t>(omp_get_max_threads())));
    int refused = 0;
#pragma omp parallel for schedule(static) reduction(max : refused)
    for (int tile = 0; tile < tile_count; ++tile) {
      const int begin = tile * tile_outs;
      const int outs = std::min(tile_outs, w.rows - begin);
      const auto* const stored =
          static_cast<const std::uint8_t*>(w.data) + static_cast<std::size_t>(begin) * row_bytes;
      const auto* floats = reinterpret_cast<const float*>(stored);
      if (w.dtype != Dtype::kF32) {
        float* const converted =
            scratch_.data() + tile_floats * static_cast<std::size_t>(omp_get_thread_num());
        kernels_.to_float(stored, w.dtype, static_cast<std::size_t>(outs) * columns, converted);
        floats = converted;
      }
      refused = std::max(refused,
                         SgemmTransposed(x, row_count, floats, outs, w.columns, y + begin, w.rows));
    }
    if (refused == 0) return Ok{};
    return Error{Code::kInternal, Format("multiply [%d, %d] by [%d, %d]: oneDNN status %d",
                                         row_count, w.columns, w.columns, w.rows, refused)};
  }

  std::map<float*, std::pair<void*, std::size_t>> mappings_;  // what Allocate gave: all that it got
  const KernelTable& kernels_;
  Bf16MatMul bf16_;
  std::vector<std::uint16_t> rounded_;
  std::vector<float> scratch_;
  std::vector<float> scores_;
};

// clang 14's __builtin_cpu_supports does not know the name "f16c".
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, CPUID leaf 1.
bool HasF16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && ((ecx >> 29) & 1U) != 0;
}

}  // namespace

const KernelTable& Kernels() {
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return kAvx512Kernels;
  }
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  return avx2 ? kAvx2Kernels : kGenericKernels;
}

}  // namespace sticky::engine::cpu

extern "C" __attribute__((visibility("default"))) sticky::engine::Ops* sticky_engine_open(
    int version, int thread_count) {
  if (version != sticky::engine::kModuleVersion) return nullptr;
  return new sticky::engine::cpu::CpuOps(thread_count);
}
