// Conversion gives the same numbers as other people's programs, for every quantised block of the
// golden file and every float16; rows of rotary-interleaved tensors land where they belong.

#include "weights/convert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tests/testing/memory_model.h"
#include "tests/testing/model_writers.h"
#include "weights/safetensors.h"

namespace sticky::weights {
namespace {

using sticky::testing::FailsWith;
using sticky::testing::IsOk;
using sticky::testing::MemoryModel;

template <typename T>
std::span<const std::uint8_t> Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(T)};
}
template <typename T>
std::span<std::uint8_t> WritableBytes(std::vector<T>& values) {
  return {reinterpret_cast<std::uint8_t*>(values.data()), values.size() * sizeof(T)};
}

std::map<std::string, std::string> GoldenTensors() {
  MemoryModel model;
  model.AddFile(sticky::testing::GoldenDir() / "quant" / "blocks.safetensors");
  const auto tensors = ReadSafetensors(model.files()[0]);
  EXPECT_THAT(tensors, IsOk());
  std::map<std::string, std::string> bytes;
  for (const auto& tensor : tensors.value()) {
    bytes[tensor.name] = model.source(0).bytes().substr(tensor.file_offset, tensor.size_bytes);
  }
  return bytes;
}

// A GGUF file with one tensor of `rows` rows of 512 elements.
std::string GgufWith(std::uint32_t type, std::int64_t rows, const std::string& bytes) {
  sticky::testing::GgufWriter writer;
  writer.Tensor("t", {rows, 512}, type, bytes);
  return writer.Finish();
}

TEST(ConvertElements, EveryGoldenBlockOfASupportedTypeIsExactToAUnitInTheLastPlace) {
  const std::map<std::string, Encoding> encodings = {
      {"Q4_0", Encoding::kQ4_0}, {"Q4_1", Encoding::kQ4_1}, {"Q8_0", Encoding::kQ8_0}};
  const auto golden = GoldenTensors();
  for (const auto& [name, encoding] : encodings) {
    ASSERT_TRUE(golden.contains(name + ".blocks")) << name;
    const std::string& stored = golden.at(name + ".blocks");
    std::vector<float> expected(golden.at(name + ".values").size() / sizeof(float));
    std::memcpy(expected.data(), golden.at(name + ".values").data(), 4 * expected.size());
    std::vector<float> got(expected.size());

    ASSERT_THAT(
        ConvertElements({encoding, Dtype::kF32, Dtype::kF32},
                        Bytes(std::vector<char>(stored.begin(), stored.end())), WritableBytes(got)),
        IsOk());

    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto distance =
          std::abs(static_cast<std::int64_t>(std::bit_cast<std::int32_t>(got[i])) -
                   std::bit_cast<std::int32_t>(expected[i]));
      ASSERT_LE(distance, 1) << name << "[" << i << "]: " << got[i] << ", not " << expected[i];
    }
  }
}

// W27.
TEST(GgmlTypes, EveryOtherGoldenTypeIsRefusedByNameWithTheSupportedOnes) {
  const std::map<std::string, std::uint32_t> ids = {{"Q5_0", 6},  {"Q5_1", 7},    {"Q2_K", 10},
                                                    {"Q3_K", 11}, {"Q4_K", 12},   {"Q5_K", 13},
                                                    {"Q6_K", 14}, {"IQ4_NL", 20}, {"IQ4_XS", 23}};
  const auto golden = GoldenTensors();
  for (const auto& [name, id] : ids) {
    ASSERT_TRUE(golden.contains(name + ".blocks")) << name;
    MemoryModel model;
    model.Add("m.gguf", GgufWith(id, 12, golden.at(name + ".blocks")));

    const auto plan = PlanLoad(model.files(), PlanOptions{});

    ASSERT_THAT(plan, FailsWith(Code::kInvalidArgument));
    const std::string& message = plan.error().message;
    for (const std::string& part :
         {std::string("'t'"), std::to_string(id), name, std::string("Q4_0, Q4_1")}) {
      EXPECT_NE(message.find(part), std::string::npos) << part << ": " << message;
    }
  }
}

TEST(GgmlTypes, EveryPlainAndQuantisedTypeThatIsReadHasTheSizeOfTheGoldenBlocks) {
  const auto golden = GoldenTensors();
  for (const auto& [name, id] :
       std::map<std::string, std::uint32_t>{{"Q4_0", 2}, {"Q4_1", 3}, {"Q8_0", 8}}) {
    MemoryModel model;
    model.Add("m.gguf", GgufWith(id, 12, golden.at(name + ".blocks")));
    EXPECT_THAT(PlanLoad(model.files(), PlanOptions{}), IsOk()) << name;
  }
}

