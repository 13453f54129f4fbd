// A model in Hugging Face's layout becomes the canonical state, or is refused before anything is
// allocated. W04, W11, W14, W15, W17.

#include "weights/load_plan.h"

#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/testing/matchers.h"
#include "tests/testing/memory_model.h"
#include "tests/testing/tiny_llama.h"

namespace sticky::weights {
namespace {

using sticky::testing::FailsWith;
using sticky::testing::IsOk;
using sticky::testing::MemoryModel;
using sticky::testing::SafetensorsWriter;
using sticky::testing::TinyLlama;
using ::testing::HasSubstr;

const PlannedTensor* Find(const LoadPlan& plan, std::string_view name) {
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

std::string Asset(const LoadPlan& plan, std::string_view name) {
  for (const PlannedAsset& asset : plan.assets) {
    if (asset.name == name) return {asset.bytes.begin(), asset.bytes.end()};
  }
  return "";
}

std::string Notes(const LoadPlan& plan) {
  std::string all;
  for (const std::string& note : plan.notes) all += note + "\n";
  return all;
}

MemoryModel Files(const std::string& weights, const std::string& config) {
  MemoryModel model;
  model.Add("model.safetensors", weights).Add("config.json", config);
  return model;
}

Result<LoadPlan> Plan(const MemoryModel& model, DtypeChoice dtype = DtypeChoice::kAuto) {
  return PlanLoad(model.files(), {.dtype = dtype, .best_matrix_dtype = Dtype::kBf16});
}

void ExpectLaidOutWell(const LoadPlan& plan) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
  for (const PlannedTensor& tensor : plan.tensors) {
    EXPECT_EQ(tensor.offset % kPlanAlignment, 0u) << tensor.name;
    if (!tensor.alias_of) places.emplace_back(tensor.offset, tensor.size_bytes);
  }
  for (const PlannedAsset& asset : plan.assets) {
    EXPECT_EQ(asset.offset % kPlanAlignment, 0u) << asset.name;
    places.emplace_back(asset.offset, asset.bytes.size());
  }
  std::sort(places.begin(), places.end());
  std::uint64_t end = 0;
  for (const auto& [offset, size] : places) {
    EXPECT_GE(offset, end);
    end = offset + size;
  }
  EXPECT_LE(end, plan.arena_bytes);
  EXPECT_EQ(plan.arena_bytes % kPlanAlignment, 0u);
}

TEST(LoadPlan, EveryGoldenLlamaIsPlannedAndEveryOtherFamilyRefusedByName) {
  int planned_count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(sticky::testing::GoldenDir() / "models")) {
    SCOPED_TRACE(entry.path());
    MemoryModel model;
    for (const auto& file : std::filesystem::directory_iterator(entry.path())) {
      const std::string name = file.path().filename().string();
      const bool weights = name.starts_with("model") && name.ends_with(".safetensors");
      if (weights || name.ends_with(".json")) model.AddFile(file.path());
    }
    const auto config =
        nlohmann::json::parse(sticky::testing::ReadFile(entry.path() / "config.json"));

    const auto plan = Plan(model);

    if (config["model_type"] != "llama") {
      ASSERT_THAT(plan, FailsWith(Code::kInvalidArgument));
      EXPECT_THAT(plan.error().message, HasSubstr(config["model_type"].get<std::string>()));
      continue;
    }
    ++planned_count;
    ASSERT_THAT(plan, IsOk());
    ExpectLaidOutWell(plan.value());
    EXPECT_NE(Find(plan.value(), "lm_head.weight"), nullptr);
    EXPECT_EQ(Find(plan.value(), "lm_head.weight")->alias_of.has_value(),
              config["tie_word_embeddings"].get<bool>());
    EXPECT_EQ(Find(plan.value(), "model.norm.weight")->dtype, Dtype::kF32);
    EXPECT_EQ(Find(plan.value(), "model.embed_tokens.weight")->dtype, Dtype::kBf16);
    EXPECT_EQ(nlohmann::json::parse(Asset(plan.value(), "config.json")), config);
  }
  EXPECT_GT(planned_count, 0);
}

TEST(LoadPlan, ADtypeThatIsAskedForIsThatOfTheMatricesAndNeverOfTheVectors) {
  const TinyLlama tiny(/*bias=*/true);
  const MemoryModel model = Files(tiny.Safetensors().Finish(), tiny.ConfigJson());
  for (const auto& [choice, dtype] :
       {std::pair(DtypeChoice::kBf16, Dtype::kBf16), std::pair(DtypeChoice::kF16, Dtype::kF16),
        std::pair(DtypeChoice::kF32, Dtype::kF32), std::pair(DtypeChoice::kAuto, Dtype::kBf16)}) {
    const auto plan = Plan(model, choice);

    ASSERT_THAT(plan, IsOk());
    for (const PlannedTensor& tensor : plan.value().tensors) {
      EXPECT_EQ(tensor.dtype, tensor.shape.size() < 2 ? Dtype::kF32 : dtype) << tensor.name;
    }
    ExpectLaidOutWell(plan.value());
  }
}

// W14: stored offsets that are not aligned are, in the arena.
TEST(LoadPlan, APlainFileKeepsNamesAndDtypesUnlessOneIsAskedForAndIsAligned) {
  MemoryModel model;
  model.AddFile(sticky::testing::CasesDir() / "fixtures" / "st" / "u8-then-f32.safetensors");

  const auto kept = Plan(model);
  const auto halved = Plan(model, DtypeChoice::kF16);

  ASSERT_THAT(kept, IsOk());
  EXPECT_EQ(Find(kept.value(), "u")->dtype, Dtype::kU8);
  EXPECT_EQ(Find(kept.value(), "a")->dtype, Dtype::kF32);
  EXPECT_NE(Find(kept.value(), "a")->file_offset % 4, 0u);
  ExpectLaidOutWell(kept.value());
  ASSERT_THAT(halved, IsOk());
  EXPECT_EQ(Find(halved.value(), "u")->dtype, Dtype::kU8);
  EXPECT_EQ(Find(halved.value(), "a")->dtype, Dtype::kF16);
}

TEST(LoadPlan, AFileWithoutTensorsIsAnArenaOfOneBlock) {
  MemoryModel model;
  model.AddFile(sticky::testing::CasesDir() / "fixtures" / "st" / "metadata-only.safetensors");

  const auto plan = Plan(model);

  ASSERT_THAT(plan, IsOk());
  EXPECT_TRUE(plan.value().tensors.empty());
  EXPECT_EQ(plan.value().arena_bytes, kPlanAlignment);
}

// W17, four combinations, and the fifth: present although tied, and different.
TEST(TiedHead, TiedAndAbsentIsTheEmbedding) {
  const TinyLlama tiny;
  const auto plan = Plan(Files(tiny.Safetensors().Finish(), tiny.ConfigJson()));

  ASSERT_THAT(plan, IsOk());
  const PlannedTensor* head = Find(plan.value(), "lm_head.weight");
  const PlannedTensor* embedding = Find(plan.value(), "model.embed_tokens.weight");
  ASSERT_TRUE(head->alias_of.has_value());
  EXPECT_EQ(&plan.value().tensors[*head->alias_of], embedding);
  EXPECT_EQ(head->offset, embedding->offset);
  EXPECT_EQ(head->size_bytes, embedding->size_bytes);
  EXPECT_THAT(Notes(plan.value()), ::testing::Not(HasSubstr("lm_head")));
}

TEST(TiedHead, TiedAndPresentWithTheSameBytesIsStoredOnce) {
  TinyLlama tiny;
  const std::uint64_t alone =
      Plan(Files(tiny.Safetensors().Finish(), tiny.ConfigJson())).value().arena_bytes;
  tiny.AddHead();
  tiny.values["lm_head.weight"] = tiny.values["model.embed_tokens.weight"];

  const auto plan = Plan(Files(tiny.Safetensors().Finish(), tiny.ConfigJson()));

  ASSERT_THAT(plan, IsOk());
  EXPECT_TRUE(Find(plan.value(), "lm_head.weight")->alias_of.has_value());
  EXPECT_EQ(plan.value().arena_bytes, alone);
}

TEST(TiedHead, TiedAndPresentWithOtherBytesIsTheFilesHeadWithANote) {
  TinyLlama tiny;
  tiny.AddHead();

  const auto plan = Plan(Files(tiny.Safetensors().Finish(), tiny.ConfigJson()));

  ASSERT_THAT(plan, IsOk());
  EXPECT_FALSE(Find(plan.value(), "lm_head.weight")->alias_of.has_value());
  EXPECT_THAT(Notes(plan.value()), HasSubstr("differs from the embedding"));
  EXPECT_EQ(nlohmann::json::parse(Asset(plan.value(), "config.json"))["tie_word_embeddings"],
            false);
}

TEST(TiedHead, UntiedAndPresentIsItself) {
  TinyLlama tiny;
  tiny.AddHead();

  const auto plan =
      Plan(Files(tiny.Safetensors().Finish(), tiny.ConfigJson("\"tie_word_embeddings\": false")));

  ASSERT_THAT(plan, IsOk());
  EXPECT_FALSE(Find(plan.value(), "lm_head.weight")->alias_of.has_value());
  EXPECT_THAT(Notes(plan.value()), ::testing::Not(HasSubstr("lm_head")));
}

TEST(TiedHead, UntiedAndAbsentIsTheEmbeddingWithANoteThatNamesTheKey) {
  const TinyLlama tiny;

  const auto plan =
      Plan(Files(tiny.Safetensors().Finish(), tiny.ConfigJson("\"tie_word_embeddings\": false")));

  ASSERT_THAT(plan, IsOk());
  EXPECT_TRUE(Find(plan.value(), "lm_head.weight")->alias_of.has_value());
  EXPECT_THAT(Notes(plan.value()), HasSubstr("tie_word_embeddings"));
  EXPECT_EQ(nlohmann::json::parse(Asset(plan.value(), "config.json"))["tie_word_embeddings"], true);
}

TEST(LlamaTensors, AMissingTensorIsNamed) {
  TinyLlama tiny;
  tiny.values.erase("model.layers.1.mlp.up_proj.weight");

  const auto plan = Plan(Files(tiny.Safetensors().Finish(), tiny.ConfigJson()));

  ASSERT_THAT(plan, FailsWith(Code::kCorrupt));
  EXPECT_THAT(plan.error().message, HasSubstr("'model.layers.1.mlp.up_proj.weight'"));
}

TEST(LlamaTensors, AWrongShapeIsShownBesideTheRightOne) {
  TinyLlama tiny;
  tiny.shapes["model.layers.0.self_attn.k_proj.weight"] = {64, 32};

  const auto plan = Plan(Files(tiny.Safetensors().Finish(), tiny.ConfigJson()));

  ASSERT_THAT(plan, FailsWith(Code::kCorrupt));
  EXPECT_THAT(plan.error().message, HasSubstr("k_proj.weight' has shape [64, 32]"));
  EXPECT_THAT(plan.error().message, HasSubstr("[32, 64]"));
}

TEST(LlamaTensors, ABiasThatTheConfigurationDoesNotNameIsRefused) {
  TinyLlama tiny;
  std::mt19937 rng(1);
  tiny.Add("model.layers.0.self_attn.q_proj.bias", {64}, rng);

  const auto plan = Plan(Files(tiny.Safetensors().Finish(), tiny.ConfigJson()));

  ASSERT_THAT(plan, FailsWith(Code::kCorrupt));
  EXPECT_THAT(plan.error().message, HasSubstr("q_proj.bias' is not accounted for"));
}

// W15: what the family does not use cannot block a load, whatever its dtype.
TEST(LlamaTensors, UnusedTensorsOfAnyDtypeAreLeftOutWithANote) {
  const TinyLlama tiny;
  SafetensorsWriter writer = tiny.Safetensors();
  writer.Add("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {8}, std::string(32, '\0'))
      .Add("value_head.scale", "F8_E4M3", {4}, "abcd")
      .Add("other.thing", "F7", {4}, "abcdefgh");

  const auto plan = Plan(Files(writer.Finish(), tiny.ConfigJson()));

  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(Find(plan.value(), "value_head.scale"), nullptr);
  for (const char* part : {"3 tensors", "inv_freq", "value_head.scale", "other.thing"}) {
    EXPECT_THAT(Notes(plan.value()), HasSubstr(part));
  }
}

// W15.
TEST(LlamaTensors, ANeededTensorOfAnUnsupportedDtypeIsRefused) {
  for (const auto& [dtype, expected] :
       {std::pair("F8_E4M3", "F8_E4M3, which is known but unsupported"),
        std::pair("F9", "unknown dtype F9"), std::pair("I8", "dtype i8")}) {
    TinyLlama tiny;
    tiny.values.erase("model.norm.weight");
    SafetensorsWriter writer = tiny.Safetensors();
    writer.Add("model.norm.weight", dtype, {64}, std::string(64, 'x'));

    const auto plan = Plan(Files(writer.Finish(), tiny.ConfigJson()));

    ASSERT_FALSE(plan.ok()) << dtype;
    EXPECT_THAT(plan.error().message, HasSubstr(expected));
    EXPECT_THAT(plan.error().message, HasSubstr("'model.norm.weight'"));
  }
}

std::string TwoShardIndex() {
  return R"({"metadata": {"total_size": 16}, "weight_map": {"a": "one.safetensors",
             "b": "two.safetensors"}})";
}
std::string OneTensor(const std::string& name) {
  return SafetensorsWriter().Add(name, "F32", {2}, std::string(8, '\0')).Finish();
}

