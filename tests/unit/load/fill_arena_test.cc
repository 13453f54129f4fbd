// FillArena writes what the plan says, every byte once, whatever the pieces and threads; and a file
// that changes while it is read is an error, never a SIGBUS and never silence. W03, W14, W21.

#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "daemon/load/digest_arena.h"
#include "daemon/load/fd_byte_source.h"
#include "daemon/load/load_model.h"
#include "tests/testing/matchers.h"
#include "tests/testing/memory_model.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace sticky::load {
namespace {

using sticky::testing::FailsWith;
using sticky::testing::GgufWriter;
using sticky::testing::IsOk;
using sticky::testing::MemoryModel;
using sticky::testing::RawBytes;
using sticky::testing::SafetensorsWriter;
using sticky::testing::TempDir;
using sticky::testing::TinyLlama;
using ::testing::HasSubstr;
using weights::LoadPlan;
using weights::PlanLoad;
using weights::PlannedTensor;

constexpr std::uint8_t kPoison = 0xA5;

struct Filled {
  Result<FillResult> result;
  std::vector<std::uint8_t> arena;
};

Filled Fill(const LoadPlan& plan, std::span<const weights::SourceFile> files,
            const FillOptions& options = {}) {
  std::vector<std::uint8_t> arena(plan.arena_bytes, kPoison);
  auto result = FillArena(plan, files, arena, options);
  return {std::move(result), std::move(arena)};
}

// The arena as ConvertRows makes it, tensor by tensor, zeros between.
std::vector<std::uint8_t> Expected(const LoadPlan& plan,
                                   std::span<const weights::SourceFile> files) {
  std::vector<std::uint8_t> arena(plan.arena_bytes, 0);
  for (const PlannedTensor& tensor : plan.tensors) {
    std::vector<std::uint8_t> stored(tensor.stored_bytes);
    EXPECT_THAT(files[tensor.file].bytes->ReadAt(tensor.file_offset, stored), IsOk());
    EXPECT_THAT(weights::ConvertRows(tensor, 0, weights::RowCount(tensor), stored,
                                     std::span(arena).subspan(tensor.offset, tensor.size_bytes)),
                IsOk());
  }
  for (const weights::PlannedAsset& asset : plan.assets) {
    std::copy(asset.bytes.begin(), asset.bytes.end(),
              arena.begin() + static_cast<std::ptrdiff_t>(asset.offset));
  }
  return arena;
}

// Quantised blocks of random bytes, whose two float16 numbers are small and finite.
std::string RandomBlocks(std::size_t count, std::size_t bytes, std::mt19937& rng) {
  std::string blocks;
  for (std::size_t i = 0; i < count * bytes; ++i) {
    const std::size_t within = i % bytes;
    const bool high_of_f16 = within == 1 || within == 3;
    blocks.push_back(static_cast<char>(high_of_f16 ? 0x2C : rng() & 0xFF));
  }
  return blocks;
}

// A llama whose tensors lie across several digest blocks of the arena: q and k with many heads.
std::string WideGguf() {
  std::mt19937 rng(3);
  constexpr std::int64_t kVocab = 1280, kHidden = 1056, kInner = 64, kQueries = 33 * 32;
  GgufWriter writer;
  writer.String("general.architecture", "llama")
      .Uint("llama.block_count", 1)
      .Uint("llama.context_length", 128)
      .Uint("llama.embedding_length", kHidden)
      .Uint("llama.feed_forward_length", kInner)
      .Uint("llama.attention.head_count", 33)
      .Uint("llama.attention.head_count_kv", 11)
      .Float("llama.rope.freq_base", 10000.0f)
      .Float("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  const auto add = [&](const char* name, std::int64_t rows, std::int64_t columns,
                       std::uint32_t type, std::size_t block_bytes) {
    writer.Tensor(name, {rows, columns}, type,
                  RandomBlocks(static_cast<std::size_t>(rows * columns) / 32, block_bytes, rng));
  };
  const std::string norm(kHidden * 4, '\0');
  add("token_embd.weight", kVocab, kHidden, 8, 34);
  writer.Tensor("blk.0.attn_norm.weight", {kHidden}, 0, norm);
  add("blk.0.attn_q.weight", kQueries, kHidden, 3, 20);
  add("blk.0.attn_k.weight", 11 * 32, kHidden, 2, 18);
  add("blk.0.attn_v.weight", 11 * 32, kHidden, 2, 18);
  add("blk.0.attn_output.weight", kHidden, kQueries, 3, 20);
  writer.Tensor("blk.0.ffn_norm.weight", {kHidden}, 0, norm);
  add("blk.0.ffn_gate.weight", kInner, kHidden, 3, 20);
  add("blk.0.ffn_up.weight", kInner, kHidden, 8, 34);
  add("blk.0.ffn_down.weight", kHidden, kInner, 3, 20);
  writer.Tensor("output_norm.weight", {kHidden}, 0, norm);
  return writer.Finish();
}

struct Way {
  const char* name;
  FillOptions options;
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

class FillArenaWays : public ::testing::TestWithParam<Way> {};

TEST_P(FillArenaWays, EveryByteIsWhatThePlanSaysAndTheDigestTheSame) {
  MemoryModel gguf;
  gguf.Add("m.gguf", WideGguf());
  for (const DtypeChoice dtype : {DtypeChoice::kF32, DtypeChoice::kBf16}) {
    const auto plan = PlanLoad(gguf.files(), {.dtype = dtype});
    ASSERT_THAT(plan, IsOk());
    ASSERT_GT(plan.value().arena_bytes, kDigestBlockBytes);  // or it would show little

    const Filled filled = Fill(plan.value(), gguf.files(), GetParam().options);

    ASSERT_THAT(filled.result, IsOk());
    EXPECT_TRUE(filled.arena == Expected(plan.value(), gguf.files()));
    EXPECT_EQ(ToHex(filled.result.value().content_digest), ToHex(DigestArena(filled.arena, 1)));
    EXPECT_EQ(ToHex(DigestArena(filled.arena, 1)), ToHex(DigestArena(filled.arena, 3)));
  }
}

std::string WayName(const ::testing::TestParamInfo<Way>& way) { return way.param.name; }

INSTANTIATE_TEST_SUITE_P(
    All, FillArenaWays,
    ::testing::Values(
        Way{"OneThread", {.thread_count = 1, .piece_bytes = 256u << 10, .progress = {}}},
        Way{"FourThreads", {.thread_count = 4, .piece_bytes = 256u << 10, .progress = {}}},
        Way{"TinyPieces", {.thread_count = 2, .piece_bytes = 1000, .progress = {}}},
        Way{"PiecesSmallerThanABlock", {.thread_count = 3, .piece_bytes = 7, .progress = {}}},
        Way{"HugePieces", {.thread_count = 2, .piece_bytes = 1u << 30, .progress = {}}}),
    WayName);

TEST(FillArena, BothFormatsOfOneModelGiveTheSameTensorBytes) {
  const TinyLlama tiny(/*bias=*/true);
  GgufWriter writer = TinyLlama::Metadata();
  tiny.AddTensors(writer);
  MemoryModel gguf, safetensors;
  gguf.Add("m.gguf", writer.Finish());
  safetensors.Add("model.safetensors", tiny.Safetensors().Finish())
      .Add("config.json", tiny.ConfigJson());
  std::map<std::string, std::vector<std::uint8_t>> tensors[2];
  int index = 0;
  for (const MemoryModel* model : {&gguf, &safetensors}) {
    const auto plan = PlanLoad(model->files(), {.dtype = DtypeChoice::kBf16});
    ASSERT_THAT(plan, IsOk());
    const Filled filled = Fill(plan.value(), model->files(), {.thread_count = 2, .progress = {}});
    ASSERT_THAT(filled.result, IsOk());
    for (const PlannedTensor& tensor : plan.value().tensors) {
      const auto begin = filled.arena.begin() + static_cast<std::ptrdiff_t>(tensor.offset);
      tensors[index][tensor.name].assign(begin,
                                         begin + static_cast<std::ptrdiff_t>(tensor.size_bytes));
    }
    ++index;
  }
  EXPECT_TRUE(tensors[0] == tensors[1]);
}

// W14: values of tensors that lie unaligned in their file.
TEST(FillArena, UnalignedTensorsAreReadRight) {
  MemoryModel model;
  model.AddFile(sticky::testing::CasesDir() / "fixtures" / "st" / "u8-then-f32.safetensors");
  const auto plan = PlanLoad(model.files(), {.dtype = DtypeChoice::kF32});
  ASSERT_THAT(plan, IsOk());

  const Filled filled = Fill(plan.value(), model.files());

  ASSERT_THAT(filled.result, IsOk());
  for (const PlannedTensor& tensor : plan.value().tensors) {
    if (tensor.name != "a") continue;
    float values[4];
    std::memcpy(values, filled.arena.data() + tensor.offset, sizeof values);
    EXPECT_THAT(values, ::testing::ElementsAre(1, 2, 3, 4));
  }
}

TEST(FillArena, ProgressOnlyGrowsAndEndsAtTheWholeArena) {
  MemoryModel gguf;
  gguf.Add("m.gguf", WideGguf());
  const auto plan = PlanLoad(gguf.files(), {.dtype = DtypeChoice::kF32});
  ASSERT_THAT(plan, IsOk());
  std::vector<std::uint64_t> seen;

  const Filled filled =
      Fill(plan.value(), gguf.files(),
           {.thread_count = 2, .progress = [&](std::uint64_t bytes) { seen.push_back(bytes); }});

  ASSERT_THAT(filled.result, IsOk());
  ASSERT_FALSE(seen.empty());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), plan.value().arena_bytes);
}

