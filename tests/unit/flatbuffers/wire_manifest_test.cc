// A manifest round trips; lookups find what is there and nothing else; every damage, and every lie
// about places and shapes, is kCorrupt before anybody can follow it.

#include "flatbuffers/wire_manifest.h"

#include <random>

#include <gtest/gtest.h>
#include <unistd.h>

#include "flatbuffers/wire_manifest_generated.h"
#include "tests/testing/matchers.h"
#include "tests/unit/flatbuffers/sample_messages.h"

namespace sticky::wire {
namespace {

using ::flatbuffers::FlatBufferBuilder;
using sticky::testing::FailsWith;
using sticky::testing::IsOk;
using ::testing::HasSubstr;

Manifest Sample() {
  Manifest manifest;
  manifest.state = "llama-8b";
  manifest.device = "host";
  manifest.arena_bytes = {1 << 20, 4096};
  manifest.tensors = {
      {"a.weight", Dtype::kBf16, {4, 8}, 0, 0, 64},
      {"b.scalar", Dtype::kF32, {}, 1, 256, 4},
      {"c.empty", Dtype::kF32, {0, 7}, 0, 512, 0},
      {"tied", Dtype::kBf16, {32}, 0, 0, 64},
  };
  manifest.assets = {{"config.json", 0, 1024, 100}, {"vocabulary", 1, 512, 10}};
  manifest.content_digest = SampleDigest(1);
  manifest.template_digest = SampleDigest(2);
  manifest.epoch = 4;
  manifest.daemon_nonce = 99;
  manifest.notes = {"lm_head equals the embedding"};
  manifest.sources = {{"model.safetensors", 12345, 1'700'000'000'123'456'789}, {"config.json"}};
  return manifest;
}

// `text` with which opening `manifest` fails, or nothing when it opens.
std::string WhyRefused(const Manifest& manifest) {
  const std::vector<std::uint8_t> bytes = EncodeManifest(manifest);
  const Result<ManifestView> view = ManifestView::Open(bytes);
  if (view.ok()) return "";
  EXPECT_EQ(view.error().code, Code::kCorrupt);
  EXPECT_FALSE(DecodeManifest(bytes).ok());
  return view.error().message;
}

TEST(WireManifest, RoundTrips) {
  const Manifest sent = Sample();

  const Result<Manifest> got = DecodeManifest(EncodeManifest(sent));

  ASSERT_THAT(got, IsOk());
  EXPECT_EQ(got.value(), sent);
}

Manifest WholeFiles() {
  Manifest manifest;
  manifest.state = "index";
  manifest.device = "host";
  manifest.arena_bytes = {7, 4097};
  manifest.assets = {{"a", 1, 0, 4097}, {"b", 0, 0, 7}, {"empty", 0, 0, 0}};
  manifest.whole_files = true;
  return manifest;
}

TEST(WireManifest, AStateOfWholeFilesRoundTripsAndCostsWholePages) {
  const Manifest sent = WholeFiles();

  EXPECT_EQ(DecodeManifest(EncodeManifest(sent)).value(), sent);
  const auto page_bytes = static_cast<std::uint64_t>(::getpagesize());
  EXPECT_EQ(ArenaMemoryBytes(sent), page_bytes + (4097 + page_bytes - 1) / page_bytes * page_bytes);
  EXPECT_EQ(ArenaMemoryBytes(Sample()), (1u << 20) + 4096);
}

TEST(WireManifest, AWholeFileThatDoesNotFillAnArenaOfItsOwnIsCorrupt) {
  const std::vector<void (*)(Manifest&)> lies = {
      [](Manifest& manifest) { manifest.assets[1].size_bytes = 6; },
      [](Manifest& manifest) { manifest.arena_bytes[1] = 5000; },
      [](Manifest& manifest) {
        manifest.assets.push_back({"c", 0, 0, 7});
      },
      [](Manifest& manifest) { manifest.arena_bytes.push_back(9); },
      [](Manifest& manifest) { manifest.assets.clear(); },
      [](Manifest& manifest) {
        manifest.tensors = {{"t", Dtype::kU8, {7}, 0, 0, 7}};
      },
      [](Manifest& manifest) {
        manifest.assets[0] = {"a", 1, 256, 4097 - 256};
      },
  };
  EXPECT_EQ(WhyRefused(WholeFiles()), "");
  for (std::size_t i = 0; i < lies.size(); ++i) {
    Manifest manifest = WholeFiles();
    lies[i](manifest);
    EXPECT_NE(WhyRefused(manifest), "") << "lie " << i;
  }
}

TEST(WireManifest, ADraftHasNoDigests) {
  Manifest draft = Sample();
  draft.content_digest.reset();
  draft.template_digest.reset();
  draft.epoch = 0;

  EXPECT_EQ(DecodeManifest(EncodeManifest(draft)).value(), draft);
}

// Builders do not align empty vectors, wherever they end up.
TEST(WireManifest, ScalarsOpenWhateverIsBesideThem) {
  Manifest manifest = Sample();
  for (int i = 0; i < 20; ++i) {
    manifest.tensors.push_back(
        {"s" + std::string(static_cast<std::size_t>(i), 'x'), Dtype::kU8, {}, 0, 0, 1});
    EXPECT_EQ(WhyRefused(manifest), "");
  }
}

TEST(WireManifest, EncodingSortsByName) {
  Manifest manifest = Sample();
  std::swap(manifest.tensors[0], manifest.tensors[3]);
  std::swap(manifest.assets[0], manifest.assets[1]);

  EXPECT_EQ(DecodeManifest(EncodeManifest(manifest)).value(), Sample());
}

TEST(WireManifest, FindsEveryTensorAndAssetAndNothingElse) {
  Manifest manifest = Sample();
  for (int i = 0; i < 300; ++i) {
    manifest.tensors.push_back({"layer." + std::to_string(i), Dtype::kU8, {1}, 0, 256, 1});
  }
  const std::vector<std::uint8_t> bytes = EncodeManifest(manifest);
  const ManifestView view = ManifestView::Open(bytes).value();

  ASSERT_EQ(view.tensor_count(), manifest.tensors.size());
  for (const ManifestTensor& tensor : manifest.tensors) {
    const auto found = view.FindTensor(tensor.name);
    ASSERT_TRUE(found.has_value()) << tensor.name;
    EXPECT_EQ(found->name, tensor.name);
    EXPECT_EQ(found->offset, tensor.offset);
    EXPECT_EQ(std::vector(found->shape.begin(), found->shape.end()), tensor.shape);
  }
  for (const char* name : {"", "a", "a.weight.", "layer.", "zzz", "layer.300"}) {
    EXPECT_FALSE(view.FindTensor(name).has_value()) << name;
  }
  EXPECT_EQ(view.FindAsset("vocabulary")->size_bytes, 10u);
  EXPECT_FALSE(view.FindAsset("a.weight").has_value());
}

TEST(WireManifest, NotesAreReadInPlaceInTheirOrder) {
  Manifest manifest = Sample();
  manifest.notes = {"second thoughts", "first"};
  const std::vector<std::uint8_t> bytes = EncodeManifest(manifest);
  const ManifestView view = ManifestView::Open(bytes).value();

  ASSERT_EQ(view.note_count(), 2u);
  EXPECT_EQ(view.note(0), "second thoughts");
  EXPECT_EQ(view.note(1), "first");
}

TEST(WireManifest, SourcesAreReadInPlaceInTheirOrder) {
  const std::vector<std::uint8_t> bytes = EncodeManifest(Sample());
  const ManifestView view = ManifestView::Open(bytes).value();

  ASSERT_EQ(view.source_count(), 2u);
  EXPECT_EQ(view.source(0).name, "model.safetensors");
  EXPECT_EQ(view.source(0).size_bytes, 12345u);
  EXPECT_EQ(view.source(0).modified_ns, 1'700'000'000'123'456'789);
  EXPECT_EQ(view.source(1).name, "config.json");
}

TEST(WireManifest, SourcesPastTheirBoundsAreCorrupt) {
  Manifest manifest = Sample();
  manifest.sources.resize(kFileCountMax, {"shard", 1, 1});
  EXPECT_EQ(WhyRefused(manifest), "");
  manifest.sources.push_back({"shard", 1, 1});
  EXPECT_THAT(WhyRefused(manifest), HasSubstr("more sources"));
  manifest.sources = {{"", 1, 1}};
  EXPECT_THAT(WhyRefused(manifest), HasSubstr("overlong name"));
  manifest.sources = {{std::string(kFileNameBytesMax + 1, 'x'), 1, 1}};
  EXPECT_THAT(WhyRefused(manifest), HasSubstr("overlong name"));
}

TEST(WireManifest, AnEmptyStateOpens) {
  Manifest manifest;
  manifest.state = "a";
  manifest.arena_bytes = {4096};
  const std::vector<std::uint8_t> bytes = EncodeManifest(manifest);

  const ManifestView view = ManifestView::Open(bytes).value();

  EXPECT_EQ(view.tensor_count(), 0u);
  EXPECT_EQ(view.asset_count(), 0u);
  EXPECT_EQ(view.note_count(), 0u);
  EXPECT_FALSE(view.FindTensor("a").has_value());
  EXPECT_FALSE(view.content_digest().has_value());
}

TEST(WireManifest, EveryTruncationIsCorrupt) {
  const std::vector<std::uint8_t> whole = EncodeManifest(Sample());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::uint8_t> part(whole.begin(), whole.begin() + static_cast<long>(size));
    ASSERT_THAT(ManifestView::Open(part), FailsWith(Code::kCorrupt)) << size;
  }
}

TEST(WireManifest, ChangedBytesGiveCorruptOrPlacesInsideTheArenas) {
  const int seed = ::testing::UnitTest::GetInstance()->random_seed();
  RecordProperty("seed", seed);
  std::mt19937 random(static_cast<unsigned>(seed));
  const std::vector<std::uint8_t> honest = EncodeManifest(Sample());
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::uint8_t> bytes = honest;
    bytes[random() % bytes.size()] = static_cast<std::uint8_t>(random());
    const Result<ManifestView> view = ManifestView::Open(bytes);
    if (!view.ok()) {
      ASSERT_EQ(view.error().code, Code::kCorrupt);
      continue;
    }
    for (std::uint32_t i = 0; i < view.value().tensor_count(); ++i) {
      const TensorRef tensor = view.value().tensor(i);
      ASSERT_LE(tensor.offset + tensor.size_bytes, view.value().arena_bytes(tensor.arena));
    }
  }
}