TEST(Shards, ThoseThatMatchTheirIndexArePlannedTogether) {
  MemoryModel model;
  model.Add("one.safetensors", OneTensor("a"))
      .Add("two.safetensors", OneTensor("b"))
      .Add("model.safetensors.index.json", TwoShardIndex());

  const auto plan = Plan(model);

  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(Find(plan.value(), "a")->file, 0u);
  EXPECT_EQ(Find(plan.value(), "b")->file, 1u);
}

// W04 and rule: all that was there is used, all that is needed is there.
TEST(Shards, ThoseThatDisagreeWithTheirIndexAreRefusedWithTensorAndShard) {
  const std::string both =
      SafetensorsWriter().Add("a", "F32", {1}, "abcd").Add("stray", "F32", {1}, "abcd").Finish();
  const std::vector<std::tuple<std::string, std::string, const char*>> cases = {
      {both, OneTensor("b"), "'stray' is not in"},
      {OneTensor("a"), OneTensor("c"), "'c' is not in"},
      {OneTensor("b"), OneTensor("a"), "belongs in 'two.safetensors'"},
      {OneTensor("a"), SafetensorsWriter().Finish(), "'b' (and 0 more) is not in its shard"}};
  for (const auto& [one, two, expected] : cases) {
    MemoryModel model;
    model.Add("one.safetensors", one)
        .Add("two.safetensors", two)
        .Add("model.safetensors.index.json", TwoShardIndex());

    const auto plan = Plan(model);

    ASSERT_THAT(plan, FailsWith(Code::kCorrupt));
    EXPECT_THAT(plan.error().message, HasSubstr(expected));
  }
}

