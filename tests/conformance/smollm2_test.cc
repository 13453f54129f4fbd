// The real SmolLM2-135M-Instruct computes what transformers computes on the same weights.

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/sampler.h"
#include "tests/testing/golden_model.h"
#include "tests/testing/matchers.h"
#include "tools/sticky-llm/verify.h"

namespace sticky {
namespace {

using engine::LogProbability;
using engine::SequenceId;
using nlohmann::json;
using sticky::testing::OpenedModel;
using sticky::testing::Rows;
using sticky::testing::RunChunk;

constexpr double kLogProbabilityTolerance = 2e-3;  // the reference is printed to five digits
constexpr float kSureMargin = 0.05f;

class SmolLm2 : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto path = sticky::testing::SmolLm2Path();
    ASSERT_TRUE(std::filesystem::exists(path)) << path << " is missing: run tools/dev/fetch_model";
    opened_ = new OpenedModel(OpenedModel::Open(path, DtypeChoice::kF32));
    reference_ = json::parse(
        sticky::testing::ReadFile(sticky::testing::GoldenDir() / "smollm2" / "reference.json"));
  }
  static void TearDownTestSuite() { delete opened_; }

  static engine::Model& model() { return opened_->model; }
  static OpenedModel* opened_;
  static json reference_;
};
OpenedModel* SmolLm2::opened_ = nullptr;
json SmolLm2::reference_;

TEST_F(SmolLm2, TheTenBestNextTokensAgree) {
  for (const json& row : reference_.at("rows")) {
    SCOPED_TRACE(row.at("text"));
    const std::vector<std::int32_t> ids = row.at("ids");
    const SequenceId sequence = model().AddSequence(static_cast<int>(ids.size())).value();
    const Rows rows = RunChunk(model(), sequence, ids, ids.size() - 1);
    model().DropSequence(sequence);
    for (std::size_t i = 0; i < row.at("top_ids").size(); ++i) {
      EXPECT_NEAR(LogProbability(rows.at(0), row.at("top_ids")[i]), row.at("top_logprobs")[i],
                  kLogProbabilityTolerance)
          << "rank " << i;
    }
    const auto best = std::max_element(rows[0].begin(), rows[0].end()) - rows[0].begin();
    EXPECT_EQ(best, row.at("top_ids")[0]);
  }
}

TEST_F(SmolLm2, ThePromptsLogProbabilityAgrees) {
  for (const json& row : reference_.at("rows")) {
    SCOPED_TRACE(row.at("text"));
    const std::vector<std::int32_t> ids = row.at("ids");
    const SequenceId sequence = model().AddSequence(static_cast<int>(ids.size())).value();
    double sum = 0;
    const engine::Chunk chunk{sequence, ids, 0};
    const Status done =
        model().Forward(std::span(&chunk, 1), [&](std::size_t, std::size_t token, auto logits) {
          if (token + 1 < ids.size()) sum += LogProbability(logits, ids[token + 1]);
          return Status(Ok{});
        });
    model().DropSequence(sequence);
    ASSERT_THAT(done, sticky::testing::IsOk());
    EXPECT_NEAR(sum, row.at("prompt_logprob_sum"), 1e-4 * static_cast<double>(ids.size()) + 0.01);
  }
}

TEST_F(SmolLm2, TheGreedyTokensAgree) {
  for (const json& row : reference_.at("rows")) {
    SCOPED_TRACE(row.at("text"));
    const std::vector<std::int32_t> ids = row.at("ids");
    const std::vector<std::int32_t> greedy = row.at("greedy_ids");
    const std::vector<float> margins = row.at("greedy_margin");
    const SequenceId sequence =
        model().AddSequence(static_cast<int>(ids.size() + greedy.size())).value();
    Rows rows = RunChunk(model(), sequence, ids, ids.size() - 1);
    for (std::size_t step = 0; step < greedy.size(); ++step) {
      const auto best = std::max_element(rows.at(0).begin(), rows[0].end()) - rows[0].begin();
      if (margins[step] > kSureMargin) {
        EXPECT_EQ(best, greedy[step]) << step;
      }
      rows = RunChunk(model(), sequence, std::span(&greedy[step], 1), 0);
    }
    model().DropSequence(sequence);
  }
}

TEST_F(SmolLm2, EveryLabelsScoreAgrees) {
  int checked = 0;
  for (const json& row : reference_.at("rows")) {
    if (row.at("kind") != "verify") continue;
    const std::vector<std::int32_t> ids = row.at("ids");
    for (const auto& [label, score] : row.at("label_scores").items()) {
      SCOPED_TRACE(label);
      std::vector<std::int32_t> whole = ids;
      const std::vector<std::int32_t> label_ids = score.at("ids");
      whole.insert(whole.end(), label_ids.begin(), label_ids.end());
      const SequenceId sequence = model().AddSequence(static_cast<int>(whole.size())).value();
      const Rows rows = RunChunk(model(), sequence, whole, ids.size() - 1);
      model().DropSequence(sequence);
      double sum = 0;
      for (std::size_t i = 0; i < label_ids.size(); ++i) {
        sum += LogProbability(rows.at(i), label_ids[i]);
      }
      EXPECT_NEAR(sum, score.at("logprob_sum"), kLogProbabilityTolerance);
      ++checked;
    }
  }
  EXPECT_GE(checked, 3);
}

}  // namespace
}  // namespace sticky
