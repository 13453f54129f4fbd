// Memory: who makes room, who waits for it and in which order, and how long a state stays.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/core/eviction.h"
#include "tests/unit/daemon/core_rig.h"

namespace sticky::daemon {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using wire::StatePhase;

// --- the order ----------------------------------------------------------------------------------

TEST(ChooseVictims, LowestPriorityGoesFirstThenTheLeastRecentlyUsedThenTheLargest) {
  const std::vector<Candidate> candidates = {{StateId{1}, 0, 10, 100},
                                             {StateId{2}, -1, 50, 100},
                                             {StateId{3}, 0, 5, 100},
                                             {StateId{4}, 0, 10, 300}};

  EXPECT_THAT(ChooseVictims(candidates, 100), ElementsAre(StateId{2}));
  EXPECT_THAT(ChooseVictims(candidates, 200), ElementsAre(StateId{2}, StateId{3}));
  EXPECT_THAT(ChooseVictims(candidates, 500), ElementsAre(StateId{2}, StateId{3}, StateId{4}));
}

TEST(ChooseVictims, OneThatIsNotNeededAfterAllStays) {
  const std::vector<Candidate> candidates = {{StateId{1}, 0, 1, 10}, {StateId{2}, 0, 2, 500}};

  EXPECT_THAT(ChooseVictims(candidates, 400), ElementsAre(StateId{2}));
}

TEST(ChooseVictims, NobodyGoesForNothing) {
  const std::vector<Candidate> candidates = {{StateId{1}, 0, 1, 100}, {StateId{2}, 0, 2, 100}};

  EXPECT_THAT(ChooseVictims(candidates, 201), IsEmpty());
  EXPECT_THAT(ChooseVictims(candidates, 0), IsEmpty());
}

// --- room for a load ----------------------------------------------------------------------------

// The arena of a state that closes is found to be mapped by nobody.
void Free(CoreRig& rig) {
  const StateId id = rig.Last<AskBorrowers>()->state;
  rig.Keep(rig.core.Borrowers(id, /*any=*/false, rig.now_ns));
}

TEST(NodeRoom, AnUnusedStateMakesRoom) {
  CoreRig rig;
  rig.Connect(1);
  rig.MakeReady("old", 600);

  rig.Ask(1, 5, CoreRig::Load("new"));
  rig.Plan(500);

  EXPECT_EQ(rig.PhaseOf("old"), StatePhase::kClosing);
  EXPECT_EQ(rig.PhaseOf("new"), StatePhase::kQueued);
  EXPECT_EQ(rig.Count<AllocateArena>(), 0) << "nothing is allocated before the memory is free";
  Free(rig);
  EXPECT_EQ(rig.PhaseOf("old"), std::nullopt);
  EXPECT_EQ(rig.Count<AllocateArena>(), 1);
  EXPECT_EQ(rig.core.used_bytes(), 500u);
}

TEST(NodeRoom, AStateInUsePinnedAwaitedOrOfHigherPriorityStays) {
  CoreRig rig;
  rig.Connect(1);
  rig.MakeReady("leased", 100);
  rig.Ask(1, 2, CoreRig::AttachTo("leased"));
  wire::LoadRequest pinned = CoreRig::Load("pinned");
  pinned.policy.pin = true;
  rig.MakeReady(pinned, 100);
  wire::LoadRequest precious = CoreRig::Load("precious");
  precious.policy.priority = 1;
  rig.MakeReady(precious, 100);

  rig.Ask(1, 5, CoreRig::Load("new"));
  rig.Plan(800);

  for (const char* name : {"leased", "pinned", "precious"}) {
    EXPECT_EQ(rig.PhaseOf(name), StatePhase::kReady) << name;
  }
  const std::optional<wire::StateInfo> failed = rig.InfoOf("new");
  ASSERT_TRUE(failed && failed->failure);
  EXPECT_EQ(failed->failure->code, Code::kOutOfMemory);
  EXPECT_THAT(
      failed->failure->message,
      AllOf(HasSubstr("'leased' 100 B (leased by pid 101 of user 1000"),
            HasSubstr("'pinned' 100 B (pinned)"), HasSubstr("'precious' 100 B (of priority 1)")));
}

TEST(NodeRoom, ALoadThatWaitsGetsItsRoomWhenALeaseEnds) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  rig.MakeReady("old", 600);
  rig.Ask(2, 2, CoreRig::AttachTo("old"));