TEST(Shards, ATensorInTwoOfThemIsRefused) {
  MemoryModel model;
  model.Add("one.safetensors", OneTensor("a")).Add("two.safetensors", OneTensor("a"));

  const auto plan = Plan(model);

  ASSERT_THAT(plan, FailsWith(Code::kCorrupt));
  EXPECT_THAT(plan.error().message, HasSubstr("both in 'one.safetensors' and in 'two"));
}

// W02: all the short shards in one message.
TEST(Shards, EveryShortOneIsNamedAtOnceWithItsByteCounts) {
  MemoryModel model;
  for (const char* name : {"one.safetensors", "two.safetensors", "three.safetensors"}) {
    std::string bytes = OneTensor("a");
    if (std::string(name) != "two.safetensors") bytes.pop_back();
    model.Add(name, bytes);
  }

  const auto plan = Plan(model);

  ASSERT_THAT(plan, FailsWith(Code::kCorrupt));
  EXPECT_THAT(plan.error().message,
              HasSubstr("'one.safetensors': tensor 'a' ends at 8, data has 7"));
  EXPECT_THAT(plan.error().message, HasSubstr("'three.safetensors'"));
  EXPECT_THAT(plan.error().message, ::testing::Not(HasSubstr("'two.safetensors'")));
}