TEST(ConvertElements, EveryFloat16BecomesTheSameFloat32) {
  std::vector<std::uint16_t> halves(0x10000);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> got(halves.size());

  ASSERT_THAT(ConvertElements({Encoding::kPlain, Dtype::kF16, Dtype::kF32}, Bytes(halves),
                              WritableBytes(got)),
              IsOk());

  for (std::uint32_t half = 0; half < 0x10000; ++half) {
    const std::uint32_t exponent = half >> 10 & 31;
    const double fraction = half & 1023;
    const double sign = (half & 0x8000) != 0 ? -1 : 1;
    if (exponent == 31 && fraction != 0) {
      ASSERT_TRUE(std::isnan(got[half])) << half;
      continue;
    }
    const double expected = exponent == 31 ? std::numeric_limits<double>::infinity()
                            : exponent == 0
                                ? std::ldexp(fraction, -24)
                                : std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
    ASSERT_EQ(got[half], static_cast<float>(sign * expected)) << half;
    ASSERT_EQ(std::signbit(got[half]), sign < 0) << half;
  }
}

// Goes there and back for all of them, so subnormals, infinities and signs are kept too.
TEST(ConvertElements, EveryFloat16AndBfloat16SurvivesARoundTripThroughFloat32) {
  for (const Dtype dtype : {Dtype::kF16, Dtype::kBf16}) {
    std::vector<std::uint16_t> bits(0x10000);
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
    std::vector<float> wide(bits.size());
    std::vector<std::uint16_t> back(bits.size());

    ASSERT_THAT(
        ConvertElements({Encoding::kPlain, dtype, Dtype::kF32}, Bytes(bits), WritableBytes(wide)),
        IsOk());
    ASSERT_THAT(
        ConvertElements({Encoding::kPlain, Dtype::kF32, dtype}, Bytes(wide), WritableBytes(back)),
        IsOk());

    const std::uint32_t magnitude_of_infinity = dtype == Dtype::kF16 ? 0x7C00 : 0x7F80;
    for (std::size_t i = 0; i < bits.size(); ++i) {
      if ((i & 0x7FFF) > magnitude_of_infinity) {
        ASSERT_GT(back[i] & 0x7FFFu, magnitude_of_infinity) << Name(dtype) << " NaN " << i;
      } else {
        ASSERT_EQ(back[i], bits[i]) << Name(dtype);
      }
    }
  }
}

TEST(ConvertElements, RoundsToNearestAndTiesToEven) {
  const std::vector<float> values = {1.0f + 0x1p-11f,   1.0f + 0x3p-11f,     0x1.8p-25f,
                                     0x1p-25f,          1.0f + 0x1.002p-11f, 65519.0f,
                                     -(1.0f + 0x1p-11f)};
  const std::vector<std::uint16_t> expected = {0x3C00, 0x3C02, 0x0001, 0x0000,
                                               0x3C01, 0x7BFF, 0xBC00};
  std::vector<std::uint16_t> got(values.size());
  ASSERT_THAT(ConvertElements({Encoding::kPlain, Dtype::kF32, Dtype::kF16}, Bytes(values),
                              WritableBytes(got)),
              IsOk());
  EXPECT_EQ(got, expected);

  const std::vector<float> wide = {1.0f + 0x1p-8f, 1.0f + 0x3p-8f, 1.0f + 0x1.02p-8f, -0.0f};
  const std::vector<std::uint16_t> expected_bf16 = {0x3F80, 0x3F82, 0x3F81, 0x8000};
  got.resize(wide.size());
  ASSERT_THAT(ConvertElements({Encoding::kPlain, Dtype::kF32, Dtype::kBf16}, Bytes(wide),
                              WritableBytes(got)),
              IsOk());
  EXPECT_EQ(got, expected_bf16);
}

