#include "weights/ggml_types.h"

namespace sticky::weights {
namespace {

constexpr GgmlType Plain(std::uint32_t id, const char* name, Dtype dtype) {
  return {id, name, 1, static_cast<std::uint32_t>(SizeBytes(dtype)), true, Encoding::kPlain, dtype};
}
constexpr GgmlType Blocks(std::uint32_t id, const char* name, std::uint32_t bytes,
                          Encoding encoding) {
  return {id, name, 32, bytes, true, encoding, Dtype::kF32};
}
constexpr GgmlType Unsupported(std::uint32_t id, const char* name, std::uint32_t elements,
                               std::uint32_t bytes) {
  return {id, name, elements, bytes, false, Encoding::kPlain, Dtype::kF32};
}

constexpr GgmlType kTypes[] = {
    Plain(0, "F32", Dtype::kF32),           Plain(1, "F16", Dtype::kF16),
    Plain(30, "BF16", Dtype::kBf16),        Blocks(8, "Q8_0", 34, Encoding::kQ8_0),
    Blocks(2, "Q4_0", 18, Encoding::kQ4_0), Blocks(3, "Q4_1", 20, Encoding::kQ4_1),
    Unsupported(6, "Q5_0", 32, 22),         Unsupported(7, "Q5_1", 32, 24),
    Unsupported(9, "Q8_1", 32, 36),         Unsupported(10, "Q2_K", 256, 84),
    Unsupported(11, "Q3_K", 256, 110),      Unsupported(12, "Q4_K", 256, 144),
    Unsupported(13, "Q5_K", 256, 176),      Unsupported(14, "Q6_K", 256, 210),
    Unsupported(15, "Q8_K", 256, 292),      Unsupported(16, "IQ2_XXS", 256, 66),
    Unsupported(17, "IQ2_XS", 256, 74),     Unsupported(18, "IQ3_XXS", 256, 98),
    Unsupported(19, "IQ1_S", 256, 50),      Unsupported(20, "IQ4_NL", 32, 18),
    Unsupported(21, "IQ3_S", 256, 110),     Unsupported(22, "IQ2_S", 256, 82),
    Unsupported(23, "IQ4_XS", 256, 136),    Unsupported(24, "I8", 1, 1),
    Unsupported(25, "I16", 1, 2),           Unsupported(26, "I32", 1, 4),
    Unsupported(27, "I64", 1, 8),           Unsupported(28, "F64", 1, 8),
    Unsupported(29, "IQ1_M", 256, 56),      Unsupported(34, "TQ1_0", 256, 54),
    Unsupported(35, "TQ2_0", 256, 66),      Unsupported(39, "MXFP4", 32, 17),
};

}  // namespace

const GgmlType* FindGgmlType(std::uint32_t id) {
  for (const GgmlType& type : kTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

std::string SupportedGgmlTypes() {
  std::string names;
  for (const GgmlType& type : kTypes) {
    if (!type.supported) continue;
    if (!names.empty()) names += ", ";
    names += type.name;
  }
  return names;
}

}  // namespace sticky::weights
