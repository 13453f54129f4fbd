#include "weights/convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/text.h"

// Kernels are plain loops that the compiler vectorises, compiled once for the baseline and once
// for AVX2. Not for FMA: its single rounding would give other bits than other nodes have.
#define STICKY_KERNEL [[gnu::always_inline]] inline

namespace sticky::weights {
namespace {

constexpr std::size_t kQuantBlock = 32;        // elements
constexpr std::size_t kStagedElements = 1024;  // a multiple of kQuantBlock that stays in L1

template <typename T>
STICKY_KERNEL T LoadAt(const std::uint8_t* bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes + index * sizeof(T), sizeof value);
  return value;
}

// IEEE binary16 to binary32. Scaling by 2^112 corrects the exponent's bias, and makes subnormals
// normal on the way; infinities and NaN get their exponent put back.
STICKY_KERNEL float F16ToF32(std::uint16_t half) {
  const std::uint32_t magnitude = (half & 0x7FFFu) << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  const std::uint32_t special = magnitude >= (0x7C00u << 13) ? 0x7F800000u : 0u;
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | special | sign);
}

STICKY_KERNEL float Bf16ToF32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Sets `overflow` when a finite value becomes infinite.
STICKY_KERNEL std::uint16_t F32ToBf16(float value, std::uint32_t& overflow) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  // From the largest bf16 and a half on, nearest is infinity.
  overflow |= magnitude >= 0x7F7F8000u && magnitude < 0x7F800000u ? 1u : 0u;
  const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t nan = (bits >> 16) | 0x40u;
  return static_cast<std::uint16_t>(magnitude > 0x7F800000u ? nan : rounded);
}

STICKY_KERNEL std::uint16_t F32ToF16(float value, std::uint32_t& overflow) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  // 65520 lies halfway between the largest binary16 and the next, which is infinity.
  overflow |= magnitude >= 0x477FF000u && magnitude < 0x7F800000u ? 1u : 0u;
  const std::uint32_t normal = (magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  // Below 2^-14, adding 0.5 leaves units of 2^-24, the subnormals' unit, in the last place.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  const std::uint32_t special = magnitude > 0x7F800000u ? 0x7E00u : 0x7C00u;
  std::uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude >= 0x477FF000u ? special : result;
  return static_cast<std::uint16_t>(result | ((bits >> 16) & 0x8000u));
}

STICKY_KERNEL void DecodeQ8_0(const std::uint8_t* in, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; i += kQuantBlock, in += 34) {
    const float scale = F16ToF32(LoadAt<std::uint16_t>(in, 0));
    for (std::size_t j = 0; j < kQuantBlock; ++j) {
      out[i + j] = scale * static_cast<float>(static_cast<std::int8_t>(in[2 + j]));
    }
  }
}

STICKY_KERNEL void DecodeQ4_0(const std::uint8_t* in, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; i += kQuantBlock, in += 18) {
    const float scale = F16ToF32(LoadAt<std::uint16_t>(in, 0));
    for (std::size_t j = 0; j < kQuantBlock / 2; ++j) {
      const int pair = in[2 + j];
      out[i + j] = scale * static_cast<float>((pair & 15) - 8);
      out[i + j + kQuantBlock / 2] = scale * static_cast<float>((pair >> 4) - 8);
    }
  }
}

STICKY_KERNEL void DecodeQ4_1(const std::uint8_t* in, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; i += kQuantBlock, in += 20) {
    const float scale = F16ToF32(LoadAt<std::uint16_t>(in, 0));
    const float least = F16ToF32(LoadAt<std::uint16_t>(in, 1));
    for (std::size_t j = 0; j < kQuantBlock / 2; ++j) {
      const int pair = in[4 + j];
      out[i + j] = scale * static_cast<float>(pair & 15) + least;
      out[i + j + kQuantBlock / 2] = scale * static_cast<float>(pair >> 4) + least;
    }
  }
}

STICKY_KERNEL void DecodePlain(Dtype from, const std::uint8_t* in, float* out, std::size_t count,
                               std::uint32_t& overflow) {
  if (from == Dtype::kF32) {
    std::memcpy(out, in, count * sizeof(float));
  } else if (from == Dtype::kBf16) {
    for (std::size_t i = 0; i < count; ++i) out[i] = Bf16ToF32(LoadAt<std::uint16_t>(in, i));
  } else if (from == Dtype::kF16) {
    for (std::size_t i = 0; i < count; ++i) out[i] = F16ToF32(LoadAt<std::uint16_t>(in, i));
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      const double value = LoadAt<double>(in, i);
      out[i] = static_cast<float>(value);
      overflow |= std::isinf(out[i]) && std::isfinite(value) ? 1u : 0u;
    }
  }
}