TEST(ConvertElements, AFiniteValueThatWouldBecomeInfiniteIsRefused) {
  const auto convert = [](float value, Dtype to) {
    const std::vector<float> values = {1.0f, value};
    std::vector<std::uint16_t> out(2);
    return ConvertElements({Encoding::kPlain, Dtype::kF32, to}, Bytes(values), WritableBytes(out));
  };
  EXPECT_THAT(convert(65520.0f, Dtype::kF16), FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(convert(-1e6f, Dtype::kF16), FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(convert(3.4e38f, Dtype::kBf16), FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(convert(65504.0f, Dtype::kF16), IsOk());
  EXPECT_THAT(convert(std::numeric_limits<float>::infinity(), Dtype::kF16), IsOk());

  const std::vector<double> large = {1e300};
  std::vector<float> out(1);
  EXPECT_THAT(ConvertElements({Encoding::kPlain, Dtype::kF64, Dtype::kF32}, Bytes(large),
                              WritableBytes(out)),
              FailsWith(Code::kInvalidArgument));
}

TEST(ConvertElements, SizesThatDoNotMatchAndIntegersAreRefused) {
  std::vector<std::uint8_t> stored(36);
  std::vector<float> out(64);
  EXPECT_THAT(ConvertElements({Encoding::kQ4_0, Dtype::kF32, Dtype::kF32}, Bytes(stored),
                              WritableBytes(out)),
              IsOk());
  EXPECT_THAT(ConvertElements({Encoding::kQ4_0, Dtype::kF32, Dtype::kF32}, Bytes(stored).first(35),
                              WritableBytes(out)),
              FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(ConvertElements({Encoding::kPlain, Dtype::kI32, Dtype::kF32}, Bytes(stored),
                              WritableBytes(out).first(36)),
              FailsWith(Code::kInvalidArgument));
}

// Stored bytes begin anywhere (W14).
TEST(ConvertElements, StoredBytesNeedNoAlignment) {
  std::vector<std::uint8_t> stored(1 + 4 * sizeof(double));
  const std::vector<double> values = {1, -2, 3.5, 1e-3};
  std::memcpy(stored.data() + 1, values.data(), values.size() * sizeof(double));
  std::vector<float> out(values.size());

  ASSERT_THAT(ConvertElements({Encoding::kPlain, Dtype::kF64, Dtype::kF32},
                              Bytes(stored).subspan(1), WritableBytes(out)),
              IsOk());

  EXPECT_EQ(out, (std::vector<float>{1, -2, 3.5f, 1e-3f}));
}

// W28: on indices, with a row's number as its content.
TEST(ConvertRows, InterleavedRowsLandWhereTheyBelongWhicheverPieceTheyComeIn) {
  PlannedTensor tensor;
  tensor.shape = {12, 2};  // two heads of six rows
  tensor.size_bytes = tensor.stored_bytes = 12 * 2 * sizeof(float);
  tensor.interleaved_head_count = 2;
  std::vector<float> stored;
  for (const float head : {0.0f, 6.0f}) {
    for (const float row : {0.0f, 3.0f, 1.0f, 4.0f, 2.0f, 5.0f}) {  // halves alternate
      stored.insert(stored.end(), {head + row, head + row});
    }
  }
  for (const std::uint64_t piece : {1u, 5u, 12u}) {
    std::vector<float> out(stored.size(), -1.0f);

    for (std::uint64_t begin = 0; begin < 12; begin += piece) {
      const std::uint64_t end = std::min<std::uint64_t>(begin + piece, 12);
      ASSERT_THAT(
          ConvertRows(tensor, begin, end, Bytes(stored).subspan(8 * begin, 8 * (end - begin)),
                      WritableBytes(out)),
          IsOk());
    }

    for (std::size_t row = 0; row < 12; ++row) {
      EXPECT_EQ(out[2 * row], static_cast<float>(row)) << "pieces of " << piece;
      EXPECT_EQ(out[2 * row + 1], static_cast<float>(row)) << "pieces of " << piece;
    }
  }
}

TEST(ConvertRows, AnInterleavedBiasIsPutInOrderByElement) {
  PlannedTensor tensor;
  tensor.shape = {8};
  tensor.size_bytes = tensor.stored_bytes = 8 * sizeof(float);
  tensor.interleaved_head_count = 2;
  const std::vector<float> stored = {0, 2, 1, 3, 4, 6, 5, 7};
  std::vector<float> out(8);

  ASSERT_THAT(ConvertRows(tensor, 0, 1, Bytes(stored), WritableBytes(out)), IsOk());

  EXPECT_EQ(out, (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(ConvertRows, RangesAndSizesThatDoNotFitAreErrors) {
  PlannedTensor tensor;
  tensor.name = "t";
  tensor.shape = {4, 2};
  tensor.size_bytes = tensor.stored_bytes = 32;
  std::vector<std::uint8_t> bytes(32);
  std::vector<float> out(8);
  EXPECT_THAT(ConvertRows(tensor, 3, 5, Bytes(bytes).first(16), WritableBytes(out)),
              FailsWith(Code::kInternal));
  EXPECT_THAT(ConvertRows(tensor, 0, 2, Bytes(bytes).first(15), WritableBytes(out)),
              FailsWith(Code::kInternal));
  EXPECT_THAT(ConvertRows(tensor, 0, 4, Bytes(bytes), WritableBytes(out).first(28)),
              FailsWith(Code::kInternal));
  EXPECT_THAT(ConvertRows(tensor, 2, 2, {}, WritableBytes(out)), IsOk());
}

}  // namespace
}  // namespace sticky::weights