TEST(WireManifest, ANewerLayoutIsRefusedByItsNumber) {
  FlatBufferBuilder builder;
  const auto state = builder.CreateString("a");
  fb::FinishSizePrefixedManifestBuffer(builder, fb::CreateManifest(builder, 2, state));
  const std::vector<std::uint8_t> bytes(builder.GetBufferPointer(),
                                        builder.GetBufferPointer() + builder.GetSize());

  const Result<ManifestView> view = ManifestView::Open(bytes);

  ASSERT_THAT(view, FailsWith(Code::kCorrupt));
  EXPECT_THAT(view.error().message, HasSubstr("version 2"));
}

TEST(WireManifest, DuplicatedNamesAreCorrupt) {
  Manifest manifest = Sample();
  manifest.tensors.push_back(manifest.tensors[0]);
  EXPECT_THAT(WhyRefused(manifest), HasSubstr("'a.weight' is there twice"));

  manifest = Sample();
  manifest.assets.push_back(manifest.assets[0]);
  EXPECT_THAT(WhyRefused(manifest), HasSubstr("'config.json' is there twice"));
}

TEST(WireManifest, UnsortedNamesAreCorrupt) {
  FlatBufferBuilder builder;
  const auto state = builder.CreateString("a");
  const auto arena_bytes = builder.CreateVector(std::vector<std::uint64_t>{4096});
  std::vector<::flatbuffers::Offset<fb::Tensor>> tensors;
  for (const char* name : {"b", "a"}) {
    const auto text = builder.CreateString(name);
    const auto shape = builder.CreateVector(std::vector<std::int64_t>{1});
    tensors.push_back(fb::CreateTensor(builder, text, fb::Dtype::U8, shape, 0, 0, 1));
  }
  const auto list = builder.CreateVector(tensors);
  fb::FinishSizePrefixedManifestBuffer(
      builder,
      fb::CreateManifest(builder, kManifestLayoutVersion, state, /*device=*/0, arena_bytes, list));
  const std::vector<std::uint8_t> bytes(builder.GetBufferPointer(),
                                        builder.GetBufferPointer() + builder.GetSize());

  const Result<ManifestView> view = ManifestView::Open(bytes);

  ASSERT_THAT(view, FailsWith(Code::kCorrupt));
  EXPECT_THAT(view.error().message, HasSubstr("'a' is out of order"));
}