STICKY_KERNEL void Decode(const Conversion& conversion, const std::uint8_t* in, float* out,
                          std::size_t count, std::uint32_t& overflow) {
  switch (conversion.encoding) {
    case Encoding::kPlain:
      return DecodePlain(conversion.from, in, out, count, overflow);
    case Encoding::kQ8_0:
      return DecodeQ8_0(in, out, count);
    case Encoding::kQ4_0:
      return DecodeQ4_0(in, out, count);
    case Encoding::kQ4_1:
      return DecodeQ4_1(in, out, count);
  }
}

STICKY_KERNEL void Encode(Dtype to, const float* in, std::uint8_t* out, std::size_t count,
                          std::uint32_t& overflow) {
  if (to == Dtype::kBf16) {
    auto* bits = reinterpret_cast<std::uint16_t*>(out);
    for (std::size_t i = 0; i < count; ++i) bits[i] = F32ToBf16(in[i], overflow);
  } else if (to == Dtype::kF16) {
    auto* bits = reinterpret_cast<std::uint16_t*>(out);
    for (std::size_t i = 0; i < count; ++i) bits[i] = F32ToF16(in[i], overflow);
  } else {
    auto* wide = reinterpret_cast<double*>(out);
    for (std::size_t i = 0; i < count; ++i) wide[i] = in[i];
  }
}

// Returns whether a finite value became infinite.
STICKY_KERNEL bool Convert(const Conversion& conversion, const std::uint8_t* in, std::uint8_t* out,
                           std::size_t count) {
  std::uint32_t overflow = 0;
  if (conversion.to == Dtype::kF32) {
    Decode(conversion, in, reinterpret_cast<float*>(out), count, overflow);
    return overflow != 0;
  }
  float staged[kStagedElements];
  const std::size_t block_elements = conversion.encoding == Encoding::kPlain ? 1 : kQuantBlock;
  const std::size_t block_bytes = BlockBytes(conversion.encoding, conversion.from);
  for (std::size_t done = 0; done < count; done += kStagedElements) {
    const std::size_t some = std::min(kStagedElements, count - done);
    Decode(conversion, in + done / block_elements * block_bytes, staged, some, overflow);
    Encode(conversion.to, staged, out + done * SizeBytes(conversion.to), some, overflow);
  }
  return overflow != 0;
}

bool ConvertBaseline(const Conversion& conversion, const std::uint8_t* in, std::uint8_t* out,
                     std::size_t count) {
  return Convert(conversion, in, out, count);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] bool ConvertAvx2(const Conversion& conversion, const std::uint8_t* in,
                                         std::uint8_t* out, std::size_t count) {
  return Convert(conversion, in, out, count);
}

bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}
#endif

bool ConvertBlocks(const Conversion& conversion, const std::uint8_t* in, std::uint8_t* out,
                   std::size_t count) {
#if defined(__x86_64__)
  if (HasAvx2()) return ConvertAvx2(conversion, in, out, count);
#endif
  return ConvertBaseline(conversion, in, out, count);
}

Error Misfit(const PlannedTensor& tensor, const char* what) {
  return Error{Code::kInternal,
               "convert tensor '" + Escape(tensor.name) + "': " + what + " has the wrong size"};
}

std::uint64_t ElementCount(const PlannedTensor& tensor) {
  std::uint64_t count = 1;
  for (const std::int64_t dim : tensor.shape) count *= static_cast<std::uint64_t>(dim);
  return count;
}

// Where stored row `stored_row` of an interleaved tensor belongs.
std::uint64_t CanonicalRow(std::uint64_t stored_row, std::uint64_t rows_per_head) {
  const std::uint64_t head = stored_row / rows_per_head;
  const std::uint64_t within = stored_row % rows_per_head;
  return head * rows_per_head + within % 2 * (rows_per_head / 2) + within / 2;
}

Status Named(const PlannedTensor& tensor, Status status) {
  if (status.ok()) return status;
  return Error{status.error().code,
               "convert tensor '" + Escape(tensor.name) + "': " + status.error().message};
}

