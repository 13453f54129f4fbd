// A row of a product is the same bits, whatever other rows and however many threads there are, and
// close to the product in double precision.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/module.h"
#include "tests/testing/matchers.h"

namespace sticky::engine {
namespace {

using sticky::testing::IsOk;

constexpr int kRowsMax = 400;  // more than one call of the library gets

std::size_t Count(int rows, int columns) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
}

struct Case {
  const char* name;
  Dtype dtype;
  RowPath path;
  Inputs inputs;
  double tolerance;  // relative L2
};

// Weights are exact in every dtype here (few bits), so only the arithmetic can differ.
class CpuMatMul : public ::testing::TestWithParam<Case> {
 protected:
  void Fill(int outs, int depth) {
    std::mt19937 random(7);
    std::uniform_int_distribution<int> steps(-64, 64);
    std::normal_distribution<float> normal;
    matrix_ = {nullptr, GetParam().dtype, outs, depth};
    values_.resize(Count(outs, depth));
    x_.resize(Count(kRowsMax, depth));
    for (float& value : values_) value = static_cast<float>(steps(random)) / 64;
    for (float& value : x_) value = normal(random);
    const std::size_t size = SizeBytes(GetParam().dtype);
    stored_.resize(values_.size() * size);
    for (std::size_t i = 0; i < values_.size(); ++i) Store(values_[i], stored_.data() + i * size);
    matrix_.data = stored_.data();
  }
  static void Store(float value, std::uint8_t* to) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    auto half = static_cast<std::uint16_t>(bits >> 16);
    if (GetParam().dtype == Dtype::kF32) return void(std::memcpy(to, &value, sizeof value));
    if (GetParam().dtype == Dtype::kF16 && value != 0) {  // all values here are normal in binary16
      half = static_cast<std::uint16_t>((bits >> 16 & 0x8000u) |
                                        ((bits >> 13 & 0x3ffffu) - (112u << 10)));
    }
    std::memcpy(to, &half, sizeof half);
  }
  std::vector<float> Multiply(int threads, int row_begin, int row_count) {
    ModuleOptions options;
    options.thread_count = threads;
    options.directory = STICKY_BUILD_DIR "/lib/stickyinvoc";
    const std::unique_ptr<Ops> ops = OpenModule("cpu", options).value();
    std::vector<float> y(Count(row_count, matrix_.rows));
    EXPECT_THAT(ops->MatMul(x_.data() + Count(row_begin, matrix_.columns), row_count, matrix_,
                            /*bias=*/nullptr, y.data(), GetParam().path, GetParam().inputs),
                IsOk());
    return y;
  }
  double DistanceFromDoubles(const std::vector<float>& y, int row_count) const {
    double difference = 0;
    double size = 0;
    for (int r = 0; r < row_count; ++r) {
      for (int o = 0; o < matrix_.rows; ++o) {
        double sum = 0;
        for (int k = 0; k < matrix_.columns; ++k) {
          sum += static_cast<double>(x_[Count(r, matrix_.columns) + static_cast<std::size_t>(k)]) *
                 values_[Count(o, matrix_.columns) + static_cast<std::size_t>(k)];
        }
        const double got = y[Count(r, matrix_.rows) + static_cast<std::size_t>(o)];
        difference += (got - sum) * (got - sum);
        size += sum * sum;
      }
    }
    return std::sqrt(difference / size);
  }

  WeightMatrix matrix_;
  std::vector<float> values_, x_;
  std::vector<std::uint8_t> stored_;
};

TEST_P(CpuMatMul, IsCloseToTheProductInDoubles) {
  Fill(/*outs=*/67, /*depth=*/131);  // no multiple of any vector or tile
  EXPECT_LE(DistanceFromDoubles(Multiply(/*threads=*/2, 0, 2 * kRowBlock), 2 * kRowBlock),
            GetParam().tolerance);
}

TEST_P(CpuMatMul, ARowIsTheSameBitsInAnyCompanyAndWithAnyThreads) {
  for (const auto& [outs, depth] : {std::pair{96, 96}, std::pair{32, 160}, std::pair{576, 576}}) {
    Fill(outs, depth);
    const std::vector<float> alone = Multiply(/*threads=*/1, 0, kRowBlock);
    for (const int threads : {1, 2, 3, 16}) {
      for (const int rows : {kRowBlock, 2 * kRowBlock, 5 * kRowBlock, 16 * kRowBlock}) {
        SCOPED_TRACE(std::to_string(outs) + " x " + std::to_string(depth) + ", threads " +
                     std::to_string(threads) + ", rows " + std::to_string(rows));
        const std::vector<float> first = Multiply(threads, 0, rows);
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), first.begin()));
        // The same rows at the end of a batch, where the library may take another kernel.
        const int shift = rows - kRowBlock;
        const std::vector<float> last = Multiply(threads, shift, kRowBlock);
        EXPECT_TRUE(std::equal(last.begin(), last.end(),
                               first.begin() + static_cast<std::ptrdiff_t>(Count(shift, outs))));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, CpuMatMul,
    ::testing::Values(
        Case{"f32", Dtype::kF32, RowPath::kBlocked, Inputs::kAsTheyAre, 1e-6},
        Case{"f16", Dtype::kF16, RowPath::kBlocked, Inputs::kAsTheyAre, 1e-6},
        Case{"bf16", Dtype::kBf16, RowPath::kBlocked, Inputs::kAsTheyAre, 2e-5},
        Case{"bf16_rounded", Dtype::kBf16, RowPath::kBlocked, Inputs::kMayBeRounded, 3e-3},
        Case{"f32_single", Dtype::kF32, RowPath::kSingle, Inputs::kAsTheyAre, 1e-6},
        Case{"f16_single", Dtype::kF16, RowPath::kSingle, Inputs::kAsTheyAre, 1e-6},
        Case{"bf16_single", Dtype::kBf16, RowPath::kSingle, Inputs::kAsTheyAre, 1e-6}),
    [](const auto& each) { return std::string(each.param.name); });

// Padding fills a batch up to whole blocks. Case N02.
TEST(CpuAttention, RowsOfNoSequenceAreLeftAloneAndALoneTokenSeesItself) {
  ModuleOptions options;
  options.directory = STICKY_BUILD_DIR "/lib/stickyinvoc";
  const std::unique_ptr<Ops> ops = OpenModule("cpu", options).value();
  constexpr int kDim = 8;
  const std::vector<float> queries(3 * kDim, 1.5f);
  const std::vector<float> keys(kDim, -2.0f);
  std::vector<float> values(kDim);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + 0.5f;
  std::vector<float> y(3 * kDim, 7.0f);

  const KvSegment segment{keys.data(), values.data(), /*position_count=*/1};
  const AttentionChunk lone{/*row_begin=*/1, /*row_count=*/1, /*position_begin=*/0,
                            std::span(&segment, 1)};
  const AttentionShape shape{1, 1, kDim, 0.5f};
  ASSERT_THAT(ops->Attention(queries.data(), std::span(&lone, 1), shape, y.data()), IsOk());

  EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + kDim), std::vector<float>(kDim, 7.0f));
  EXPECT_EQ(std::vector<float>(y.begin() + kDim, y.begin() + 2 * kDim), values);
  EXPECT_EQ(std::vector<float>(y.begin() + 2 * kDim, y.end()), std::vector<float>(kDim, 7.0f));
}

}  // namespace
}  // namespace sticky::engine
