// The simulator catches bugs: each kind is planted between the core and its outside, and the
// invariant that it breaks is found broken within a few thousand events.

#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/sim/history.h"

namespace sticky::daemon::sim {
namespace {

constexpr std::uint64_t kEventsMax = 8000;  // of all histories that were needed

struct Planted {
  const char* name;
  Fault fault;
  Invariant invariant;                  // that shows it
  std::optional<Invariant> other = {};  // that shows it too, if it comes first
};

constexpr Planted kPlanted[] = {
    {"AnswerLost", Fault::kDropSend, Invariant::kOneAnswer},
    {"AnswerSentTwice", Fault::kSendTwice, Invariant::kOneAnswer},
    {"AnswerToNobody", Fault::kSendToNobody, Invariant::kDeadPeer},
    {"MemoryNotFreed", Fault::kDropFree, Invariant::kUsedBytes, Invariant::kWithinBudget},
    {"LeasedStateFreed", Fault::kFreeEarly, Invariant::kNotInUse},
    {"OtherBytesThanCounted", Fault::kAllocateMore, Invariant::kUsedBytes},
    {"MoreBytesThanTheBudget", Fault::kAllocateTooMuch, Invariant::kWithinBudget},
    {"ShownBeforeItIsSealed", Fault::kShowEarly, Invariant::kPublishedOnly},
    {"PublishedStateLentWritable", Fault::kLendWritable, Invariant::kPublishedOnly},
    {"RecordForgotten", Fault::kForgetRecord, Invariant::kKeptRecord, Invariant::kToldIsKept},
    {"NodeRecordForgotten", Fault::kForgetNode, Invariant::kKeptRecord, Invariant::kToldIsKept},
    {"ToldBeforeTheKeeperKnows", Fault::kTellFirst, Invariant::kToldIsKept},
    {"LoaderNotKilled", Fault::kLeaveLoader, Invariant::kNothingLeft},
    {"FilesNotClosed", Fault::kLeakBundle, Invariant::kNothingLeft},
    {"DeathNotNoticed", Fault::kHideDeath, Invariant::kDeadPeer},
    {"TimeNotNoticed", Fault::kHideTicks, Invariant::kInTime},
    {"EndOfALoaderNotNoticed", Fault::kHideReaped, Invariant::kNothingLeft, Invariant::kUsedBytes},
    {"BorrowerOverlooked", Fault::kDenyBorrowers, Invariant::kNotInUse},
    {"KeptWithoutTheKeeper", Fault::kClaimKept, Invariant::kKeptRecord},
    {"EvictedStateRevived", Fault::kReviveEnding, Invariant::kTakenOver},
    {"OtherDigestTakenOver", Fault::kWrongDigest, Invariant::kTakenOver},
    {"KeptStateLost", Fault::kLoseKept, Invariant::kTakenOver},
};

class PlantedBug : public ::testing::TestWithParam<Planted> {};

TEST_P(PlantedBug, IsCaughtByItsInvariant) {
  std::uint64_t events = 0;
  std::optional<Violation> caught;
  HistoryOptions options{.seed = 0, .event_count = 1000, .fault = GetParam().fault};
  while (!caught && events < kEventsMax) {
    ++options.seed;
    const Outcome outcome = RunHistory(options);
    caught = outcome.violation;
    events += outcome.counts.events;
  }

  ASSERT_TRUE(caught) << "not within " << events << " events";
  EXPECT_LE(events, kEventsMax);
  EXPECT_TRUE(caught->invariant == GetParam().invariant || caught->invariant == GetParam().other)
      << "want: " << Name(GetParam().invariant) << "\n"
      << TextOf(options, *caught);
  RecordProperty("caught", Format("after %llu events: ", static_cast<unsigned long long>(events)) +
                               caught->text);
}

INSTANTIATE_TEST_SUITE_P(EachKind, PlantedBug, ::testing::ValuesIn(kPlanted),
                         [](const auto& planted) { return std::string(planted.param.name); });

TEST(PlantedBugs, WithoutOneTheSameHistoriesAreClean) {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    const HistoryOptions options{.seed = seed, .event_count = 1000};
    const Outcome outcome = RunHistory(options);
    ASSERT_FALSE(outcome.violation) << TextOf(options, *outcome.violation);
  }
}

}  // namespace
}  // namespace sticky::daemon::sim