TEST(LoadPlan, AChatTemplateComesFromItsOwnFileElseFromTheTokenizersConfiguration) {
  const TinyLlama tiny;
  const auto plan = [&](const std::vector<std::pair<std::string, std::string>>& more) {
    MemoryModel model = Files(tiny.Safetensors().Finish(), tiny.ConfigJson());
    for (const auto& [name, text] : more) model.Add(name, text);
    const auto made = Plan(model);
    EXPECT_THAT(made, IsOk());
    return Asset(made.value(), "chat_template");
  };
  const std::string in_config = R"({"chat_template": "from config"})";
  const std::string named = R"({"chat_template": [{"name": "rag", "template": "no"},
                                                  {"name": "default", "template": "yes"}]})";
  EXPECT_EQ(plan({}), "");
  EXPECT_EQ(plan({{"tokenizer_config.json", in_config}}), "from config");
  EXPECT_EQ(plan({{"tokenizer_config.json", named}}), "yes");
  EXPECT_EQ(plan({{"tokenizer_config.json", in_config}, {"chat_template.jinja", "own"}}), "own");
}

TEST(LoadPlan, AModelWithoutATokenizerIsPlannedWithANote) {
  const TinyLlama tiny;
  const auto plan = Plan(Files(tiny.Safetensors().Finish(), tiny.ConfigJson()));
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(Notes(plan.value()), HasSubstr("no tokenizer.json"));
}