TEST(WireManifest, PlacesOutsideTheArenaAreCorrupt) {
  const std::vector<ManifestTensor> outside = {
      {"t", Dtype::kU8, {4096}, 1, 256, 4096},             // past the end
      {"t", Dtype::kU8, {1}, 1, 4352, 1},                  // begins past the end
      {"t", Dtype::kU8, {1}, 1, 0xFFFFFFFFFFFFFF00, 1},    // the sum wraps
      {"t", Dtype::kU8, {1}, 2, 0, 1},                     // no such arena
      {"t", Dtype::kU8, {1}, 1, 4, 1},                     // not aligned
      {"t", Dtype::kU8, {1LL << 62}, 1, 256, 1ULL << 62},  // larger than all
  };
  for (const ManifestTensor& tensor : outside) {
    Manifest manifest = Sample();
    manifest.tensors = {tensor};
    EXPECT_THAT(WhyRefused(manifest), HasSubstr("tensor 't'")) << tensor.offset;
  }
  Manifest manifest = Sample();
  manifest.assets = {{"x", 1, 256, 4096}};
  EXPECT_THAT(WhyRefused(manifest), HasSubstr("asset 'x'"));
}

TEST(WireManifest, ShapesThatDoNotGiveTheSizeAreCorrupt) {
  const std::vector<ManifestTensor> wrong = {
      {"t", Dtype::kF32, {4}, 0, 0, 15},
      {"t", Dtype::kF32, {4}, 0, 0, 0},
      {"t", Dtype::kF32, {-4}, 0, 0, 16},
      {"t", Dtype::kF32, {1LL << 32, 1LL << 32}, 0, 0, 0},     // the product wraps to 0
      {"t", Dtype::kF32, {0, 1LL << 40, 1LL << 40}, 0, 0, 0},  // hidden by an extent of 0
      {"t", Dtype::kU8, {1LL << 62, 4}, 0, 0, 0},
      {"t", Dtype::kU8, {1, 1, 1, 1, 1, 1, 1, 1, 1}, 0, 0, 1},  // nine dimensions
      {"t", static_cast<Dtype>(13), {1}, 0, 0, 1},
      {"t", static_cast<Dtype>(-1), {1}, 0, 0, 1},
  };
  for (const ManifestTensor& tensor : wrong) {
    Manifest manifest = Sample();
    manifest.tensors = {tensor};
    EXPECT_THAT(WhyRefused(manifest), HasSubstr("tensor 't'")) << tensor.shape.size();
  }
}

