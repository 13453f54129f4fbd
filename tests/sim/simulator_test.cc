// Random histories of the daemon's core, with every invariant checked after each event. A history
// is drawn from its seed alone: STICKY_SIM_SEED=N (and STICKY_SIM_EVENTS=N) plays one again and
// prints it; STICKY_SIM_FIRST=N takes other seeds than those of every day.

#include <cstdlib>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "tests/sim/history.h"

namespace sticky::daemon::sim {
namespace {

constexpr unsigned kSeedsPerTest = 64;

std::optional<std::uint64_t> FromEnvironment(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  return std::strtoull(text, nullptr, 10);
}

std::uint64_t EventCount() {
  return FromEnvironment("STICKY_SIM_EVENTS").value_or(HistoryOptions{}.event_count);
}

class Simulator : public ::testing::TestWithParam<unsigned> {};

TEST_P(Simulator, InvariantsHoldAfterEachEventOfManyHistories) {
  if (FromEnvironment("STICKY_SIM_SEED")) GTEST_SKIP() << "one seed was asked for";
  const std::uint64_t first =
      FromEnvironment("STICKY_SIM_FIRST").value_or(1) + std::uint64_t{GetParam()} * kSeedsPerTest;
  Counts sum;
  for (unsigned i = 0; i < kSeedsPerTest; ++i) {
    const HistoryOptions options{.seed = static_cast<unsigned>(first + i),
                                 .event_count = EventCount()};

    const Outcome outcome = RunHistory(options);

    ASSERT_FALSE(outcome.violation) << TextOf(options, *outcome.violation);
    sum += outcome.counts;
  }
  // They were not idle.
  RecordProperty("events", static_cast<int>(sum.events));
  EXPECT_GT(sum.published, sum.events / 200);
  EXPECT_GT(sum.attached, sum.events / 200);
  EXPECT_GT(sum.freed, sum.events / 200);
  EXPECT_GT(sum.restarts, sum.events / 1000);
  EXPECT_GT(sum.taken_over, sum.events / 2000);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Simulator, ::testing::Range(0u, 8u));

TEST(SimulatorHistory, OneSeedIsPlayedAgainAndPrinted) {
  const auto seed = FromEnvironment("STICKY_SIM_SEED");
  if (!seed) GTEST_SKIP() << "no STICKY_SIM_SEED";
  const HistoryOptions options{
      .seed = static_cast<unsigned>(*seed), .event_count = EventCount(), .verbose = true};

  const Outcome outcome = RunHistory(options);

  EXPECT_FALSE(outcome.violation) << TextOf(options, *outcome.violation);
}

TEST(SimulatorHistory, AHistoryIsDrawnFromItsSeedAlone) {
  const HistoryOptions options{.seed = 7, .event_count = 1000};

  const Outcome once = RunHistory(options);
  const Outcome again = RunHistory(options);

  EXPECT_EQ(once.counts.events, again.counts.events);
  EXPECT_EQ(once.counts.attached, again.counts.attached);
  EXPECT_EQ(once.counts.freed, again.counts.freed);
}

}  // namespace
}  // namespace sticky::daemon::sim