// A bias: its rows are its elements, converted whole and then put in order.
Status ConvertInterleavedVector(const PlannedTensor& tensor, std::span<const std::uint8_t> stored,
                                std::span<std::uint8_t> out) {
  std::vector<std::uint8_t> staged(out.size());
  const Conversion conversion{tensor.encoding, tensor.stored_dtype, tensor.dtype};
  STICKY_TRY(Named(tensor, ConvertElements(conversion, stored, staged)));
  const std::size_t element = SizeBytes(tensor.dtype);
  const std::uint64_t count = ElementCount(tensor);
  const std::uint64_t per_head = count / tensor.interleaved_head_count;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::memcpy(out.data() + CanonicalRow(i, per_head) * element, staged.data() + i * element,
                element);
  }
  return Ok{};
}

}  // namespace

std::uint64_t BlockElements(Encoding encoding) {
  return encoding == Encoding::kPlain ? 1 : kQuantBlock;
}

std::uint64_t BlockBytes(Encoding encoding, Dtype stored_dtype) {
  switch (encoding) {
    case Encoding::kQ8_0:
      return 34;
    case Encoding::kQ4_0:
      return 18;
    case Encoding::kQ4_1:
      return 20;
    case Encoding::kPlain:
      break;
  }
  return SizeBytes(stored_dtype);
}

bool IsIdentity(const Conversion& conversion) {
  return conversion.encoding == Encoding::kPlain && conversion.from == conversion.to;
}

Status ConvertElements(const Conversion& conversion, std::span<const std::uint8_t> stored,
                       std::span<std::uint8_t> out) {
  const std::uint64_t block_bytes = BlockBytes(conversion.encoding, conversion.from);
  const std::uint64_t count = stored.size() / block_bytes * BlockElements(conversion.encoding);
  if (stored.size() % block_bytes != 0 || out.size() != count * SizeBytes(conversion.to)) {
    return Error{Code::kInvalidArgument, Format("%zu stored bytes do not make %zu bytes of %s",
                                                stored.size(), out.size(), Name(conversion.to))};
  }
  if (count == 0) return Ok{};
  if (IsIdentity(conversion)) {
    std::memcpy(out.data(), stored.data(), stored.size());
    return Ok{};
  }
  if (!IsFloat(conversion.to) ||
      (conversion.encoding == Encoding::kPlain && !IsFloat(conversion.from))) {
    return Error{Code::kInvalidArgument,
                 Format("%s does not become %s", Name(conversion.from), Name(conversion.to))};
  }
  if (ConvertBlocks(conversion, stored.data(), out.data(), static_cast<std::size_t>(count))) {
    return Error{Code::kInvalidArgument,
                 Format("a value is too large for %s; choose another dtype", Name(conversion.to))};
  }
  return Ok{};
}

std::uint64_t RowCount(const PlannedTensor& tensor) {
  if (tensor.shape.size() < 2) return 1;
  std::uint64_t rows = 1;
  for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i) {
    rows *= static_cast<std::uint64_t>(tensor.shape[i]);
  }
  return rows;
}

std::uint64_t StoredRowBytes(const PlannedTensor& tensor) {
  const std::uint64_t rows = RowCount(tensor);
  return rows == 0 ? 0 : tensor.stored_bytes / rows;
}

Status ConvertRows(const PlannedTensor& tensor, std::uint64_t row_begin, std::uint64_t row_end,
                   std::span<const std::uint8_t> stored, std::span<std::uint8_t> out) {
  const std::uint64_t rows = RowCount(tensor);
  const std::uint64_t stored_row = StoredRowBytes(tensor);
  if (row_begin > row_end || row_end > rows) return Misfit(tensor, "the range of rows");
  if (stored.size() != (row_end - row_begin) * stored_row) return Misfit(tensor, "what is stored");
  if (out.size() != tensor.size_bytes) return Misfit(tensor, "its place");
  if (row_begin == row_end || tensor.size_bytes == 0) return Ok{};
  const bool vector = tensor.shape.size() < 2;
  if (tensor.interleaved_head_count != 0 && vector) {
    return ConvertInterleavedVector(tensor, stored, out);
  }
  const Conversion conversion{tensor.encoding, tensor.stored_dtype, tensor.dtype};
  const std::uint64_t row = tensor.size_bytes / rows;
  if (tensor.interleaved_head_count == 0) {
    return Named(tensor,
                 ConvertElements(conversion, stored,
                                 out.subspan(row_begin * row, (row_end - row_begin) * row)));
  }
  const std::uint64_t per_head = rows / tensor.interleaved_head_count;
  for (std::uint64_t i = row_begin; i < row_end; ++i) {
    STICKY_TRY(
        Named(tensor,
              ConvertElements(conversion, stored.subspan((i - row_begin) * stored_row, stored_row),
                              out.subspan(CanonicalRow(i, per_head) * row, row))));
  }
  return Ok{};
}

}  // namespace sticky::weights
