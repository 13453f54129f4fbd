// Frequencies are scaled band by band, the same seed samples the same tokens, and a model whose
// numbers are not numbers says so.

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/model.h"
#include "engine/module.h"
#include "engine/rope.h"
#include "engine/sampler.h"
#include "tests/testing/matchers.h"

namespace sticky::engine {
namespace {

using sticky::testing::FailsWith;
using sticky::testing::IsOk;

TEST(InverseFrequencies, Llama3StretchesLongWavesAndBlendsTheMiddle) {
  weights::RopeConfig rope;
  rope.kind = weights::RopeKind::kLlama3;
  rope.theta = 5e5;
  rope.factor = 32;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  rope.original_context = 8192;
  const std::vector<float> scaled = InverseFrequencies(rope, 64);
  ASSERT_EQ(scaled.size(), 32u);
  for (int i = 0; i < 32; ++i) {
    const double plain = std::pow(5e5, -2.0 * i / 64);
    const double ratio = scaled[static_cast<std::size_t>(i)] / plain;
    if (i <= 14) {
      EXPECT_NEAR(ratio, 1, 1e-6) << i;
    } else if (i >= 18) {
      EXPECT_NEAR(ratio, 1.0 / 32, 1e-6) << i;
    } else {
      EXPECT_GT(ratio, 1.0 / 32) << i;
      EXPECT_LT(ratio, 1) << i;
    }
  }
}

TEST(Sampler, GreedyTakesTheLowestOfEqualTokens) {
  const std::vector<float> logits = {1, 3, 3, 2};
  EXPECT_EQ(Sampler::Create({}).value().Next(logits), 1);
  SamplerOptions one;
  one.temperature = 1;
  one.top_k = 1;
  EXPECT_EQ(Sampler::Create(one).value().Next(logits), 1);
}

TEST(Sampler, TheSameSeedGivesTheSameTokens) {
  SamplerOptions options;
  options.temperature = 1;
  options.seed = 42;
  Sampler first = Sampler::Create(options).value();
  Sampler second = Sampler::Create(options).value();
  const std::vector<float> logits = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f};
  std::vector<int> counts(logits.size());
  for (int i = 0; i < 1000; ++i) {
    const std::int32_t token = first.Next(logits);
    ASSERT_EQ(token, second.Next(logits));
    ++counts[static_cast<std::size_t>(token)];
  }
  for (const int count : counts) EXPECT_GT(count, 100);
}

TEST(Sampler, TopPAndTopKKeepTheBestOnly) {
  const std::vector<float> logits = {0, 10, 9, 0};
  SamplerOptions options;
  options.temperature = 1;
  options.top_p = 0.5;
  Sampler narrow = Sampler::Create(options).value();
  options.top_p = 1;
  options.top_k = 2;
  Sampler two = Sampler::Create(options).value();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(narrow.Next(logits), 1);
    const std::int32_t token = two.Next(logits);
    EXPECT_TRUE(token == 1 || token == 2);
  }
}

TEST(Sampler, OptionsOutOfRangeAreRefusedByName) {
  for (const SamplerOptions& bad :
       {SamplerOptions{.temperature = -1}, SamplerOptions{.top_p = 0}, SamplerOptions{.top_p = 2},
        SamplerOptions{.top_k = -1},
        SamplerOptions{.temperature = std::numeric_limits<double>::quiet_NaN()}}) {
    EXPECT_THAT(Sampler::Create(bad), FailsWith(Code::kInvalidArgument));
  }
}

TEST(LogProbability, OfEqualLogitsIsTheLogarithmOfTheirNumber) {
  const std::vector<float> logits(8, 1000.0f);
  EXPECT_NEAR(LogProbability(logits, 3), -std::log(8), 1e-12);
}