TEST(FillArena, AnotherByteAnywhereIsAnotherDigest) {
  std::vector<std::uint8_t> arena(3 * kDigestBlockBytes / 2, 7);
  const std::string before = ToHex(DigestArena(arena, 2));
  for (const std::size_t at : {std::size_t{0}, arena.size() / 2, arena.size() - 1}) {
    arena[at] ^= 1;
    EXPECT_NE(ToHex(DigestArena(arena, 2)), before) << at;
    arena[at] ^= 1;
  }
  EXPECT_EQ(ToHex(DigestArena(arena, 2)), before);
}

TEST(FillArena, AValueTooLargeForTheDtypeFailsNamingTheTensor) {
  MemoryModel model;
  model.Add(
      "m.safetensors",
      SafetensorsWriter().Add("w", "F32", {2}, RawBytes(std::vector<float>{1, 1e30f})).Finish());
  const auto plan = PlanLoad(model.files(), {.dtype = DtypeChoice::kF16});
  ASSERT_THAT(plan, IsOk());

  const Filled filled = Fill(plan.value(), model.files());

  ASSERT_THAT(filled.result, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(filled.result.error().message, HasSubstr("'w'"));
  EXPECT_THAT(filled.result.error().message, HasSubstr("f16"));
}

TEST(FillArena, APlanThatDoesNotHoldTogetherIsRefusedBeforeAnythingIsWritten) {
  MemoryModel model;
  model.Add("m.safetensors", SafetensorsWriter()
                                 .Add("a", "F32", {64}, std::string(256, 'a'))
                                 .Add("b", "F32", {64}, std::string(256, 'b'))
                                 .Finish());
  const LoadPlan good = PlanLoad(model.files(), {}).value();
  const std::vector<std::function<void(LoadPlan&)>> breaks = {
      [](LoadPlan& plan) { plan.tensors[1].offset = 0; },
      [](LoadPlan& plan) { plan.tensors[1].offset = 8; },
      [](LoadPlan& plan) { plan.tensors[1].offset = 1u << 20; },
      [](LoadPlan& plan) { plan.tensors[1].size_bytes = 255; },
      [](LoadPlan& plan) { plan.tensors[1].file = 1; },
      [](LoadPlan& plan) { plan.tensors[1].file_offset = ~0ull; },
      [](LoadPlan& plan) { plan.tensors[1].alias_of = 7; },
      [](LoadPlan& plan) { plan.tensors[1].alias_of = 0; },
      [](LoadPlan& plan) { plan.tensors[1].interleaved_head_count = 3; },
      [](LoadPlan& plan) {
        plan.assets.push_back({"x", 128, {1, 2, 3}});
      }};
  for (std::size_t i = 0; i < breaks.size(); ++i) {
    LoadPlan plan = good;
    breaks[i](plan);
    const Filled filled = Fill(plan, model.files());
    EXPECT_THAT(filled.result, FailsWith(Code::kInternal)) << "break " << i;
    EXPECT_TRUE(std::all_of(filled.arena.begin(), filled.arena.end(),
                            [](std::uint8_t byte) { return byte == kPoison; }));
  }
  std::vector<std::uint8_t> small(good.arena_bytes - 1);
  EXPECT_THAT(FillArena(good, model.files(), small, {}), FailsWith(Code::kInternal));
  EXPECT_THAT(Fill(good, model.files(), {.thread_count = 0, .progress = {}}).result,
              FailsWith(Code::kInvalidArgument));
}

// A source that does something to its file the first time data are read from it.
class HookedSource : public weights::ByteSource {
 public:
  HookedSource(const std::filesystem::path& path, std::uint64_t data_from,
               std::function<void()> hook)
      : source_(UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), path.filename().string()),
        data_from_(data_from),
        hook_(std::move(hook)) {}
  Status ReadAt(std::uint64_t offset, std::span<std::uint8_t> out) const override {
    if (armed_ && offset >= data_from_ && !done_.exchange(true)) hook_();
    return source_.ReadAt(offset, out);
  }
  Status CheckUnchanged() const override { return source_.CheckUnchanged(); }
  void Arm() { armed_ = true; }

 private:
  FdByteSource source_;
  std::uint64_t data_from_;
  std::function<void()> hook_;
  bool armed_ = false;
  mutable std::atomic<bool> done_{false};
};

