// A GGUF llama becomes the same state as the same model in safetensors; what is not supported is
// refused by name. W17, W22, W24, W26, W27, W28.

#include "weights/gguf_model.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/testing/matchers.h"
#include "tests/testing/memory_model.h"
#include "tests/testing/tiny_llama.h"
#include "weights/gguf.h"
#include "weights/gguf_vocabulary.h"
#include "weights/load_plan.h"
#include "weights/rope_factors.h"

namespace sticky::weights {
namespace {

using sticky::testing::FailsWith;
using sticky::testing::GgufWriter;
using sticky::testing::IsOk;
using sticky::testing::MemoryModel;
using sticky::testing::RawBytes;
using sticky::testing::TinyLlama;
using ::testing::HasSubstr;

MemoryModel OneFile(const std::string& bytes, const std::string& name = "m.gguf") {
  MemoryModel model;
  model.Add(name, bytes);
  return model;
}

// What the plan makes of every tensor, converted in memory.
std::map<std::string, std::vector<float>> Convert(const MemoryModel& model, const LoadPlan& plan) {
  std::map<std::string, std::vector<float>> out;
  for (const PlannedTensor& tensor : plan.tensors) {
    std::vector<std::uint8_t> stored(tensor.stored_bytes);
    EXPECT_THAT(model.files()[tensor.file].bytes->ReadAt(tensor.file_offset, stored), IsOk());
    std::vector<float>& values = out[tensor.name];
    values.resize(tensor.size_bytes / sizeof(float));
    EXPECT_THAT(ConvertRows(tensor, 0, RowCount(tensor), stored,
                            {reinterpret_cast<std::uint8_t*>(values.data()), tensor.size_bytes}),
                IsOk());
  }
  return out;
}

nlohmann::json Config(const LoadPlan& plan) {
  for (const PlannedAsset& asset : plan.assets) {
    if (asset.name == "config.json") return nlohmann::json::parse(asset.bytes);
  }
  return {};
}

std::string Notes(const LoadPlan& plan) {
  std::string all;
  for (const std::string& note : plan.notes) all += note + "\n";
  return all;
}

// W28: grouped-query, so that q and k have different counts of heads; with biases too.
TEST(GgufModel, TheSameModelInBothFormatsIsTheSameTensorsByteForByte) {
  for (const bool bias : {false, true}) {
    for (const bool head : {false, true}) {
      TinyLlama tiny(bias);
      if (head) tiny.AddHead();
      GgufWriter writer = TinyLlama::Metadata();
      tiny.AddTensors(writer);
      MemoryModel safetensors;
      safetensors.Add("model.safetensors", tiny.Safetensors().Finish())
          .Add("config.json", tiny.ConfigJson(head ? "\"tie_word_embeddings\": false"
                                                   : "\"tie_word_embeddings\": true"));
      const MemoryModel gguf = OneFile(writer.Finish());

      const auto one = PlanLoad(safetensors.files(), {.dtype = DtypeChoice::kF32});
      const auto other = PlanLoad(gguf.files(), {.dtype = DtypeChoice::kF32});

      ASSERT_THAT(one, IsOk());
      ASSERT_THAT(other, IsOk());
      EXPECT_EQ(Convert(safetensors, one.value()), Convert(gguf, other.value()));
      std::map<std::string, std::vector<std::int64_t>> one_shapes, other_shapes;
      for (const auto& tensor : one.value().tensors) one_shapes[tensor.name] = tensor.shape;
      for (const auto& tensor : other.value().tensors) other_shapes[tensor.name] = tensor.shape;
      EXPECT_EQ(one_shapes, other_shapes);
      const nlohmann::json made = Config(other.value());
      const nlohmann::json wanted = Config(one.value());
      for (const auto& [key, value] : wanted.items()) {
        EXPECT_EQ(made[key], value) << key;
      }
    }
  }
}

// W28: and if q and k were not put in order, the test above would see it.
TEST(GgufModel, InterleavingChangesTheRowsOfTheTinyModel) {
  const TinyLlama tiny;
  const auto& q = tiny.values.at("model.layers.0.self_attn.q_proj.weight");
  EXPECT_NE(TinyLlama::Interleaved(q, 4, 64), q);
  EXPECT_NE(TinyLlama::Interleaved(q, 4, 64), TinyLlama::Interleaved(q, 2, 64));
}

TEST(GgufModel, Version2IsReadLikeVersion3) {
  const TinyLlama tiny;
  GgufWriter writer = TinyLlama::Metadata();
  tiny.AddTensors(writer);
  EXPECT_THAT(PlanLoad(OneFile(writer.Finish(/*version=*/2)).files(), {}), IsOk());
}

TEST(GgufModel, OtherArchitecturesAreRefusedByName) {
  GgufWriter writer;
  writer.String("general.architecture", "gemma2").Uint("gemma2.block_count", 2);

  const auto plan = PlanLoad(OneFile(writer.Finish()).files(), {});

  ASSERT_THAT(plan, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(plan.error().message, HasSubstr("'gemma2' is not supported; supported: llama"));
}

TEST(GgufModel, AFileThatDescribesNoModelIsPlainTensorsWithANote) {
  MemoryModel model;
  model.AddFile(sticky::testing::CasesDir() / "fixtures" / "gguf" / "ok.gguf");

  const auto plan = PlanLoad(model.files(), {});

  ASSERT_THAT(plan, IsOk());
  ASSERT_EQ(plan.value().tensors.size(), 1u);
  EXPECT_EQ(plan.value().tensors[0].name, "t");
  EXPECT_EQ(Convert(model, plan.value())["t"], (std::vector<float>{1, 2, 3, 4}));
  EXPECT_THAT(Notes(plan.value()), HasSubstr("describes no model"));
}

TEST(GgufModel, WhatIsNotComputedIsRefusedByName) {
  const auto refused = [](auto&& change) {
    const TinyLlama tiny;
    GgufWriter writer = TinyLlama::Metadata();
    change(writer);
    tiny.AddTensors(writer);
    const auto plan = PlanLoad(OneFile(writer.Finish()).files(), {});
    EXPECT_FALSE(plan.ok());
    return plan.ok() ? std::string() : plan.error().message;
  };
  EXPECT_THAT(refused([](GgufWriter& w) { w.Uint("llama.expert_count", 8); }),
              HasSubstr("8 experts"));
  EXPECT_THAT(refused([](GgufWriter& w) { w.String("llama.rope.scaling.type", "yarn"); }),
              HasSubstr("'yarn'"));
  EXPECT_THAT(refused([](GgufWriter& w) { w.Uint("llama.attention.value_length", 8); }),
              HasSubstr("8 value"));
  EXPECT_THAT(refused([](GgufWriter& w) { w.Uint("llama.vocab_size", 41); }),
              HasSubstr("vocab_size is 41, but token_embd.weight has 40"));
  EXPECT_THAT(
      refused([](GgufWriter& w) { w.Tensor("blk.0.ffn_gate_exps.weight", {1}, 0, "abcd"); }),
      HasSubstr("'blk.0.ffn_gate_exps.weight' is not one of a llama model's"));
  EXPECT_THAT(refused([](GgufWriter& w) { w.Tensor("blk.2.attn_norm.weight", {1}, 0, "abcd"); }),
              HasSubstr("'model.layers.2.input_layernorm.weight' is not accounted for"));
  EXPECT_THAT(
      refused([](GgufWriter& w) {
        w.Tensor("rope_freqs.weight", {8}, 0, RawBytes(std::vector<float>{1, 1, 3, 1, 2, 8, 8, 8}));
      }),
      HasSubstr("not llama3's rotary scaling"));
}

TEST(GgufModel, MissingKeysAndKeysOfAnotherTypeAreNamed) {
  GgufWriter missing;
  missing.String("general.architecture", "llama").Uint("llama.attention.head_count", 4);
  const auto first = PlanLoad(OneFile(missing.Finish()).files(), {});
  ASSERT_THAT(first, FailsWith(Code::kCorrupt));
  EXPECT_THAT(first.error().message, HasSubstr("'llama.block_count' is missing"));

  GgufWriter wrong;
  wrong.String("general.architecture", "llama").String("llama.block_count", "two");
  const auto second = PlanLoad(OneFile(wrong.Finish()).files(), {});
  ASSERT_THAT(second, FailsWith(Code::kCorrupt));
  EXPECT_THAT(second.error().message, HasSubstr("is of type string, expected an integer"));
}

// Every value of the metadata damaged, one bit at a time: refused or read, never worse.
TEST(GgufModel, DamagedMetadataAreRefusedOrReadButNeverWorse) {
  const TinyLlama tiny;
  GgufWriter writer = TinyLlama::Metadata();
  const std::size_t metadata_bytes = writer.Finish().size();
  tiny.AddTensors(writer);
  const std::string good = writer.Finish();
  std::size_t refused_count = 0;
  for (std::size_t bit = 0; bit < 8 * metadata_bytes; ++bit) {
    std::string changed = good;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    if (!PlanLoad(OneFile(changed).files(), {}).ok()) ++refused_count;
  }
  EXPECT_GT(refused_count, metadata_bytes);
}

// W26: a part by itself, and parts joined with cat.
TEST(GgufModel, SplitFilesAreRefusedWithTheReason) {
  const auto fixtures = sticky::testing::CasesDir() / "fixtures" / "gguf";
  MemoryModel part, joined;
  part.AddFile(fixtures / "split" / "m-00002-of-00002.gguf");
  joined.AddFile(fixtures / "split-cat" / "m.gguf");

  const auto one = PlanLoad(part.files(), {});
  const auto other = PlanLoad(joined.files(), {});

  ASSERT_THAT(one, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(one.error().message, HasSubstr("part 2 of 2"));
  ASSERT_THAT(other, FailsWith(Code::kCorrupt));
  EXPECT_THAT(other.error().message, HasSubstr("192 bytes after data: parts joined?"));
}

TEST(Gguf, TensorsThatOverlapOrLeaveAGapAreRefused) {
  GgufWriter writer;
  writer.Tensor("a", {8}, 0, std::string(32, 'a')).Tensor("b", {8}, 0, std::string(32, 'b'));
  std::string overlapping = writer.Finish();
  // The offset is the last field of an entry: "b"'s is the last 8 bytes before the data's padding.
  const std::size_t entry = overlapping.find('b', 24);
  overlapping[entry + 1 + 4 + 8 + 4] = 0;

  const auto plan = PlanLoad(OneFile(overlapping).files(), {});

  ASSERT_THAT(plan, FailsWith(Code::kCorrupt));
  EXPECT_THAT(plan.error().message, HasSubstr("overlap or leave a gap"));
}

TEST(Gguf, ATensorNameThatIsEmptyOrHasANulIsRefused) {
  for (const std::string& name : {std::string(), std::string("a\0b", 3)}) {
    GgufWriter writer;
    writer.Tensor(name, {1}, 0, "abcd");
    EXPECT_THAT(PlanLoad(OneFile(writer.Finish()).files(), {}), FailsWith(Code::kCorrupt));
  }
}

TEST(Gguf, ADuplicateKeyAndABoolThatIsNoneAreRefused) {
  GgufWriter twice;
  twice.Uint("k", 1).Uint("k", 1);
  const auto plan = PlanLoad(OneFile(twice.Finish()).files(), {});
  ASSERT_THAT(plan, FailsWith(Code::kCorrupt));
  EXPECT_THAT(plan.error().message, HasSubstr("duplicate key 'k'"));

  GgufWriter flag;
  flag.Bool("k", true);
  std::string bytes = flag.Finish();
  bytes[24 + 8 + 1 + 4] = 2;  // header, key length, key, type
  EXPECT_THAT(PlanLoad(OneFile(bytes).files(), {}), FailsWith(Code::kCorrupt));
}

TEST(Gguf, AnAlignmentOfItsOwnIsFollowedAndABadOneRefused) {
  for (const std::uint32_t alignment : {0u, 3u, 1u << 21}) {
    GgufWriter writer;
    writer.Uint("general.alignment", alignment).Tensor("a", {1}, 0, "abcd");
    EXPECT_THAT(PlanLoad(OneFile(writer.Finish()).files(), {}), FailsWith(Code::kCorrupt));
  }
  GgufWriter writer;
  writer.Uint("general.alignment", 8).Tensor("tensor_8", {1}, 0, "abcd");
  const std::string bytes = writer.Finish(/*version=*/3, /*alignment=*/8);
  ASSERT_NE((bytes.size() - 4) % 32, 0u);  // or the test would show nothing
  const MemoryModel model = OneFile(bytes);

  const auto gguf = GgufFile::Read(model.files()[0]);

  ASSERT_THAT(gguf, IsOk());
  EXPECT_EQ(gguf.value().tensors()[0].file_offset, bytes.size() - 4);
}

RopeConfig Scaled(double theta, double factor, double low, double high, double context) {
  return {.kind = RopeKind::kLlama3,
          .theta = theta,
          .factor = factor,
          .low_freq_factor = low,
          .high_freq_factor = high,
          .original_context = context};
}

TEST(RopeFactors, TheParametersThatMadeThemComeBackOrOthersThatAreTheSame) {
  struct Row {
    RopeConfig rope;
    int head_dim;
  };
  const std::vector<Row> rows = {{Scaled(500000, 8, 1, 4, 8192), 128},  // Llama 3.1
                                 {Scaled(500000, 32, 1, 4, 8192), 64},  // Llama 3.2
                                 {Scaled(500000, 8, 1, 4, 32), 24},     // the golden model
                                 {Scaled(10000, 4, 2, 6, 4096), 128},   // low is not 1
                                 {Scaled(1000000, 16, 1, 8, 32768), 96}};
  for (const Row& row : rows) {
    std::vector<float> factors;
    for (const double factor : Llama3Factors(row.rope, row.head_dim)) {
      factors.push_back(static_cast<float>(factor));
    }

    const auto found = RopeFromFactors(factors, row.rope.theta, row.head_dim);

    ASSERT_TRUE(found.has_value()) << row.rope.factor;
    EXPECT_EQ(found->kind, RopeKind::kLlama3);
    const auto again = Llama3Factors(*found, row.head_dim);
    for (std::size_t i = 0; i < factors.size(); ++i) {
      EXPECT_NEAR(again[i], factors[i], 1e-4 * factors[i]) << i;
    }
  }
}

TEST(RopeFactors, AllOnesAreNoScalingAndOthersAreNotGuessed) {
  const std::vector<float> ones(8, 1.0f);
  EXPECT_EQ(RopeFromFactors(ones, 10000, 16)->kind, RopeKind::kDefault);
  const std::vector<float> odd = {1, 1, 3, 1, 2, 8, 8, 8};
  EXPECT_FALSE(RopeFromFactors(odd, 10000, 16).has_value());
  EXPECT_FALSE(RopeFromFactors(ones, 10000, 32).has_value());
  const std::vector<float> nan(8, std::nanf(""));
  EXPECT_FALSE(RopeFromFactors(nan, 10000, 16).has_value());
  EXPECT_FALSE(RopeFromFactors({}, 10000, 0).has_value());
}

TEST(GgufModel, RopeFactorsBecomeParametersOfTheConfiguration) {
  const TinyLlama tiny;
  GgufWriter writer = TinyLlama::Metadata();
  tiny.AddTensors(writer);
  std::vector<float> factors;
  for (const double factor : Llama3Factors(Scaled(10000, 8, 1, 4, 8192), 16)) {
    factors.push_back(static_cast<float>(factor));
  }
  writer.Tensor("rope_freqs.weight", {8}, 0, RawBytes(factors));

  const auto plan = PlanLoad(OneFile(writer.Finish()).files(), {});

  ASSERT_THAT(plan, IsOk());
  const nlohmann::json rope = Config(plan.value())["rope_parameters"];
  EXPECT_EQ(rope["rope_type"], "llama3");
  EXPECT_EQ(rope["original_max_position_embeddings"], 8192);
  for (const auto& tensor : plan.value().tensors) EXPECT_NE(tensor.name, "rope_freqs.weight");
}

GgufWriter Tokenizer(const std::string& model, const std::string& pre) {
  GgufWriter writer;
  writer.String("tokenizer.ggml.model", model)
      .String("tokenizer.ggml.pre", pre)
      .Strings("tokenizer.ggml.tokens", {"a", "b", "ab", "\xc4\xa0", "<|end|>", "<tool>"})
      .Ints("tokenizer.ggml.token_type", {1, 1, 1, 1, 3, 4})
      .Strings("tokenizer.ggml.merges", {"a b"})
      .Uint("tokenizer.ggml.bos_token_id", 4)
      .Uint("tokenizer.ggml.eos_token_id", 4);
  return writer;
}

Result<VocabularySource> ReadVocabulary(const GgufWriter& writer) {
  const MemoryModel model = OneFile(writer.Finish());
  const auto gguf = GgufFile::Read(model.files()[0]);
  EXPECT_THAT(gguf, IsOk());
  return ReadGgufVocabulary(gguf.value());
}

TEST(GgufVocabulary, TokensMergesAndSettingsAreRead) {
  const auto source = ReadVocabulary(Tokenizer("gpt2", "llama-bpe"));

  ASSERT_THAT(source, IsOk());
  EXPECT_EQ(source.value().tokens[3].bytes, " ");
  EXPECT_TRUE(source.value().tokens[4].special);
  EXPECT_TRUE(source.value().tokens[4].added);
  EXPECT_FALSE(source.value().tokens[5].special);
  EXPECT_TRUE(source.value().tokens[5].added);
  EXPECT_EQ(source.value().tokens[5].bytes, "<tool>");
  ASSERT_EQ(source.value().merges.size(), 1u);
  EXPECT_EQ(source.value().merges[0].result, 2u);
  EXPECT_TRUE(source.value().ignore_merges);
  EXPECT_TRUE(source.value().add_bos);
  EXPECT_EQ(source.value().bos, 4u);
}

TEST(GgufVocabulary, EveryKnownPreTokenizerHasItsOwnSteps) {
  EXPECT_EQ(ReadVocabulary(Tokenizer("gpt2", "smollm")).value().splits.size(), 2u);
  EXPECT_EQ(ReadVocabulary(Tokenizer("gpt2", "gpt-2")).value().splits.size(), 1u);
  EXPECT_TRUE(ReadVocabulary(Tokenizer("gpt2", "qwen2")).value().normalize_nfc);
  EXPECT_FALSE(ReadVocabulary(Tokenizer("gpt2", "smollm")).value().add_bos);
}

TEST(GgufVocabulary, AnUnknownKindIsNeverGuessed) {
  const auto pre = ReadVocabulary(Tokenizer("gpt2", "chameleon"));
  ASSERT_THAT(pre, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(pre.error().message, HasSubstr("'chameleon'"));
  EXPECT_THAT(pre.error().message, HasSubstr("smollm, gpt-2"));
  const auto model = ReadVocabulary(Tokenizer("llama", "default"));
  ASSERT_THAT(model, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(model.error().message, HasSubstr("'llama'"));
}

TEST(GgufVocabulary, IdsMergesAndLengthsThatDoNotAgreeAreCorrupt) {
  GgufWriter merge = Tokenizer("gpt2", "smollm");
  merge.Strings("unused", {});
  GgufWriter bad_merge;
  bad_merge.String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "smollm")
      .Strings("tokenizer.ggml.tokens", {"a", "b"})
      .Strings("tokenizer.ggml.merges", {"a b"});
  const auto refused = ReadVocabulary(bad_merge);
  ASSERT_THAT(refused, FailsWith(Code::kCorrupt));
  EXPECT_THAT(refused.error().message, HasSubstr("'a b'"));

  GgufWriter types;
  types.String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "smollm")
      .Strings("tokenizer.ggml.tokens", {"a", "b"})
      .Ints("tokenizer.ggml.token_type", {1});
  EXPECT_THAT(ReadVocabulary(types), FailsWith(Code::kCorrupt));

  GgufWriter bos;
  bos.String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "smollm")
      .Strings("tokenizer.ggml.tokens", {"a", "b"})
      .Strings("tokenizer.ggml.merges", {})
      .Uint("tokenizer.ggml.bos_token_id", 2);
  EXPECT_THAT(ReadVocabulary(bos), FailsWith(Code::kCorrupt));
}

TEST(GgufModel, ATokenizerThatIsNotKnownIsLeftOutWithANote) {
  const TinyLlama tiny;
  GgufWriter writer = TinyLlama::Metadata();
  tiny.AddTensors(writer);
  writer.String("tokenizer.ggml.model", "llama").String("tokenizer.chat_template", "{{ x }}");

  const auto plan = PlanLoad(OneFile(writer.Finish()).files(), {});

  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(Notes(plan.value()), HasSubstr("the tokenizer is left out: "));
  EXPECT_THAT(Notes(plan.value()), HasSubstr("'llama'"));
  for (const PlannedAsset& asset : plan.value().assets) EXPECT_NE(asset.name, "vocabulary");
}

}  // namespace
}  // namespace sticky::weights
