// The page of `stickyctl top` and the lines of `stickyctl events`: what they tell, in which order,
// and that they keep to the screen.

#include "tools/stickyctl/render_top.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/stickyctl/render_events.h"

namespace sticky::stickyctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Users(std::uint32_t uid) { return uid == 1000 ? "alice" : Number(uid); }

wire::StateInfo State(const std::string& name, std::uint32_t lease_count, std::uint64_t idle_ms) {
  wire::StateInfo state;
  state.name = name;
  state.phase = wire::StatePhase::kReady;
  state.arena_bytes = 1ULL << 30;
  state.lease_count = lease_count;
  state.idle_ms = idle_ms;
  state.uid = 1000;
  return state;
}

TopPage SamplePage() {
  TopPage page;
  page.status.version = "1.2.3";
  page.status.pid = 7;
  page.status.nonce = 99;
  page.status.uptime_ms = 62'000;
  page.status.budget_bytes = 8ULL << 30;
  page.status.used_bytes = 2ULL << 30;
  page.status.state_count = 3;
  page.status.lease_count = 4;
  page.status.load_count = 1;
  page.status.queue_count = 2;
  page.status.connection_count = 5;
  page.status.connection_count_max = 4096;
  page.status.attach_total = 130;
  page.status.evict_total = 6;
  page.states = {State("idle", 0, 600'000), State("busy", 3, 0), State("warm", 0, 1000)};
  return page;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

TEST(RenderTop, APageTellsTheNodeAndItsStatesByUse) {
  TopPage page = SamplePage();
  wire::StatusReply earlier = page.status;
  earlier.uptime_ms = 60'000;
  earlier.attach_total = 105;

  EXPECT_EQ(TopText(page, &earlier, {}, Users),
            "stickyd 1.2.3, pid 7, up 1 min\n"
            "memory [#######.......................] 25%  2.00 GiB of 8.00 GiB, 6.00 GiB free\n"
            "states 3  leases 4  loads 1  queue 2  connections 5 of 4096\n"
            "attaches 130, 12.5 a second  evictions for room 6  refusals 0\n"
            "\n"
            "STATE  PHASE      SIZE  LEASES  HOLDS    IDLE  OWNER  LOAD\n"
            "busy   ready  1.00 GiB       3      0       -  alice  -\n"
            "warm   ready  1.00 GiB       0      0   1.0 s  alice  -\n"
            "idle   ready  1.00 GiB       0      0  10 min  alice  -\n");
}

TEST(RenderTop, ALoadTellsItsPlaceOrItsProgress) {
  TopPage page = SamplePage();
  page.states[0].phase = wire::StatePhase::kQueued;
  page.states[0].queue_place = 2;
  page.states[0].wanted_bytes = 4ULL << 30;
  page.states[2].phase = wire::StatePhase::kFilling;
  page.states[2].bytes_done = 1ULL << 29;

  const std::string text = TopText(page, nullptr, {}, Users);

  EXPECT_THAT(text, HasSubstr("queued, place 2"));
  EXPECT_THAT(text, HasSubstr("place 2 of the queue, needs 4.00 GiB\n"));
  EXPECT_THAT(text, HasSubstr("filling 50%"));
  EXPECT_THAT(text, HasSubstr("512.00 MiB of 1.00 GiB\n"));
}

TEST(RenderTop, ADrainCannotBeOverlooked) {
  TopPage page = SamplePage();
  page.status.draining = true;

  EXPECT_THAT(TopText(page, nullptr, {}, Users), HasSubstr("DRAINING"));
}

TEST(RenderTop, ThereIsNoRateWithoutAnEarlierPageOfTheSameDaemon) {
  const TopPage page = SamplePage();
  wire::StatusReply same = page.status;
  wire::StatusReply other = page.status;
  other.nonce = 98;
  other.uptime_ms = 10;

  EXPECT_THAT(TopText(page, nullptr, {}, Users), Not(HasSubstr("a second")));
  EXPECT_THAT(TopText(page, &same, {}, Users), Not(HasSubstr("a second"))) << "no time passed";
  EXPECT_THAT(TopText(page, &other, {}, Users), Not(HasSubstr("a second")));
}

TEST(RenderTop, AnEmptyDaemonAndOneOverItsBudgetAreRendered) {
  EXPECT_THAT(TopText({}, nullptr, {}, Users), HasSubstr("] 0%  0 B of 0 B, 0 B free"));
  TopPage page = SamplePage();
  page.status.used_bytes = page.status.budget_bytes + 1;
  EXPECT_THAT(TopText(page, nullptr, {}, Users),
              HasSubstr("[##############################] 100%"));
}

TEST(RenderTop, APageKeepsToTheScreenAtEverySize) {
  TopPage page = SamplePage();
  for (int i = 0; i < 50; ++i) page.states.push_back(State("s" + std::to_string(i), 0, 5));

  for (int rows = 1; rows < 70; rows += 3) {
    for (int columns = 1; columns < 120; columns += 7) {
      const std::vector<std::string> lines =
          LinesOf(TopText(page, nullptr, {columns, rows}, Users));
      EXPECT_LE(lines.size(), static_cast<std::size_t>(rows));
      for (const std::string& line : lines) {
        EXPECT_LE(line.size(), static_cast<std::size_t>(columns)) << line;
      }
    }
  }
  const std::vector<std::string> lines = LinesOf(TopText(page, nullptr, {80, 24}, Users));
  ASSERT_EQ(lines.size(), 24U);
  EXPECT_EQ(lines.back(), "... and 36 more") << "23 lines, 6 of them no states, show 17 of 53";
}

class RenderEvents : public ::testing::Test {
 protected:
  // NOLINTBEGIN(concurrency-mt-unsafe): no other thread is there.
  static void UseZone(const char* zone) {
    ::setenv("TZ", zone, 1);
    ::tzset();
  }
  static void TearDownTestSuite() {
    ::unsetenv("TZ");
    ::tzset();
  }
  // NOLINTEND(concurrency-mt-unsafe)
};

TEST_F(RenderEvents, TimeIsLocalWithItsOffset) {
  constexpr std::int64_t kTimeMs = 1'796'261'542'007;
  UseZone("UTC0");
  EXPECT_EQ(LocalTime(kTimeMs), "2026-12-03T01:32:22.007+00:00");
  UseZone("IST-5:30");
  EXPECT_EQ(LocalTime(kTimeMs), "2026-12-03T07:02:22.007+05:30");
  UseZone("NST3:30");
  EXPECT_EQ(LocalTime(kTimeMs), "2026-12-02T22:02:22.007-03:30");
  UseZone("UTC0");
  EXPECT_EQ(LocalTime(-1), "1969-12-31T23:59:59.999+00:00");
}

TEST_F(RenderEvents, EventsStandBelowTheirHeadingsAlsoWhenTheyComeLater) {
  UseZone("UTC0");
  EventTable table;
  wire::Event load{1, 1'796'261'542'007, wire::EventKind::kLoad, "smol", 3, 1000, 42, "/m.gguf"};
  wire::Event drain{2, 1'796'261'542'008, wire::EventKind::kDrain, "", 0, 1001, 0, ""};

  EXPECT_EQ(table.Headings() + table.Lines({load}, Users) + table.Lines({drain}, Users),
            "EVENT  TIME                           KIND            STATE         EPOCH  USER  "
            "      PID  TEXT\n"
            "    1  2026-12-03T01:32:22.007+00:00  load            smol              3  alice "
            "       42  /m.gguf\n"
            "    2  2026-12-03T01:32:22.008+00:00  drain           -                 -  1001  "
            "        -\n");
}

}  // namespace
}  // namespace sticky::stickyctl
