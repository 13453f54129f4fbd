// Whole files land in their arenas unchanged, and their digest covers names, sizes and bytes in
// order; a file's SHA-256 is checked beside that, and how far both are is one number that moves.

#include "daemon/load/whole_files.h"

#include <algorithm>
#include <atomic>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/load/progress_teller.h"
#include "daemon/load/sha256_check.h"
#include "tests/testing/matchers.h"
#include "tests/testing/memory_model.h"
#include "weights/sha256.h"

namespace sticky::load {
namespace {

using sticky::testing::FailsWith;
using sticky::testing::IsOk;
using sticky::testing::MemoryModel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Filled {
  Result<FillResult> result;
  std::vector<std::string> arenas;
};

Filled Fill(const MemoryModel& model, const FillOptions& options = {}) {
  std::vector<std::string> arenas;
  for (const std::uint64_t size_bytes : WholeFileArenas(model.files())) {
    arenas.emplace_back(size_bytes, '?');
  }
  std::vector<std::span<std::uint8_t>> spans;
  spans.reserve(arenas.size());
  for (std::string& arena : arenas) {
    spans.emplace_back(reinterpret_cast<std::uint8_t*>(arena.data()), arena.size());
  }
  return {FillWholeFiles(model.files(), spans, options), arenas};
}

std::string DigestOf(const MemoryModel& model) {
  const Filled filled = Fill(model);
  return filled.result.ok() ? ToHex(filled.result.value().content_digest) : "failed";
}

TEST(WholeFiles, EachLandsUnchangedInAnArenaOfItsOwnSize) {
  const std::string large((9u << 20) + 1, 'l');  // more than one digest block
  MemoryModel model;
  model.Add("z", large).Add("empty", "").Add("a", "x");
  std::vector<std::uint64_t> told;

  const Filled filled =
      Fill(model, {.thread_count = 3, .progress = [&](std::uint64_t b) { told.push_back(b); }});

  ASSERT_THAT(filled.result, IsOk());
  EXPECT_THAT(filled.arenas, ElementsAre(large, "x"));
  EXPECT_EQ(filled.result.value().bytes_read, large.size() + 1);
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back(), large.size() + 1);
}

TEST(WholeFiles, WhereAllAreEmptyThereIsOneArenaOfZeros) {
  MemoryModel model;
  model.Add("a", "").Add("b", "");

  EXPECT_THAT(Fill(model).arenas, ElementsAre(std::string(256, '\0')));
}

TEST(WholeFiles, TheDigestCoversNamesSizesBytesAndOrder) {
  const auto with = [](const char* name, const char* bytes, const char* other) {
    MemoryModel model;
    model.Add(name, bytes).Add("other", other);
    return DigestOf(model);
  };
  MemoryModel turned;
  turned.Add("other", "y").Add("a", "x");
  const std::string digest = with("a", "x", "y");

  EXPECT_EQ(with("a", "x", "y"), digest);
  EXPECT_NE(with("b", "x", "y"), digest);
  EXPECT_NE(with("a", "z", "y"), digest);
  EXPECT_NE(with("a", "", "xy"), digest);
  EXPECT_NE(with("a", "xy", ""), with("a", "x", "y"));
  EXPECT_NE(DigestOf(turned), digest);
}

TEST(WholeFiles, AFileThatEndsEarlyIsAnError) {
  MemoryModel model;
  model.Add("a", std::string(100, 'x'));
  model.source(0).bytes().resize(50);

  EXPECT_THAT(Fill(model).result, FailsWith(Code::kCorrupt));
}

// --- SHA-256 ------------------------------------------------------------------------------------

std::vector<ExpectedFile> AsTheyAre(const MemoryModel& model) {
  std::vector<ExpectedFile> expected;
  for (const weights::SourceFile& file : model.files()) {
    expected.push_back({file, weights::Sha256Of(file).value()});
  }
  return expected;
}

TEST(Sha256Check, PassesWhatIsAsExpectedAndReadsAllOfIt) {
  MemoryModel model;
  model.Add("a", std::string((3u << 20) + 7, 'a')).Add("b", "b").Add("c", "");
  std::atomic<std::uint64_t> read{0};

  Sha256Check check(AsTheyAre(model), /*thread_count=*/2,
                    [&](std::uint64_t more_bytes) { read += more_bytes; });

  EXPECT_THAT(check.Finish(), IsOk());
  EXPECT_EQ(read, (3u << 20) + 8);
}

TEST(Sha256Check, NamesTheFileThatDiffersWithBoth) {
  MemoryModel model;
  model.Add("good", "good").Add("bad\n", "bad");
  std::vector<ExpectedFile> expected = AsTheyAre(model);
  const std::string found = ToHex(expected[1].sha256);
  expected[1].sha256.bytes.fill(0xee);

  Sha256Check check(expected, /*thread_count=*/1, [](std::uint64_t) {});
  const Status finished = check.Finish();

  ASSERT_THAT(finished, FailsWith(Code::kCorrupt));
  EXPECT_THAT(finished.error().message, HasSubstr("'bad\\n': its SHA-256 is " + found));
  EXPECT_THAT(finished.error().message, HasSubstr("says " + std::string(64, 'e')));
}

TEST(Sha256Check, NothingToCheckIsDone) {
  Sha256Check check({}, /*thread_count=*/4, [](std::uint64_t) {});

  EXPECT_THAT(check.Finish(), IsOk());
}

// A file that never ends: whoever gives up must not have to wait for it.
TEST(Sha256Check, StopsWhenItIsDestroyed) {
  struct Endless : weights::ByteSource {
    Status ReadAt(std::uint64_t, std::span<std::uint8_t>) const override { return Ok{}; }
  };
  const Endless endless;
  std::atomic<bool> began{false};
  {
    Sha256Check check({{{"endless", std::uint64_t{1} << 60, &endless}, {}}}, /*thread_count=*/1,
                      [&](std::uint64_t) {
                        began = true;
                        began.notify_all();
                      });
    began.wait(false);
  }
  EXPECT_TRUE(began);
}

// --- progress -----------------------------------------------------------------------------------

TEST(ProgressTeller, ALoadThatOnlyChecksAnyMoreIsSeenToMove) {
  std::uint64_t done = 0;
  std::uint64_t present = 0;
  ProgressTeller progress({.memory_bytes = 1000, .checked_bytes = 1000, .interval_ns = 0},
                          [&](std::uint64_t d, std::uint64_t p) {
                            done = d;
                            present = p;
                          });

  progress.Present(400);
  EXPECT_EQ(done, 0u);
  EXPECT_EQ(present, 400u);
  progress.Filled(1000);
  EXPECT_EQ(done, 500u);
  EXPECT_EQ(present, 1000u);
  progress.Checked(600);
  EXPECT_EQ(done, 800u);
  progress.Checked(400);
  EXPECT_EQ(done, 1000u);
}

TEST(ProgressTeller, WithoutChecksWhatIsFilledIsDoneAndNotEveryStepIsTold) {
  int told = 0;
  std::uint64_t done = 0;
  ProgressTeller progress({.memory_bytes = 1000, .checked_bytes = 0, .interval_ns = INT64_MAX / 2},
                          [&](std::uint64_t d, std::uint64_t) {
                            done = d;
                            ++told;
                          });
  ProgressTeller every({.memory_bytes = 1000, .checked_bytes = 0, .interval_ns = 0},
                       [&](std::uint64_t d, std::uint64_t) { done = d; });

  progress.Filled(1);
  progress.Filled(2);
  every.Filled(999);

  EXPECT_LE(told, 1);
  EXPECT_EQ(done, 999u);
}

}  // namespace
}  // namespace sticky::load
