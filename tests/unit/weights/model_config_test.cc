// Both spellings of config.json say the same; what is missing, out of range or not supported is
// refused by name. W18, N05 (llama3 rotary scaling is parsed), G01 (every end-of-text id counts).

#include "weights/model_config.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/testing/data_dir.h"
#include "tests/testing/matchers.h"

namespace sticky::weights {
namespace {

using nlohmann::json;
using sticky::testing::FailsWith;
using sticky::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json Llama() {
  return json::parse(R"({"model_type": "llama", "vocab_size": 320, "hidden_size": 96,
    "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
    "intermediate_size": 160, "max_position_embeddings": 256, "rms_norm_eps": 1e-06,
    "bos_token_id": 1, "eos_token_id": 2,
    "rope_parameters": {"rope_theta": 100000.0, "rope_type": "default"}})");
}

Result<ModelConfig> Parse(const json& config, const std::string& generation = "") {
  return ParseModelConfig(config.dump(), generation);
}

// The same configuration in the other spelling.
json Respelled(json config) {
  if (config.contains("rope_parameters")) {
    json parameters = config["rope_parameters"];
    config.erase("rope_parameters");
    config["rope_theta"] = parameters["rope_theta"];
    parameters.erase("rope_theta");
    config["rope_scaling"] = nullptr;
    if (parameters["rope_type"] != "default") {
      config["rope_scaling"] = parameters;
      config["rope_scaling"]["type"] = parameters["rope_type"];  // the oldest name of it
      config["rope_scaling"].erase("rope_type");
    }
    if (config.contains("dtype")) config["torch_dtype"] = config["dtype"];
    config.erase("dtype");
  } else {
    json parameters = {{"rope_theta", config["rope_theta"]}, {"rope_type", "default"}};
    if (config.contains("rope_scaling") && config["rope_scaling"].is_object()) {
      parameters.update(config["rope_scaling"]);
    }
    config.erase("rope_theta");
    config.erase("rope_scaling");
    config["rope_parameters"] = parameters;
  }
  return config;
}

void ExpectSame(const ModelConfig& a, const ModelConfig& b) {
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(a.layer_count, b.layer_count);
  EXPECT_EQ(a.head_count, b.head_count);
  EXPECT_EQ(a.kv_head_count, b.kv_head_count);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.rope.kind, b.rope.kind);
  EXPECT_EQ(a.rope.theta, b.rope.theta);
  EXPECT_EQ(a.rope.factor, b.rope.factor);
  EXPECT_EQ(a.rope.low_freq_factor, b.rope.low_freq_factor);
  EXPECT_EQ(a.rope.high_freq_factor, b.rope.high_freq_factor);
  EXPECT_EQ(a.rope.original_context, b.rope.original_context);
  EXPECT_EQ(a.stop_tokens, b.stop_tokens);
}

TEST(ModelConfig, EveryGoldenLlamaReadsTheSameInBothSpellings) {
  int llama_count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(sticky::testing::GoldenDir() / "models")) {
    const json config = json::parse(sticky::testing::ReadFile(entry.path() / "config.json"));
    if (config["model_type"] != "llama") continue;
    SCOPED_TRACE(entry.path());
    ++llama_count;

    const auto one = Parse(config);
    const auto other = Parse(Respelled(config));

    ASSERT_THAT(one, IsOk());
    ASSERT_THAT(other, IsOk());
    ExpectSame(one.value(), other.value());
    EXPECT_EQ(one.value().vocab_size, config["vocab_size"].get<int>());
    EXPECT_EQ(one.value().head_dim, config["head_dim"].get<int>());
    EXPECT_EQ(one.value().tied_output, config["tie_word_embeddings"].get<bool>());
    EXPECT_EQ(one.value().attention_bias, config["attention_bias"].get<bool>());
  }
  EXPECT_GT(llama_count, 0);
}

TEST(ModelConfig, OtherFamiliesAreRefusedByNameWithTheChoices) {
  int other_count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(sticky::testing::GoldenDir() / "models")) {
    const std::string text = sticky::testing::ReadFile(entry.path() / "config.json");
    const std::string family = json::parse(text)["model_type"];
    if (family == "llama") continue;
    ++other_count;

    const auto config = ParseModelConfig(text, "");

    ASSERT_THAT(config, FailsWith(Code::kInvalidArgument)) << family;
    EXPECT_THAT(config.error().message, HasSubstr("'" + family + "'"));
    EXPECT_THAT(config.error().message, HasSubstr("supported: llama"));
  }
  EXPECT_GT(other_count, 0);
}

TEST(ModelConfig, RopeParametersGoBeforeTheOldKeys) {
  json config = Llama();
  config["rope_theta"] = 5.0;

  EXPECT_EQ(Parse(config).value().rope.theta, 100000.0);
}

