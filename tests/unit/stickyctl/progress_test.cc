// Progress of a load: a bar that rewrites its line on a terminal, few whole lines in a log.

#include "tools/stickyctl/progress.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sticky::stickyctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kSecondNs = 1'000'000'000;

wire::StateInfo Filling(std::uint64_t done_mib, std::uint64_t all_mib) {
  wire::StateInfo state;
  state.name = "smol";
  state.phase = wire::StatePhase::kFilling;
  state.bytes_done = done_mib << 20;
  state.arena_bytes = all_mib << 20;
  return state;
}

class ProgressTest : public ::testing::Test {
 protected:
  Progress Make(bool bar, int columns = 100) {
    return Progress({bar, columns}, [this](const std::string& text) { out_ += text; });
  }
  std::string out_;
};

TEST_F(ProgressTest, ABarTellsBytesRateAndTimeLeft) {
  Progress progress = Make(/*bar=*/true);
  progress.Show(Filling(0, 1024), 5 * kSecondNs);
  out_.clear();

  progress.Show(Filling(512, 1024), 7 * kSecondNs);

  EXPECT_EQ(out_,
            "\rsmol [############............]  50% 512.00 MiB of 1.00 GiB, 256.00 MiB/s, "
            "2.0 s left\x1b[K");
}

TEST_F(ProgressTest, ABarNeverWrapsAndIsWipedAtTheEnd) {
  Progress progress = Make(/*bar=*/true, /*columns=*/20);
  progress.Show(Filling(512, 1024), kSecondNs);
  EXPECT_EQ(out_, "\rsmol [############.\x1b[K");
  out_.clear();

  progress.End();

  EXPECT_EQ(out_, "\r\x1b[K");
}

TEST_F(ProgressTest, ALogGetsPlainLines) {
  Progress progress = Make(/*bar=*/false);

  progress.Show(Filling(0, 1000), 0);
  progress.Show(Filling(500, 1000), 2 * kSecondNs);
  progress.End();

  EXPECT_EQ(out_,
            "load 'smol': 0%, 0 B of 1000.00 MiB\n"
            "load 'smol': 50%, 500.00 MiB of 1000.00 MiB, 250.00 MiB/s, 2.0 s left\n");
  EXPECT_THAT(out_, Not(HasSubstr("\r")));
  EXPECT_THAT(out_, Not(HasSubstr("\x1b")));
}

TEST_F(ProgressTest, OfABuildTheMemoryIsToldAndThenWhatIsDigested) {
  Progress progress({.bar = false, .verb = "build"},
                    [this](const std::string& text) { out_ += text; });
  wire::StateInfo state = Filling(0, 1000);
  state.builder = "./make_it";

  progress.Show(state, 0);
  state.bytes_done = 500u << 20;
  progress.Show(state, 2 * kSecondNs);

  EXPECT_EQ(out_,
            "build 'smol': 1000.00 MiB of memory, being filled\n"
            "build 'smol': 50%, 500.00 MiB of 1000.00 MiB\n");
}

TEST_F(ProgressTest, ALogGetsAtMostOneLineASecondAndOneATenth) {
  Progress progress = Make(/*bar=*/false);
  constexpr std::int64_t kSteps = 1000;

  for (std::int64_t i = 0; i <= kSteps; ++i) {  // two seconds in all
    progress.Show(Filling(static_cast<std::uint64_t>(i), kSteps), i * 2 * kSecondNs / kSteps);
  }
  const auto in_two_seconds = std::count(out_.begin(), out_.end(), '\n');
  out_.clear();
  Progress slow = Make(/*bar=*/false);
  for (std::int64_t i = 0; i <= kSteps; ++i) {  // a second a step
    slow.Show(Filling(static_cast<std::uint64_t>(i), kSteps), i * kSecondNs);
  }

  EXPECT_LE(in_two_seconds, 3);
  EXPECT_GE(std::count(out_.begin(), out_.end(), '\n'), kSteps / 10);
  EXPECT_LE(std::count(out_.begin(), out_.end(), '\n'), kSteps / 10 + 11);
}

wire::StateInfo Queued(std::uint32_t place) {
  wire::StateInfo state;
  state.name = "smol";
  state.phase = wire::StatePhase::kQueued;
  state.queue_place = place;
  state.wanted_bytes = 4ULL << 30;
  return state;
}

TEST_F(ProgressTest, ABarTellsThePlaceInTheQueue) {
  Progress progress = Make(/*bar=*/true);

  progress.Show(Queued(2), 0);

  EXPECT_EQ(out_,
            "\rsmol [........................]   0% place 2 of the queue, needs 4.00 GiB\x1b[K");
}

TEST_F(ProgressTest, ALogGetsALineForEachNewPlaceInTheQueue) {
  Progress progress = Make(/*bar=*/false);

  progress.Show(Queued(3), 0);
  progress.Show(Queued(3), 1);
  progress.Show(Queued(2), 2);
  progress.Show(Queued(2), 3);

  EXPECT_EQ(out_,
            "load 'smol': place 3 of the queue, needs 4.00 GiB\n"
            "load 'smol': place 2 of the queue, needs 4.00 GiB\n");
}

TEST_F(ProgressTest, ALogOfALoadThatSucceededEndsWithAllOfIt) {
  Progress progress = Make(/*bar=*/false);
  progress.Show(Filling(0, 1000), 0);
  progress.Show(Filling(900, 1000), 1);

  progress.Done(1000ULL << 20);
  progress.Done(1000ULL << 20);

  EXPECT_EQ(out_,
            "load 'smol': 0%, 0 B of 1000.00 MiB\n"
            "load 'smol': 100%, 1000.00 MiB of 1000.00 MiB\n");
}

TEST_F(ProgressTest, TheEndIsNotToldTwiceAndNotOfALoadThatSaidNothing) {
  Progress silent = Make(/*bar=*/false);
  silent.Done(1 << 20);
  EXPECT_EQ(out_, "");
  Progress whole = Make(/*bar=*/false);
  whole.Show(Filling(1000, 1000), 0);

  whole.Done(1000ULL << 20);

  EXPECT_EQ(out_, "load 'smol': 100%, 1000.00 MiB of 1000.00 MiB\n");
  out_.clear();
  Progress bar = Make(/*bar=*/true);
  bar.Show(Filling(900, 1000), 0);
  out_.clear();
  bar.Done(1000ULL << 20);
  EXPECT_EQ(out_, "") << "a bar is wiped, and what follows says that the state is ready";
}

TEST_F(ProgressTest, PlanningHasNoNumbersYet) {
  Progress progress = Make(/*bar=*/false);
  wire::StateInfo state;
  state.name = "smol";
  state.phase = wire::StatePhase::kPlanning;

  progress.Show(state, 0);

  EXPECT_EQ(out_, "load 'smol': planning\n");
}

}  // namespace
}  // namespace sticky::stickyctl
