// A model of tests/data/golden (or the real one), loaded privately and opened by the real engine.

#ifndef STICKY_TESTS_TESTING_GOLDEN_MODEL_H_
#define STICKY_TESTS_TESTING_GOLDEN_MODEL_H_

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/model.h"
#include "engine/module.h"
#include "tests/testing/data_dir.h"
#include "tools/sticky-llm/model_source.h"
#include "weights/model_config.h"

namespace sticky::testing {

// One Ops for the whole test program: a module stays loaded anyway.
inline engine::Ops& TestOps() {
  static const std::unique_ptr<engine::Ops> ops = [] {
    engine::ModuleOptions options;
    options.directory = STICKY_BUILD_DIR "/lib/stickyinvoc";
    return engine::OpenModule("cpu", options).value();
  }();
  return *ops;
}

inline std::string AssetText(const llm::ModelSource& source, const char* name) {
  const auto bytes = source.FindAsset(name);
  return bytes ? std::string(bytes->begin(), bytes->end()) : std::string();
}

struct OpenedModel {
  std::unique_ptr<llm::ModelSource> source;
  engine::Model model;

  static OpenedModel Open(const std::filesystem::path& path, DtypeChoice dtype) {
    auto source = llm::LoadPrivately({.path = path.string(), .dtype = dtype}).value();
    const weights::ModelConfig config =
        weights::ParseModelConfig(AssetText(*source, "config.json"),
                                  AssetText(*source, "generation_config.json"))
            .value();
    engine::Model model = engine::Model::Open(config, *source, TestOps()).value();
    return {std::move(source), std::move(model)};
  }
};

using Rows = std::vector<std::vector<float>>;

// Logits of `tokens`, from index `from` on, as one new chunk of `sequence`.
inline Rows RunChunk(engine::Model& model, engine::SequenceId sequence,
                     std::span<const std::int32_t> tokens, std::size_t from) {
  Rows rows;
  const engine::Chunk chunk{sequence, tokens, from};
  const Status done = model.Forward(std::span(&chunk, 1), [&](std::size_t, std::size_t, auto row) {
    rows.emplace_back(row.begin(), row.end());
    return Status(Ok{});
  });
  EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
  return rows;
}

// |a - b| / |b| over all values.
inline double RelativeL2(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

inline std::vector<float> Joined(const Rows& rows) {
  std::vector<float> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}

}  // namespace sticky::testing

#endif  // STICKY_TESTS_TESTING_GOLDEN_MODEL_H_
