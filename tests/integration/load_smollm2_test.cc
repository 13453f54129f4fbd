// The real SmolLM2-135M-Instruct: resolved, planned and loaded from its GGUF file.

#include <algorithm>
#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "daemon/load/fd_byte_source.h"
#include "daemon/load/load_model.h"
#include "tests/testing/data_dir.h"
#include "tests/testing/matchers.h"
#include "weights/files/resolve.h"
#include "weights/llama_tensors.h"
#include "weights/load_plan.h"
#include "weights/model_config.h"
#include "weights/vocabulary.h"

namespace sticky::load {
namespace {

using sticky::testing::IsOk;

class SmolLm2 : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto path = sticky::testing::SmolLm2Path();
    ASSERT_TRUE(std::filesystem::exists(path))
        << path << " is not there: tools/check fetches it, or set STICKY_SMOLLM2_GGUF";
    auto files = weights::ResolveModel(path.string());
    ASSERT_THAT(files, IsOk());
    for (weights::OpenFile& file : files.value()) {
      sources_.push_back(std::make_unique<FdByteSource>(std::move(file.fd), file.name));
      files_.push_back({file.name, file.size_bytes, sources_.back().get()});
    }
  }

  std::string Asset(const weights::LoadPlan& plan, std::string_view name) const {
    for (const auto& asset : plan.assets) {
      if (asset.name == name) return {asset.bytes.begin(), asset.bytes.end()};
    }
    return "";
  }

  std::vector<std::unique_ptr<FdByteSource>> sources_;
  std::vector<weights::SourceFile> files_;
};

TEST_F(SmolLm2, IsPlannedAsTheCanonicalLlama) {
  const auto plan = weights::PlanLoad(files_, {.dtype = DtypeChoice::kBf16});

  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(plan.value().notes, ::testing::IsEmpty());
  const auto config = weights::ParseModelConfig(Asset(plan.value(), "config.json"), "");
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config.value().vocab_size, 49152);
  EXPECT_EQ(config.value().hidden_size, 576);
  EXPECT_EQ(config.value().layer_count, 30);
  EXPECT_EQ(config.value().head_count, 9);
  EXPECT_EQ(config.value().kv_head_count, 3);
  EXPECT_EQ(config.value().head_dim, 64);
  EXPECT_EQ(config.value().intermediate_size, 1536);
  EXPECT_EQ(config.value().context_length, 8192);
  EXPECT_EQ(config.value().norm_epsilon, 1e-5);
  EXPECT_EQ(config.value().rope.theta, 100000.0);
  EXPECT_TRUE(config.value().tied_output);
  EXPECT_THAT(config.value().stop_tokens, ::testing::ElementsAre(2));

  std::vector<std::string> expected = {std::string(weights::kHeadName)};
  for (const auto& tensor : weights::ExpectedLlamaTensors(config.value())) {
    expected.push_back(tensor.name);
  }
  std::vector<std::string> names;
  for (const auto& tensor : plan.value().tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, ::testing::UnorderedElementsAreArray(expected));
  EXPECT_EQ(names.size(), 273u);
}

TEST_F(SmolLm2, BringsItsChatTemplateAndItsVocabulary) {
  const auto plan = weights::PlanLoad(files_, {.dtype = DtypeChoice::kBf16});
  ASSERT_THAT(plan, IsOk());

  EXPECT_NE(Asset(plan.value(), "chat_template").find("<|im_start|>"), std::string::npos);
  const std::string bytes = Asset(plan.value(), "vocabulary");
  const std::vector<std::uint64_t> aligned((bytes.size() + 7) / 8);
  std::vector<std::uint64_t> copy = aligned;
  std::memcpy(copy.data(), bytes.data(), bytes.size());
  const auto vocabulary =
      weights::Vocabulary::Open({reinterpret_cast<const std::uint8_t*>(copy.data()), bytes.size()});
  ASSERT_THAT(vocabulary, IsOk());
  EXPECT_EQ(vocabulary.value().token_count(), 49152u);
  EXPECT_EQ(vocabulary.value().token_bytes(504), "The");
  EXPECT_EQ(vocabulary.value().token_bytes(3575), " capital");
}

TEST_F(SmolLm2, IsLoadedToFiniteNumbersWithTheSameDigestEachTime) {
  const auto plan = weights::PlanLoad(files_, {.dtype = DtypeChoice::kF32});
  ASSERT_THAT(plan, IsOk());
  std::vector<std::uint8_t> arena(plan.value().arena_bytes);

  const auto first = FillArena(plan.value(), files_, arena, {.thread_count = 2, .progress = {}});
  ASSERT_THAT(first, IsOk());

  EXPECT_EQ(ToHex(first.value().content_digest), ToHex(DigestArena(arena, 2)));
  for (const auto& tensor : plan.value().tensors) {
    std::vector<float> values(tensor.size_bytes / sizeof(float));
    std::memcpy(values.data(), arena.data() + tensor.offset, tensor.size_bytes);
    EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); }))
        << tensor.name;
    EXPECT_TRUE(std::any_of(values.begin(), values.end(), [](float v) { return v != 0; }))
        << tensor.name;
  }
}

}  // namespace
}  // namespace sticky::load