TEST(ModelConfig, Llama3ScalingIsReadWholeOrRefused) {
  json config = Llama();
  config["rope_parameters"] = {
      {"rope_type", "llama3"},   {"rope_theta", 500000.0},
      {"factor", 32.0},          {"low_freq_factor", 1.0},
      {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
  const auto read = Parse(config);
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read.value().rope.kind, RopeKind::kLlama3);
  EXPECT_EQ(read.value().rope.factor, 32.0);
  EXPECT_EQ(read.value().rope.original_context, 8192.0);

  for (const char* key :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    json less = config;
    less["rope_parameters"].erase(key);
    const auto refused = Parse(less);
    ASSERT_THAT(refused, FailsWith(Code::kCorrupt)) << key;
    EXPECT_THAT(refused.error().message, HasSubstr(key));
  }
}

TEST(ModelConfig, AnUnknownRotaryScalingIsRefusedByName) {
  for (const char* key : {"rope_type", "type"}) {
    json config = Respelled(Llama());
    config["rope_scaling"] = {{key, "yarn"}, {"factor", 2.0}};
    const auto refused = Parse(config);
    ASSERT_THAT(refused, FailsWith(Code::kInvalidArgument));
    EXPECT_THAT(refused.error().message, HasSubstr("'yarn'"));
    EXPECT_THAT(refused.error().message, HasSubstr("default, llama3"));
  }
}

TEST(ModelConfig, AMissingRotaryBaseIsNeverADefaultInSilence) {
  json v5 = Llama();
  v5["rope_parameters"].erase("rope_theta");
  EXPECT_THAT(Parse(v5), FailsWith(Code::kCorrupt));

  json v4 = Respelled(Llama());
  v4.erase("rope_theta");
  v4["transformers_version"] = "4.46.0";
  EXPECT_THAT(Parse(v4), FailsWith(Code::kCorrupt));

  // Llama 2 as published: the base was a constant then, and no key of the file.
  v4["transformers_version"] = "4.31.0.dev0";
  ASSERT_THAT(Parse(v4), IsOk());
  EXPECT_EQ(Parse(v4).value().rope.theta, 10000.0);
}

TEST(ModelConfig, HeadsAndTheirSizeHaveTheirDefaults) {
  json config = Llama();
  EXPECT_EQ(Parse(config).value().head_dim, 16);
  config["head_dim"] = nullptr;
  EXPECT_EQ(Parse(config).value().head_dim, 16);
  config["head_dim"] = 24;
  EXPECT_EQ(Parse(config).value().head_dim, 24);
  config.erase("num_key_value_heads");
  EXPECT_EQ(Parse(config).value().kv_head_count, 6);
}

TEST(ModelConfig, EveryStopTokenOfBothFilesCountsOnce) {
  json config = Llama();
  config["eos_token_id"] = {2, 7};

  const auto read = Parse(config, R"({"eos_token_id": [7, 9], "bos_token_id": null})");

  ASSERT_THAT(read, IsOk());
  EXPECT_THAT(read.value().stop_tokens, ElementsAre(2, 7, 9));
  EXPECT_EQ(read.value().bos_token, 1);
}

TEST(ModelConfig, WhatIsNotSupportedIsRefusedByName) {
  const std::vector<std::pair<json, const char*>> cases = {
      {{{"hidden_act", "gelu"}}, "gelu"},
      {{{"quantization_config", {{"quant_method", "gptq"}}}}, "gptq"},
      {{{"partial_rotary_factor", 0.25}}, "partial_rotary_factor"},
      {{{"model_type", "mamba\x1b"}}, "mamba\\x1b"}};
  for (const auto& [patch, expected] : cases) {
    json config = Llama();
    config.update(patch);
    const auto refused = Parse(config);
    ASSERT_THAT(refused, FailsWith(Code::kInvalidArgument)) << expected;
    EXPECT_THAT(refused.error().message, HasSubstr(expected));
  }
}

TEST(ModelConfig, ValuesOutOfRangeAreRefusedWithKeyAndValue) {
  const std::vector<std::pair<const char*, json>> cases = {
      {"vocab_size", 0},
      {"vocab_size", 1e9},
      {"vocab_size", "many"},
      {"hidden_size", -96},
      {"num_hidden_layers", 2147483648ll},
      {"num_hidden_layers", 18446744073709551615ull},
      {"num_attention_heads", 0},
      {"num_attention_heads", 7},  // 96 does not divide by 7
      {"num_key_value_heads", 4},  // nor 6 by 4
      {"num_key_value_heads", 12},
      {"head_dim", 15},
      {"rms_norm_eps", 0},
      {"rms_norm_eps", nullptr},
      {"eos_token_id", 320},
      {"eos_token_id", -1},
      {"bos_token_id", 320},
      {"tie_word_embeddings", "yes"},
      {"rope_parameters", 3},
      {"rope_parameters", {{"rope_theta", -1.0}}}};
  for (const auto& [key, value] : cases) {
    json config = Llama();
    config[key] = value;
    EXPECT_THAT(Parse(config), FailsWith(Code::kCorrupt)) << key << " = " << value;
  }
}

TEST(ModelConfig, TextThatIsNotSuchAFileIsCorrupt) {
  for (const char* text : {"", "{", "[]", "null", "{\"a\":1,\"a\":2}", "\xff", "{\"a\":1e999}"}) {
    EXPECT_THAT(ParseModelConfig(text, ""), FailsWith(Code::kCorrupt)) << text;
  }
  EXPECT_THAT(ParseModelConfig(std::string(100'000, '['), ""), FailsWith(Code::kCorrupt));
  EXPECT_THAT(ParseModelConfig(Llama().dump(), "[]"), FailsWith(Code::kCorrupt));
}

}  // namespace
}  // namespace sticky::weights