TEST(LoadPlan, NoWeightFileAndMixedFormatsAreRefused) {
  MemoryModel none;
  none.Add("config.json", "{}");
  EXPECT_THAT(Plan(none), FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(PlanLoad({}, {}), FailsWith(Code::kInvalidArgument));

  MemoryModel mixed;
  mixed.Add("a.safetensors", OneTensor("a")).Add("b.gguf", "GGUF");
  const auto plan = Plan(mixed);
  ASSERT_THAT(plan, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(plan.error().message, HasSubstr("'b.gguf'"));
}

// W01 in the small files, and a checkpoint of another format.
TEST(LoadPlan, PointersAndCheckpointsOfOtherFormatsAreNamedForWhatTheyAre) {
  const TinyLlama tiny;
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
  const auto config = Plan(Files(tiny.Safetensors().Finish(), pointer));
  ASSERT_THAT(config, FailsWith(Code::kCorrupt));
  EXPECT_THAT(config.error().message, HasSubstr("'config.json': this is a Git-LFS pointer"));

  MemoryModel gguf;
  gguf.Add("m.gguf", pointer);
  EXPECT_THAT(Plan(gguf).error().message, HasSubstr("Git-LFS pointer"));

  MemoryModel text;
  text.Add("notes.txt", "Dear diary, today");
  EXPECT_THAT(Plan(text).error().message, HasSubstr("neither GGUF nor safetensors"));

  MemoryModel pickle;
  pickle.Add("pytorch_model.bin", std::string("PK\x03\x04", 4) + std::string(100, '\0'));
  const auto refused = Plan(pickle);
  ASSERT_THAT(refused, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(refused.error().message, HasSubstr("PyTorch"));
}

// A manifest, and C, could not hold such names.
TEST(Safetensors, ATensorNameThatIsEmptyOrHasANulIsRefused) {
  for (const char* name : {"", "a\\u0000b"}) {
    MemoryModel model;
    model.Add("m.safetensors", SafetensorsWriter().Add(name, "F32", {1}, "abcd").Finish());
    const auto plan = Plan(model);
    ASSERT_THAT(plan, FailsWith(Code::kCorrupt));
    EXPECT_THAT(plan.error().message, HasSubstr("without a NUL"));
  }
}

// As the safetensors package has it: blanks around the header are taken, nothing else is.
TEST(Safetensors, AHeaderIsJsonAndNothingMore) {
  using namespace std::string_literals;
  const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const auto plan = [](const std::string& text) {
    std::string file;
    sticky::testing::AppendRaw(file, static_cast<std::uint64_t>(text.size()));
    MemoryModel model;
    model.Add("m.safetensors", file + text + "abcd");
    return Plan(model);
  };
  for (const std::string& taken : {header, " \n" + header, header + " \n\t"}) {
    EXPECT_THAT(plan(taken), IsOk()) << taken;
  }
  for (const std::string& refused : {"\xef\xbb\xbf" + header, header + "\0"s, header + "\0 {}"s,
                                     header + header, header + "x"}) {
    EXPECT_THAT(plan(refused), FailsWith(Code::kCorrupt)) << refused;
  }
}

TEST(Safetensors, ADimensionPastAllNumbersIsNamed) {
  std::string file;
  const std::string header =
      R"({"a":{"dtype":"F32","shape":[99999999999999999999999],"data_offsets":[0,4]}})";
  sticky::testing::AppendRaw(file, static_cast<std::uint64_t>(header.size()));
  MemoryModel model;
  model.Add("m.safetensors", file + header + "abcd");
  const auto plan = Plan(model);
  ASSERT_THAT(plan, FailsWith(Code::kCorrupt));
  EXPECT_THAT(plan.error().message,
              HasSubstr("99999999999999999999999, which is not whole or too"));
}

// W08: the cap, and the header that passes it, are both in the message.
TEST(Safetensors, AHeaderPastTheLimitIsRefusedWithBothNumbers) {
  class HugeSource : public ByteSource {
   public:
    Status ReadAt(std::uint64_t, std::span<std::uint8_t> out) const override {
      const std::uint64_t length = 126'000'000;
      std::memcpy(out.data(), &length, std::min(out.size(), sizeof length));
      return Ok{};
    }
  };
  const HugeSource source;
  const SourceFile file{"huge.safetensors", 1ull << 40, &source};

  const auto plan = PlanLoad(std::span(&file, 1), {});

  ASSERT_THAT(plan, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(plan.error().message, HasSubstr("126000000"));
  EXPECT_THAT(plan.error().message, HasSubstr("100000000"));
}

}  // namespace
}  // namespace sticky::weights