TEST(WireManifest, BadNamesAreCorrupt) {
  for (const std::string& name :
       {std::string(), std::string(kTensorNameBytesMax + 1, 'n'), std::string("a\0b", 3)}) {
    Manifest manifest = Sample();
    manifest.tensors = {{name, Dtype::kU8, {1}, 0, 0, 1}};
    EXPECT_THAT(WhyRefused(manifest), HasSubstr("name"));
  }
  Manifest manifest = Sample();
  manifest.state = "no/state";
  EXPECT_THAT(WhyRefused(manifest), HasSubstr("names no state"));
}

TEST(WireManifest, BadArenasAreCorrupt) {
  for (const std::vector<std::uint64_t>& arenas :
       {std::vector<std::uint64_t>{}, std::vector<std::uint64_t>{0},
        std::vector<std::uint64_t>{kArenaBytesMax + 1},
        std::vector<std::uint64_t>(kArenaCountMax + 1, 4096)}) {
    Manifest manifest;
    manifest.state = "a";
    manifest.arena_bytes = arenas;
    EXPECT_THAT(WhyRefused(manifest), HasSubstr("arena"));
  }
}

TEST(WireManifest, CountsPastTheirMaximumAreCorrupt) {
  Manifest manifest = Sample();
  for (std::uint32_t i = 0; i < kAssetCountMax; ++i) {
    manifest.assets.push_back({"asset" + std::to_string(i), 0, 0, 0});
  }
  EXPECT_THAT(WhyRefused(manifest), HasSubstr("maximum"));

  manifest = Sample();
  manifest.notes.assign(kNoteCountMax + 1, "note");
  EXPECT_THAT(WhyRefused(manifest), HasSubstr("notes"));
}

}  // namespace
}  // namespace sticky::wire
