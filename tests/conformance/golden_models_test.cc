// The engine computes what transformers computes: every golden model of a family that we support,
// stored in each dtype, alone and in batches.

#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "tests/testing/golden_model.h"
#include "tests/testing/matchers.h"
#include "tests/testing/reference_tensors.h"

namespace sticky {
namespace {

using engine::SequenceId;
using sticky::testing::GoldenDir;
using sticky::testing::Joined;
using sticky::testing::OpenedModel;
using sticky::testing::ReadFile;
using sticky::testing::ReferenceTensors;
using sticky::testing::RelativeL2;
using sticky::testing::Rows;
using sticky::testing::RunChunk;

constexpr double kFloat32Tolerance = 1e-4;  // of the reference's README
constexpr double kRoundedTolerance = 2e-2;
constexpr float kSureMargin = 0.3f;

std::vector<std::string> LlamaModels() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenDir() / "models")) {
    const auto config = nlohmann::json::parse(ReadFile(entry.path() / "config.json"));
    if (config.at("model_type") == "llama") names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class GoldenModel : public ::testing::TestWithParam<std::tuple<std::string, DtypeChoice>> {
 protected:
  GoldenModel()
      : folder_(GoldenDir() / "models" / std::get<0>(GetParam())),
        reference_(folder_ / "reference.safetensors"),
        opened_(OpenedModel::Open(folder_, std::get<1>(GetParam()))) {}

  bool exact() const { return std::get<1>(GetParam()) == DtypeChoice::kF32; }
  double tolerance() const { return exact() ? kFloat32Tolerance : kRoundedTolerance; }
  Rows RunAlone(const std::vector<std::int32_t>& ids, std::size_t from) {
    const SequenceId sequence = opened_.model.AddSequence(static_cast<int>(ids.size())).value();
    Rows rows = RunChunk(opened_.model, sequence, ids, from);
    opened_.model.DropSequence(sequence);
    return rows;
  }

  std::filesystem::path folder_;
  ReferenceTensors reference_;
  OpenedModel opened_;
};

TEST_P(GoldenModel, LogitsAgreeAtEveryPosition) {
  for (const std::string prompt : {"short", "long"}) {
    SCOPED_TRACE(prompt);
    const Rows rows = RunAlone(reference_.Ints(prompt + ".input_ids"), 0);
    EXPECT_LE(RelativeL2(Joined(rows), reference_.Floats(prompt + ".logits")), tolerance());
  }
}

TEST_P(GoldenModel, TokensOneByOneAgreeWithTheWholePrompt) {
  const std::vector<std::int32_t> ids = reference_.Ints("long.input_ids");
  const SequenceId sequence = opened_.model.AddSequence(static_cast<int>(ids.size())).value();
  Rows rows;
  for (const std::int32_t& id : ids) {
    rows.push_back(RunChunk(opened_.model, sequence, std::span(&id, 1), 0).at(0));
  }
  EXPECT_LE(RelativeL2(Joined(rows), reference_.Floats("long.logits")), tolerance());
}

TEST_P(GoldenModel, GreedyContinuationAgreesWhereTheMarginIsClear) {
  for (const std::string prompt : {"short", "long"}) {
    SCOPED_TRACE(prompt);
    const std::vector<std::int32_t> ids = reference_.Ints(prompt + ".input_ids");
    const std::vector<std::int32_t> greedy = reference_.Ints(prompt + ".greedy_ids");
    const std::vector<float> margins = reference_.Floats(prompt + ".greedy_margin");
    const SequenceId sequence =
        opened_.model.AddSequence(static_cast<int>(ids.size() + greedy.size())).value();
    Rows rows = RunChunk(opened_.model, sequence, ids, ids.size() - 1);
    for (std::size_t step = 0; step < greedy.size(); ++step) {
      const auto best = std::max_element(rows[0].begin(), rows[0].end()) - rows[0].begin();
      if (exact() || margins[step] > kSureMargin) {
        EXPECT_EQ(best, greedy[step]) << "step " << step << ", margin " << margins[step];
      }
      rows = RunChunk(opened_.model, sequence, std::span(&greedy[step], 1),
                      0);  // the reference's path
    }
  }
}

TEST_P(GoldenModel, ABatchIsBitForBitWhatEachSequenceIsAlone) {
  std::vector<std::vector<std::int32_t>> prompts;
  std::vector<Rows> alone;
  for (int i = 0; i < 4; ++i) {
    prompts.push_back(reference_.Ints("batch" + std::to_string(i) + ".input_ids"));
    alone.push_back(RunAlone(prompts.back(), prompts.back().size() - 1));
  }
  std::vector<engine::Chunk> chunks;
  for (const auto& prompt : prompts) {
    chunks.push_back({opened_.model.AddSequence(static_cast<int>(prompt.size())).value(), prompt,
                      prompt.size() - 1});
  }
  int seen = 0;
  const Status done =
      opened_.model.Forward(chunks, [&](std::size_t chunk, std::size_t, auto logits) {
        ++seen;
        EXPECT_EQ(std::vector<float>(logits.begin(), logits.end()), alone[chunk][0]) << chunk;
        const auto reference = reference_.Floats("batch" + std::to_string(chunk) + ".last_logits");
        EXPECT_LE(RelativeL2(logits, reference), tolerance()) << chunk;
        return Status(Ok{});
      });
  EXPECT_THAT(done, sticky::testing::IsOk());
  EXPECT_EQ(seen, 4);
}

TEST_P(GoldenModel, AForkedSequenceGoesOnAsTheOneItCameFrom) {
  const std::vector<std::int32_t> ids = reference_.Ints("long.input_ids");
  const std::size_t half = ids.size() / 2;
  const std::span all(ids);
  const SequenceId whole = opened_.model.AddSequence(static_cast<int>(ids.size())).value();
  RunChunk(opened_.model, whole, all.first(half), half);
  const SequenceId fork =
      opened_.model.ForkSequence(whole, /*length=*/-1, static_cast<int>(ids.size())).value();

  const Rows of_whole = RunChunk(opened_.model, whole, all.subspan(half), 0);
  opened_.model.DropSequence(whole);
  EXPECT_EQ(RunChunk(opened_.model, fork, all.subspan(half), 0), of_whole);
}

TEST_P(GoldenModel, AForkOfAForkSharesTheCacheAndGivesItBack) {
  const std::vector<std::int32_t> ids = reference_.Ints("long.input_ids");
  const std::size_t third = ids.size() / 3;
  const int capacity = static_cast<int>(ids.size());
  const std::span all(ids);
  engine::Model& model = opened_.model;
  const SequenceId whole = model.AddSequence(capacity).value();
  RunChunk(model, whole, all.first(third), third);
  const std::uint64_t of_one = model.kv_cache_bytes();
  const SequenceId fork = model.ForkSequence(whole, /*length=*/-1, capacity).value();
  EXPECT_LT(model.kv_cache_bytes(), 2 * of_one) << "the beginning is not kept twice";
  RunChunk(model, fork, all.subspan(third, third), third);
  const SequenceId second = model.ForkSequence(fork, /*length=*/-1, capacity).value();
  const SequenceId early = model.ForkSequence(fork, static_cast<int>(third) - 1, capacity).value();
  RunChunk(model, whole, all.subspan(third, third), third);

  const Rows of_whole = RunChunk(model, whole, all.subspan(2 * third), 0);
  model.DropSequence(whole);
  model.DropSequence(fork);
  const Rows of_second = RunChunk(model, second, all.subspan(2 * third), 0);
  RunChunk(model, early, all.subspan(third - 1, third + 1), third + 1);
  const Rows of_early = RunChunk(model, early, all.subspan(2 * third), 0);

  EXPECT_EQ(of_second, of_whole);
  EXPECT_EQ(of_early, of_whole);
  EXPECT_EQ(model.ForkSequence(second, /*length=*/-1, capacity).error().code,
            Code::kInvalidArgument)
      << "there is no room for one more token";
  model.DropSequence(second);
  model.DropSequence(early);
  EXPECT_EQ(model.kv_cache_bytes(), 0U);
}

std::string TestName(const ::testing::TestParamInfo<GoldenModel::ParamType>& info) {
  std::string name = std::get<0>(info.param) + "_" + Name(std::get<1>(info.param));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenModel,
                         ::testing::Combine(::testing::ValuesIn(LlamaModels()),
                                            ::testing::Values(DtypeChoice::kF32, DtypeChoice::kBf16,
                                                              DtypeChoice::kF16)),
                         TestName);

TEST(GoldenModels, ThereAreSomeOfTheLlamaFamily) { EXPECT_GE(LlamaModels().size(), 1u); }

}  // namespace
}  // namespace sticky