  rig.Ask(1, 5, CoreRig::Load("new", 60'000));
  rig.Plan(500);

  EXPECT_EQ(rig.PhaseOf("new"), StatePhase::kQueued);
  EXPECT_EQ(rig.InfoOf("new")->queue_place, 1u);
  EXPECT_EQ(rig.AnswerCount(1, 5), 0);
  rig.Disconnect(2);
  Free(rig);
  EXPECT_EQ(rig.PhaseOf("new"), StatePhase::kFilling);
}

TEST(NodeRoom, ASmallLoadDoesNotOvertakeALargeOne) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  rig.MakeReady("old", 600);
  rig.Ask(2, 2, CoreRig::AttachTo("old"));
  rig.Ask(1, 5, CoreRig::Load("large", 60'000));
  rig.Plan(900);

  rig.Ask(1, 6, CoreRig::Load("small", 60'000));
  rig.Plan(100);

  EXPECT_EQ(rig.InfoOf("large")->queue_place, 1u);
  EXPECT_EQ(rig.InfoOf("small")->queue_place, 2u);
  EXPECT_EQ(rig.Count<AllocateArena>(), 0);
}

TEST(NodeRoom, WhenTheHeadOfTheQueueDiesTheNextHasItsTurn) {
  CoreRig rig;
  for (std::uint64_t connection = 1; connection <= 3; ++connection) rig.Connect(connection);
  rig.MakeReady("old", 600);
  rig.Ask(2, 2, CoreRig::AttachTo("old"));
  rig.Ask(1, 5, CoreRig::Load("large", 60'000));
  rig.Plan(900);
  rig.Ask(3, 6, CoreRig::Load("small", 60'000));
  rig.Plan(100);

  rig.Disconnect(1);

  EXPECT_EQ(rig.PhaseOf("large"), StatePhase::kFailed);
  EXPECT_EQ(rig.PhaseOf("small"), StatePhase::kFilling);
}

TEST(NodeRoom, AWaitThatEndsInTheQueueSaysItsPlaceAndGivesItUp) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  rig.MakeReady("old", 600);
  rig.Ask(2, 2, CoreRig::AttachTo("old"));
  rig.Ask(1, 5, CoreRig::Load("new", 1000));
  rig.Plan(500);

  rig.Tick(1001 * kMs);

  const auto* failure = rig.Answer<wire::Failure>(1, 5);
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->code, Code::kOutOfMemory);
  EXPECT_THAT(failure->message, AllOf(HasSubstr("at place 1 of the queue"),
                                      HasSubstr("'old' 600 B (leased by pid 102"),
                                      HasSubstr("wait longer"), Not(HasSubstr("with --wait"))));
  EXPECT_EQ(rig.PhaseOf("new"), StatePhase::kFailed);
}

TEST(NodeRoom, WhatHoldsTheMemoryIsToldInUseFirstAndThenLargestFirst) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  wire::LoadRequest pinned = CoreRig::Load("small");
  pinned.policy.pin = true;
  rig.MakeReady(pinned, 50);
  pinned.state = "large";
  rig.MakeReady(pinned, 300);
  rig.MakeReady("leased", 100);
  rig.Ask(2, 2, CoreRig::AttachTo("leased"));

  rig.Ask(1, 5, CoreRig::Load("new", 1000));
  rig.Plan(900);
  rig.Tick(1001 * kMs);

  const std::string& text = rig.Answer<wire::Failure>(1, 5)->message;
  const std::size_t leased = text.find("'leased'");
  const std::size_t large = text.find("'large'");
  ASSERT_NE(text.find("'small'"), std::string::npos) << text;
  EXPECT_LT(leased, large) << text;
  EXPECT_LT(large, text.find("'small'")) << text;
}

TEST(NodeRoom, ALoadThatWaitsForItsPredecessorHoldsUpNobody) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  rig.MakeReady("mine", 100);
  rig.Ask(2, 1, CoreRig::AttachTo("mine"));
  wire::LoadRequest in_place = CoreRig::Load("mine", 1000);
  in_place.template_digest.bytes.fill(2);
  in_place.placement = wire::Placement::kInPlace;
  rig.Ask(1, 2, in_place);
  rig.Plan(100);

  rig.Ask(1, 3, CoreRig::Load("other"));
  rig.Plan(100);

  EXPECT_EQ(rig.PhaseOf("other"), StatePhase::kFilling);
  rig.Tick(1001 * kMs);
  EXPECT_THAT(rig.Answer<wire::Failure>(1, 2)->message,
              HasSubstr("which it is to replace in its place, has not gone: leased by pid 102"));
}

TEST(NodeRoom, WhoeverWaitsIsToldWhenTheirPlaceChanges) {
  CoreRig rig;
  for (std::uint64_t connection = 1; connection <= 3; ++connection) rig.Connect(connection);
  rig.MakeReady("old", 600);
  rig.Ask(2, 2, CoreRig::AttachTo("old"));
  rig.Ask(1, 5, CoreRig::Load("first", 60'000));
  rig.Plan(900);
  rig.Ask(3, 6, CoreRig::Load("second", 60'000));
  rig.Plan(800);
  ASSERT_EQ(rig.Answer<wire::LoadProgress>(3, 6)->state.queue_place, 2U);
  rig.Tick(200 * kMs);
  rig.actions.clear();
  rig.Tick(200 * kMs);
  EXPECT_EQ(rig.Answer<wire::LoadProgress>(3, 6), nullptr) << "nothing is told twice";

  rig.Disconnect(1);
  rig.Tick(200 * kMs);

  ASSERT_NE(rig.Answer<wire::LoadProgress>(3, 6), nullptr);
  EXPECT_EQ(rig.Answer<wire::LoadProgress>(3, 6)->state.queue_place, 1U);
}

TEST(NodeRoom, MemoryThatDoesNotComeFailsALoadThatNobodyWaitsFor) {
  CoreRig rig;
  rig.Connect(1);
  rig.MakeReady("old", 600);
  rig.Ask(1, 5, CoreRig::Load("new"));
  rig.Plan(500);

  rig.Keep(rig.core.Borrowers(rig.Last<AskBorrowers>()->state, /*any=*/true, rig.now_ns));
  rig.Tick(CoreRig::DefaultLimits().room_ns + kMs);

  const std::optional<wire::StateInfo> failed = rig.InfoOf("new");
  ASSERT_TRUE(failed && failed->failure);
  EXPECT_THAT(failed->failure->message, HasSubstr("still mapped by somebody"));
}

TEST(NodeRoom, MoreThanTheWholeBudgetIsRefusedHoweverLongOneWaits) {
  CoreRig rig;
  rig.Connect(1);

  rig.Ask(1, 5, CoreRig::Load("huge", 60'000));
  rig.Plan(1001);

  EXPECT_THAT(rig.Answer<wire::Failure>(1, 5)->message, HasSubstr("whole budget of 1000 bytes"));
}

// --- another budget -----------------------------------------------------------------------------

TEST(NodeBudget, WhatNobodyUsesGoesAndWhatIsInUseOrPinnedStaysOverIt) {
  CoreRig rig;
  rig.Connect(1);
  rig.MakeReady("used", 300);
  rig.Ask(1, 1, CoreRig::AttachTo("used"));
  wire::LoadRequest pinned = CoreRig::Load("pinned");
  pinned.policy.pin = true;
  rig.MakeReady(pinned, 200);
  rig.MakeReady("free", 400);

  rig.Ask(1, 2, wire::BudgetRequest{100});

  const auto* const status = rig.Answer<wire::StatusReply>(1, 2);
  ASSERT_NE(status, nullptr);
  EXPECT_EQ(status->budget_bytes, 100U);
  EXPECT_EQ(rig.PhaseOf("free"), StatePhase::kClosing);
  EXPECT_EQ(rig.PhaseOf("used"), StatePhase::kReady);
  EXPECT_EQ(rig.PhaseOf("pinned"), StatePhase::kReady);
  Free(rig);
  EXPECT_EQ(rig.core.used_bytes(), 500U);
  rig.Ask(1, 3, CoreRig::Load("new"));
  rig.Plan(50);
  EXPECT_EQ(rig.PhaseOf("new"), StatePhase::kFailed) << "nothing is loaded until the rest fits";
  rig.Disconnect(1);
  rig.Tick(kMs);
  EXPECT_EQ(rig.PhaseOf("used"), StatePhase::kClosing) << "it goes with its last lease";
  EXPECT_EQ(rig.PhaseOf("pinned"), StatePhase::kReady);
}

TEST(NodeBudget, NoMoreGoesThanMust) {
  CoreRig rig;
  rig.Connect(1);
  rig.MakeReady("old", 300);
  rig.now_ns += kMs;
  rig.MakeReady("young", 300);

  rig.Ask(1, 1, wire::BudgetRequest{500});

  EXPECT_EQ(rig.PhaseOf("old"), StatePhase::kClosing);
  EXPECT_EQ(rig.PhaseOf("young"), StatePhase::kReady);
}

TEST(NodeBudget, AWaitingLoadThatWillNeverFitFailsAndAHigherBudgetGivesRoom) {
  CoreRig rig;
  rig.Connect(1);
  rig.MakeReady("held", 600);
  rig.Ask(1, 1, CoreRig::AttachTo("held"));
  rig.Ask(1, 2, CoreRig::Load("large", 10'000));
  rig.Plan(900);
  rig.Ask(1, 3, CoreRig::Load("small", 10'000));
  rig.Plan(500);

  rig.Ask(1, 4, wire::BudgetRequest{800});
  EXPECT_THAT(rig.Answer<wire::Failure>(1, 2)->message, HasSubstr("the node's whole budget"));
  EXPECT_EQ(rig.PhaseOf("small"), StatePhase::kQueued);

  rig.Ask(1, 5, wire::BudgetRequest{1100});
  EXPECT_EQ(rig.PhaseOf("small"), StatePhase::kFilling);
}

TEST(NodeBudget, ABuilderIsToldThatItsArenaNeverFitsAndItsBuildGoesOn) {
  CoreRig rig;
  rig.Connect(1);
  rig.MakeReady("held", 600);
  rig.Ask(1, 1, CoreRig::AttachTo("held"));
  rig.Connect(2);
  rig.Ask(2, 1, wire::BuildRequest{.state = "b"});
  rig.Ask(2, 2, wire::BuildArenaRequest{200, 0});
  rig.Keep(rig.core.BuildArenaMade(rig.Last<MakeBuildArena>()->state, rig.now_ns));
  rig.Ask(2, 3, wire::BuildArenaRequest{900, 60'000});
  EXPECT_EQ(rig.Answer<wire::Failure>(2, 3)->code, Code::kOutOfMemory) << "with what it has";
  rig.Ask(2, 4, wire::BuildArenaRequest{700, 60'000});
  EXPECT_EQ(rig.AnswerCount(2, 4), 0);

  rig.Ask(1, 5, wire::BudgetRequest{850});

  EXPECT_THAT(rig.Answer<wire::Failure>(2, 4)->message,
              AllOf(HasSubstr("build 'b': needs 700 bytes"), HasSubstr("whole budget")));
  rig.Ask(2, 5, wire::BuildArenaRequest{50, 0});
  EXPECT_EQ(rig.Count<MakeBuildArena>(), 2) << "it may ask for less";
}

TEST(NodeBudget, ItIsForTheNodesOwner) {
  CoreRig rig;
  rig.Connect(2, kOurUid + 1);

  rig.Ask(2, 1, wire::BudgetRequest{1});
  rig.Ask(2, 2, wire::StatusRequest{});

  EXPECT_EQ(rig.Answer<wire::Failure>(2, 1)->code, Code::kPermissionDenied);
  EXPECT_EQ(rig.Answer<wire::StatusReply>(2, 2)->budget_bytes, 1000U);
}

TEST(NodeRoom, LoadsPastTheLimitWaitForTheirTurn) {
  Limits limits = CoreRig::DefaultLimits();
  limits.load_count_max = 1;
  CoreRig rig(limits);
  rig.Connect(1);
  rig.Ask(1, 5, CoreRig::Load("first", 60'000));

  rig.Ask(1, 6, CoreRig::Load("second", 60'000));

  EXPECT_EQ(rig.PhaseOf("second"), StatePhase::kQueued);
  EXPECT_EQ(rig.Count<StartLoader>(), 1);
  rig.Plan(100);
  rig.Fill();
  EXPECT_EQ(rig.PhaseOf("second"), StatePhase::kPlanning);
  EXPECT_EQ(rig.Count<StartLoader>(), 2);
}

TEST(NodeRoom, AQueuedLoadThatNobodyWaitsForDropsItsFiles) {
  Limits limits = CoreRig::DefaultLimits();
  limits.load_count_max = 1;
  CoreRig rig(limits);
  rig.Connect(1);
  rig.Connect(2);
  rig.Ask(1, 5, CoreRig::Load("first", 60'000));
  rig.Ask(2, 6, CoreRig::Load("second", 60'000));

  rig.Disconnect(2);

  EXPECT_EQ(rig.Count<DropBundle>(), 1);
  EXPECT_EQ(rig.PhaseOf("second"), StatePhase::kFailed);
}

TEST(NodeRoom, TheQueueIsBounded) {
  Limits limits = CoreRig::DefaultLimits();
  limits.load_count_max = 1;
  limits.queue_count_max = 1;
  CoreRig rig(limits);
  rig.Connect(1);
  rig.Ask(1, 5, CoreRig::Load("first", 60'000));
  rig.Ask(1, 6, CoreRig::Load("second", 60'000));

  rig.Ask(1, 7, CoreRig::Load("third", 60'000));

  ASSERT_NE(rig.Answer<wire::Failure>(1, 7), nullptr);
  EXPECT_THAT(rig.Answer<wire::Failure>(1, 7)->message, HasSubstr("limits.queue"));
}

TEST(NodeRoom, APlannedLoadRunsBeforeAnEarlierOneBegins) {
  Limits limits = CoreRig::DefaultLimits();
  limits.load_count_max = 1;
  CoreRig rig(limits);
  Installed installed;
  installed.name = "earlier";
  installed.build = BuildWhen::kAtStart;
  rig.Keep(rig.core.Install({installed}, kOurUid, rig.now_ns));
  rig.Connect(1);
  rig.Ask(1, 1, CoreRig::Load("planned", 60'000));
  rig.Ask(1, 2, CoreRig::Load("earlier", 60'000));

  rig.Plan(100);

  EXPECT_EQ(rig.PhaseOf("planned"), StatePhase::kFilling);
  EXPECT_EQ(rig.PhaseOf("earlier"), StatePhase::kQueued);
  EXPECT_EQ(rig.Count<StartLoader>(), 1);
}

TEST(NodeRoom, ALoadThatGetsItsRoomWaitsUntilItIsItsTurnAgain) {
  Limits limits = CoreRig::DefaultLimits();
  limits.load_count_max = 1;
  CoreRig rig(limits);
  rig.Connect(1);
  rig.Connect(2);
  rig.MakeReady("old", 900);
  rig.Ask(2, 1, CoreRig::AttachTo("old"));
  rig.Ask(1, 2, CoreRig::Load("large", 60'000));
  rig.Plan(500);
  const StateId large = rig.LastStarted();
  rig.Ask(1, 3, CoreRig::Load("small", 60'000));
  const StateId small = rig.LastStarted();
  EXPECT_EQ(rig.PhaseOf("small"), StatePhase::kPlanning) << "one waits for room, one runs";

  rig.Disconnect(2);
  rig.Ask(1, 4, wire::EvictRequest{"old"});
  rig.Keep(rig.core.Borrowers(rig.Last<AskBorrowers>()->state, /*any=*/false, rig.now_ns));

  EXPECT_EQ(rig.PhaseOf("large"), StatePhase::kQueued);
  rig.Keep(rig.core.LoaderFailed(small, Error{Code::kCorrupt, "x"}, rig.now_ns));
  EXPECT_EQ(rig.PhaseOf("large"), StatePhase::kFilling);
  EXPECT_EQ(rig.Last<AllocateArena>()->state, large);
}

TEST(NodeRoom, WhatWaitsForRoomCountsAgainstTheMemoryOfItsUser) {
  constexpr std::uint32_t kUser = 4242;
  Limits limits = CoreRig::DefaultLimits();
  limits.user.memory_bytes = 600;
  CoreRig rig(limits);
  rig.Connect(1);
  rig.Connect(2, kUser);
  wire::LoadRequest pinned = CoreRig::Load("old");
  pinned.policy.pin = true;
  rig.MakeReady(pinned, 900);
  rig.Ask(2, 1, CoreRig::Load("a", 60'000));
  rig.Plan(400);
  rig.Ask(2, 2, CoreRig::Load("b", 60'000));

  rig.Plan(400);

  EXPECT_EQ(rig.PhaseOf("a"), StatePhase::kQueued);
  ASSERT_NE(rig.Answer<wire::Failure>(2, 2), nullptr);
  EXPECT_THAT(rig.Answer<wire::Failure>(2, 2)->message, HasSubstr("limits.per_user.memory"));
}

// --- how long a state stays ---------------------------------------------------------------------

TEST(NodeLifetime, AnIdleStateGoesWhenNobodyUsedItForSoLong) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  wire::LoadRequest load = CoreRig::Load("m");
  load.policy.idle_ms = 1000;
  rig.MakeReady(load, 100);
  rig.Ask(2, 2, CoreRig::AttachTo("m"));

  rig.Tick(5000 * kMs);
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kReady) << "it is in use";
  rig.Disconnect(2);
  rig.Tick(999 * kMs);
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kReady);
  rig.Tick(1 * kMs);

  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kClosing);
}

TEST(NodeLifetime, AStateWhoseTimeIsUpTakesNoNewLeasesAndGoesWithItsLast) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  wire::LoadRequest load = CoreRig::Load("m");
  load.policy.ttl_ms = 1000;
  rig.MakeReady(load, 100);
  rig.Ask(2, 2, CoreRig::AttachTo("m"));

  rig.Tick(1000 * kMs);

  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kDraining);
  rig.Ask(1, 3, CoreRig::AttachTo("m"));
  EXPECT_EQ(rig.Answer<wire::Failure>(1, 3)->code, Code::kUnavailable);
  rig.Disconnect(2);
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kClosing);
}

TEST(NodeLifetime, APinnedStateIsNeverIdle) {
  CoreRig rig;
  rig.Connect(1);
  wire::LoadRequest load = CoreRig::Load("m");
  load.policy.idle_ms = 1000;
  load.policy.pin = true;
  rig.MakeReady(load, 100);

  rig.Tick(100'000 * kMs);

  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kReady);
}

TEST(NodeLifetime, MaxLeasesOfATemplateAreKept) {
  CoreRig rig;
  rig.Connect(1);
  wire::LoadRequest load = CoreRig::Load("m");
  load.policy.lease_count_max = 1;
  rig.MakeReady(load, 100);
  rig.Ask(1, 2, CoreRig::AttachTo("m"));

  rig.Ask(1, 3, CoreRig::AttachTo("m"));

  ASSERT_NE(rig.Answer<wire::Failure>(1, 3), nullptr);
  EXPECT_THAT(rig.Answer<wire::Failure>(1, 3)->message, HasSubstr("max_leases"));
}

}  // namespace
}  // namespace sticky::daemon