// A model of one layer with all weights equal, in aligned memory.
class TinyWeights : public WeightSource {
 public:
  explicit TinyWeights(float value) {
    const std::string layer = "model.layers.0.";
    Add("model.embed_tokens.weight", {16, 8}, value);
    Add("model.norm.weight", {8}, 1);
    Add(layer + "input_layernorm.weight", {8}, 1);
    Add(layer + "post_attention_layernorm.weight", {8}, 1);
    for (const char* name : {"q", "k", "v", "o"}) {
      Add(layer + "self_attn." + name + "_proj.weight", {8, 8}, value);
    }
    for (const char* name : {"gate", "up", "down"}) {
      Add(layer + "mlp." + name + "_proj.weight", {8, 8}, value);
    }
  }
  std::optional<TensorView> Find(std::string_view name) const override {
    const auto found = tensors_.find(std::string(name));
    if (found == tensors_.end()) return std::nullopt;
    return TensorView{found->second.values.data(), Dtype::kF32, found->second.shape};
  }
  std::vector<std::string_view> Names() const override {
    std::vector<std::string_view> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    return names;
  }
  void Add(const std::string& name, std::vector<std::int64_t> shape, float value) {
    std::size_t count = 1;
    for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
    tensors_[name] = {std::vector<float>(count, value), std::move(shape)};
  }
  void Remove(const std::string& name) { tensors_.erase(name); }

 private:
  struct Tensor {
    std::vector<float> values;
    std::vector<std::int64_t> shape;
  };
  std::map<std::string, Tensor> tensors_;
};

class ModelNumbers : public ::testing::Test {
 protected:
  ModelNumbers() {
    config_.vocab_size = 16;
    config_.hidden_size = config_.intermediate_size = 8;
    config_.layer_count = 1;
    config_.head_count = config_.kv_head_count = 2;
    config_.head_dim = 4;
    config_.context_length = 32;
    config_.tied_output = true;
    ModuleOptions options;
    options.directory = STICKY_BUILD_DIR "/lib/stickyinvoc";
    ops_ = OpenModule("cpu", options).value();
  }
  Status Run(Model& model, const std::vector<std::int32_t>& tokens) {
    const Chunk chunk{model.AddSequence(32).value(), tokens, 0};
    return model.Forward(std::span(&chunk, 1), [](auto, auto, auto) { return Status(Ok{}); });
  }
  weights::ModelConfig config_;
  std::unique_ptr<Ops> ops_;
};

TEST_F(ModelNumbers, AWeightThatIsNotANumberIsAnErrorAndNotATokenId) {
  const TinyWeights good(0.1f);
  Model model = Model::Open(config_, good, *ops_).value();
  EXPECT_THAT(Run(model, {1, 2, 3}), IsOk());

  const TinyWeights bad(std::numeric_limits<float>::quiet_NaN());
  Model broken = Model::Open(config_, bad, *ops_).value();
  EXPECT_THAT(Run(broken, {1, 2, 3}), FailsWith(Code::kCorrupt));
}

TEST_F(ModelNumbers, MissingSuperfluousAndMisshapenTensorsAreNamed) {
  TinyWeights missing(0.1f);
  missing.Remove("model.norm.weight");
  EXPECT_THAT(Model::Open(config_, missing, *ops_), FailsWith(Code::kCorrupt));
  TinyWeights superfluous(0.1f);
  superfluous.Add("model.layers.1.mlp.up_proj.weight", {8, 8}, 0);
  EXPECT_THAT(Model::Open(config_, superfluous, *ops_), FailsWith(Code::kCorrupt));
  TinyWeights misshapen(0.1f);
  misshapen.Add("model.norm.weight", {9}, 0);
  const auto opened = Model::Open(config_, misshapen, *ops_);
  ASSERT_THAT(opened, FailsWith(Code::kCorrupt));
  EXPECT_NE(opened.error().message.find("want [8], found [9]"), std::string::npos);
}

TEST_F(ModelNumbers, WhatDoesNotFitIsRefusedWithBothNumbersAndNothingGrows) {
  const TinyWeights weights(0.1f);
  Model model = Model::Open(config_, weights, *ops_).value();
  EXPECT_THAT(model.AddSequence(33), FailsWith(Code::kInvalidArgument));
  const SequenceId sequence = model.AddSequence(2).value();
  const std::vector<std::int32_t> three = {1, 2, 3};
  const std::vector<std::int32_t> unknown = {16};
  const auto ignore = [](auto, auto, auto) { return Status(Ok{}); };
  for (const auto& tokens : {three, unknown}) {
    const Chunk chunk{sequence, tokens, 0};
    EXPECT_THAT(model.Forward(std::span(&chunk, 1), ignore), FailsWith(Code::kInvalidArgument));
  }
  EXPECT_EQ(model.Length(sequence), 0);
}

}  // namespace
}  // namespace sticky::engine
