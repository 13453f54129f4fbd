// A state is stale exactly when a load of today would read other files than it was loaded from;
// what cannot be looked at is unknown, and never called fresh.

#include "tools/stickyctl/staleness.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/temp_dir.h"

namespace sticky::stickyctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Verdict = Staleness::Verdict;

// A manifest of a state that was loaded from `sources`.
class Loaded {
 public:
  explicit Loaded(std::vector<wire::ManifestSource> sources) {
    wire::Manifest manifest;
    manifest.state = "smol";
    manifest.arena_bytes = {4096};
    manifest.sources = std::move(sources);
    bytes_ = wire::EncodeManifest(manifest);
  }
  wire::ManifestView manifest() const { return wire::ManifestView::Open(bytes_).value(); }

 private:
  std::vector<std::uint8_t> bytes_;
};

weights::OpenFile File(const std::string& name, std::uint64_t size_bytes, std::int64_t when_ns) {
  weights::OpenFile file;
  file.name = name;
  file.size_bytes = size_bytes;
  file.modified_ns = when_ns;
  return file;
}

Loaded TwoFiles() { return Loaded({{"model.safetensors", 100, 7}, {"config.json", 10, 8}}); }

TEST(Staleness, TheSameFilesInAnyOrderAreFresh) {
  const Loaded loaded = TwoFiles();
  const weights::OpenFile files[] = {File("config.json", 10, 8), File("model.safetensors", 100, 7)};

  const Staleness compared = CompareSources(loaded.manifest(), files);

  EXPECT_EQ(compared.verdict, Verdict::kFresh);
  EXPECT_EQ(compared.reason, "");
}

TEST(Staleness, EachKindOfChangeIsToldWithItsFile) {
  const Loaded loaded = TwoFiles();
  const auto reason = [&loaded](std::vector<weights::OpenFile> files) {
    const Staleness compared = CompareSources(loaded.manifest(), files);
    EXPECT_EQ(compared.verdict, Verdict::kStale);
    return compared.reason;
  };
  std::vector<weights::OpenFile> files;
  files.push_back(File("config.json", 10, 8));
  EXPECT_EQ(reason(std::move(files)), "'model.safetensors' is gone");
  files.clear();
  files.push_back(File("config.json", 10, 9));
  files.push_back(File("model.safetensors", 99, 7));
  EXPECT_EQ(reason(std::move(files)),
            "'model.safetensors' has 99 bytes, had 100; 'config.json' was written to");
  files.clear();
  files.push_back(File("config.json", 10, 8));
  files.push_back(File("model.safetensors", 100, 7));
  files.push_back(File("tokenizer.json", 5, 7));
  EXPECT_EQ(reason(std::move(files)), "'tokenizer.json' is new");
}

TEST(Staleness, ALongReasonNamesAFewAndCountsTheRest) {
  std::vector<wire::ManifestSource> sources(9, {"", 1, 1});
  for (std::size_t i = 0; i < sources.size(); ++i) sources[i].name = "shard-" + std::to_string(i);
  const Loaded loaded(sources);

  const Staleness compared = CompareSources(loaded.manifest(), {});

  EXPECT_THAT(compared.reason, HasSubstr("'shard-3' is gone; and 5 more"));
  EXPECT_THAT(compared.reason, Not(HasSubstr("shard-4")));
}

TEST(Staleness, WhatWasNotNotedOrCannotBeFoundByItsPathIsUnknown) {
  const Loaded unnoted({});
  const Loaded loaded = TwoFiles();

  EXPECT_EQ(CompareSources(unnoted.manifest(), {}).verdict, Verdict::kUnknown);
  EXPECT_EQ(CheckSources(loaded.manifest(), "models/smol").verdict, Verdict::kUnknown);
}

TEST(Staleness, AModelThatIsNoneAnyMoreIsStaleWithTheReason) {
  const sticky::testing::TempDir dir;
  const Loaded loaded = TwoFiles();

  const Staleness gone = CheckSources(loaded.manifest(), dir.path() / "no-such");
  const Staleness emptied = CheckSources(loaded.manifest(), dir.path());

  EXPECT_EQ(gone.verdict, Verdict::kStale);
  EXPECT_THAT(gone.reason, HasSubstr("no-such"));
  EXPECT_EQ(emptied.verdict, Verdict::kStale);
}

}  // namespace
}  // namespace sticky::stickyctl