class ChangedFile : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string Safetensors() {
    return SafetensorsWriter().Add("w", "F32", {1 << 20}, std::string(4u << 20, 'w')).Finish();
  }
};

// W03, W21: between the header and the data.
TEST_P(ChangedFile, IsALoadErrorThatNamesIt) {
  const TempDir dir;
  const std::filesystem::path path = dir.Write("m.safetensors", Safetensors());
  const std::string how = GetParam();
  HookedSource source(path, /*data_from=*/200, [&] {
    if (how == "truncated") std::filesystem::resize_file(path, 1u << 20);
    if (how == "emptied") std::filesystem::resize_file(path, 0);
    if (how == "grown") std::filesystem::resize_file(path, 8u << 20);
    if (how == "rewritten") {
      // An hour later, so that no clock's grain can hide it.
      const auto time = std::filesystem::last_write_time(path);
      std::filesystem::last_write_time(path, time + std::chrono::hours(1));
    }
  });
  const weights::SourceFile file{"m.safetensors", std::filesystem::file_size(path), &source};
  const auto plan = PlanLoad(std::span(&file, 1), {.dtype = DtypeChoice::kBf16});
  ASSERT_THAT(plan, IsOk());
  source.Arm();

  const Filled filled =
      Fill(plan.value(), std::span(&file, 1), {.thread_count = 2, .progress = {}});

  ASSERT_THAT(filled.result, FailsWith(Code::kCorrupt));
  EXPECT_THAT(filled.result.error().message, HasSubstr("'m.safetensors'"));
  EXPECT_THAT(filled.result.error().message, HasSubstr("changed while it was"));
}

INSTANTIATE_TEST_SUITE_P(All, ChangedFile,
                         ::testing::Values("truncated", "emptied", "grown", "rewritten"),
                         [](const ::testing::TestParamInfo<const char*>& how) {
                           return std::string(how.param);
                         });

TEST(FillArena, AFileThatIsReadOnlyAndStaysTheSameIsLoadedThroughItsDescriptor) {
  const TempDir dir;
  const TinyLlama tiny;
  const auto path = dir.Write("m.safetensors", tiny.Safetensors().Finish());
  const FdByteSource source(UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), "m.safetensors");
  const weights::SourceFile file{"m.safetensors", std::filesystem::file_size(path), &source};
  const auto plan = PlanLoad(std::span(&file, 1), {});
  ASSERT_THAT(plan, IsOk());

  const Filled filled = Fill(plan.value(), std::span(&file, 1));

  ASSERT_THAT(filled.result, IsOk());
  EXPECT_TRUE(filled.arena == Expected(plan.value(), std::span(&file, 1)));
}

}  // namespace
}  // namespace sticky::load
