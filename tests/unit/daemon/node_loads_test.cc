// Loads: one load a template, over the budget nothing is allocated, a bad loader is one failed
// load with a reason, and a load that nobody waits for any more is cancelled.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/daemon/core_rig.h"

namespace sticky::daemon {
namespace {

using ::testing::HasSubstr;
using wire::StatePhase;

TEST(NodeLoads, LoadGoesFromPlanToReadyAndIsAnsweredOnce) {
  CoreRig rig;
  rig.Connect(1);

  rig.Ask(1, 5, CoreRig::Load("m", 1000));
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kPlanning);
  rig.Plan(400);
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kFilling);
  EXPECT_EQ(rig.core.used_bytes(), 400u);
  EXPECT_EQ(rig.Last<AllocateArena>()->arena_bytes, 400u);
  rig.Fill();

  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kReady);
  const auto* reply = rig.Answer<wire::LoadReply>(1, 5);
  ASSERT_NE(reply, nullptr);
  EXPECT_FALSE(reply->joined);
  EXPECT_EQ(reply->state.epoch, 1u);
  EXPECT_EQ(reply->state.content_digest, CoreRig::Content());
  EXPECT_EQ(rig.AnswerCount(1, 5), 1);
  EXPECT_EQ(rig.Last<Publish>()->daemon_nonce, kNonce);
}

TEST(NodeLoads, LoadThatDoesNotWaitIsAnsweredAtOnce) {
  CoreRig rig;
  rig.Connect(1);

  rig.Ask(1, 5, CoreRig::Load("m"));

  ASSERT_NE(rig.Answer<wire::LoadReply>(1, 5), nullptr);
  EXPECT_EQ(rig.Answer<wire::LoadReply>(1, 5)->state.phase, StatePhase::kPlanning);
}

TEST(NodeLoads, TwoLoadsOfOneTemplateAreOneLoad) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);

  rig.Ask(1, 5, CoreRig::Load("m", 1000));
  rig.Ask(2, 6, CoreRig::Load("m", 1000));
  rig.Plan(400);
  rig.Fill();

  EXPECT_EQ(rig.Count<StartLoader>(), 1);
  EXPECT_EQ(rig.Count<DropBundle>(), 1);
  ASSERT_NE(rig.Answer<wire::LoadReply>(2, 6), nullptr);
  EXPECT_TRUE(rig.Answer<wire::LoadReply>(2, 6)->joined);
}

TEST(NodeLoads, AnotherTemplateUnderTheNameIsRefusedWithBothDigests) {
  CoreRig rig;
  rig.Connect(1);
  rig.MakeReady("m");
  wire::LoadRequest other = CoreRig::Load("m");
  other.template_digest.bytes.fill(2);

  rig.Ask(1, 5, other);

  const auto* failure = rig.Answer<wire::Failure>(1, 5);
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->code, Code::kInvalidArgument);
  EXPECT_THAT(failure->message, HasSubstr(ToHex(other.template_digest)));
  EXPECT_THAT(failure->message, HasSubstr(ToHex(CoreRig::Load("m").template_digest)));
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kReady);
}

TEST(NodeLoads, LoadOverBudgetFailsBeforeItAllocatesWithBothNumbers) {
  CoreRig rig;
  rig.Connect(1);
  rig.MakeReady("a", 700);
  rig.Ask(1, 4, CoreRig::AttachTo("a"));  // so that it cannot make room

  rig.Ask(1, 5, CoreRig::Load("b"));
  rig.Plan(301);

  const std::vector<wire::StateInfo> states = rig.core.ListStates(rig.now_ns);
  ASSERT_EQ(states.size(), 2u);
  ASSERT_TRUE(states[1].failure.has_value());
  EXPECT_EQ(states[1].failure->code, Code::kOutOfMemory);
  EXPECT_THAT(states[1].failure->message, HasSubstr("needs 301 bytes"));
  EXPECT_THAT(states[1].failure->message,
              HasSubstr("left are 300 bytes (300 B) of the node's budget of 1000 bytes"));
  EXPECT_EQ(rig.Count<AllocateArena>(), 0);
  EXPECT_EQ(rig.Count<KillLoader>(), 1);
  EXPECT_EQ(rig.core.used_bytes(), 700u);
}

TEST(NodeLoads, PlanOfEveryByteThereIsFits) {
  CoreRig rig;
  rig.Connect(1);

  rig.Ask(1, 5, CoreRig::Load("m"));
  rig.Plan(1000);

  EXPECT_EQ(rig.Count<AllocateArena>(), 1);
}

TEST(NodeLoads, PlanOfAllBitsSetIsOverBudgetAndDoesNotWrapAround) {
  CoreRig rig;
  rig.Connect(1);
  rig.MakeReady("a", 700);

  rig.Ask(1, 5, CoreRig::Load("b"));
  rig.Plan(~std::uint64_t{0});

  EXPECT_EQ(rig.PhaseOf("b"), StatePhase::kFailed);
  EXPECT_EQ(rig.core.used_bytes(), 700u);
}

TEST(NodeLoads, FailedLoadTellsItsReasonUntilTheNextLoad) {
  CoreRig rig;
  rig.Connect(1);
  rig.Ask(1, 5, CoreRig::Load("m", 1000));
  rig.Plan(100);

  rig.FailLoader("bad header");

  EXPECT_EQ(rig.Answer<wire::Failure>(1, 5)->message, "load 'm': bad header");
  rig.Ask(1, 6, wire::ShowRequest{"m"});
  EXPECT_EQ(rig.Answer<wire::ShowReply>(1, 6)->state.failure->message, "load 'm': bad header");
  rig.Ask(1, 7, CoreRig::AttachTo("m"));
  EXPECT_THAT(rig.Answer<wire::Failure>(1, 7)->message, HasSubstr("bad header"));
  rig.Ask(1, 8, CoreRig::Load("m"));
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kPlanning);
}

TEST(NodeLoads, FailedLoadIsForgottenAfterAWhile) {
  CoreRig rig;
  rig.Connect(1);
  rig.Ask(1, 5, CoreRig::Load("m"));
  rig.FailLoader("x");

  rig.Tick(599'000 * kMs);
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kFailed);
  rig.Tick(2'000 * kMs);

  EXPECT_EQ(rig.PhaseOf("m"), std::nullopt);
}

TEST(NodeLoads, OnlySoManyFailedLoadsAreKept) {
  Limits limits = CoreRig::DefaultLimits();
  limits.failed_count_max = 3;
  CoreRig rig(limits);
  rig.Connect(1);

  for (int i = 0; i < 10; ++i) {
    rig.Ask(1, 5, CoreRig::Load("m" + std::to_string(i)));
    rig.FailLoader("x");
    rig.Keep(rig.core.LoaderGone(rig.LastStarted(), rig.now_ns));
  }

  EXPECT_EQ(rig.core.state_count(), 3u);
  EXPECT_EQ(rig.PhaseOf("m9"), StatePhase::kFailed);
}

TEST(NodeLoads, MemoryOfAFailedLoadIsFreeOnceItsLoaderIsGone) {
  CoreRig rig;
  rig.Connect(1);
  rig.Ask(1, 5, CoreRig::Load("m"));
  rig.Plan(800);

  rig.FailLoader("x");

  EXPECT_EQ(rig.core.used_bytes(), 800u);
  rig.Keep(rig.core.LoaderGone(rig.LastStarted(), rig.now_ns));
  EXPECT_EQ(rig.core.used_bytes(), 0u);
}

TEST(NodeLoads, LoadersThatCannotBeKilledAreBounded) {
  CoreRig rig;
  rig.Connect(1);

  for (std::uint32_t i = 0; i < 100; ++i) {
    rig.Ask(1, i, CoreRig::Load("m"));
    rig.FailLoader("x");
  }

  EXPECT_EQ(rig.Count<StartLoader>(), 16);
  EXPECT_THAT(rig.Answer<wire::Failure>(1, 99)->message, HasSubstr("cannot be killed"));
}

TEST(NodeLoads, SilentPlannerIsKilledAtItsDeadline) {
  CoreRig rig;
  rig.Connect(1);
  rig.Ask(1, 5, CoreRig::Load("m", 100'000));

  rig.Tick(59'000 * kMs);
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kPlanning);
  rig.Tick(2'000 * kMs);

  EXPECT_EQ(rig.Answer<wire::Failure>(1, 5)->code, Code::kUnavailable);
  EXPECT_THAT(rig.Answer<wire::Failure>(1, 5)->message, HasSubstr("60.0 s"));
  EXPECT_EQ(rig.Count<KillLoader>(), 1);
}

TEST(NodeLoads, FillThatRepeatsItselfHasStalled) {
  CoreRig rig;
  rig.Connect(1);
  rig.Ask(1, 5, CoreRig::Load("m", 1'000'000));
  rig.Plan(800);

  for (int i = 0; i < 62; ++i) {
    rig.Keep(rig.core.Progressed(rig.LastStarted(), 100, 100, rig.now_ns));
    rig.Tick(1'000 * kMs);
  }

  ASSERT_NE(rig.Answer<wire::Failure>(1, 5), nullptr);
  EXPECT_THAT(rig.Answer<wire::Failure>(1, 5)->message, HasSubstr("stalled"));
  EXPECT_THAT(rig.Answer<wire::Failure>(1, 5)->message, HasSubstr("100 of 800 bytes"));
}

TEST(NodeLoads, FillThatMovesIsNotKilled) {
  CoreRig rig;
  rig.Connect(1);
  rig.Ask(1, 5, CoreRig::Load("m", 1'000'000));
  rig.Plan(800);

  for (std::uint64_t done = 1; done <= 20; ++done) {
    rig.Keep(rig.core.Progressed(rig.LastStarted(), done, 800, rig.now_ns));
    rig.Tick(45'000 * kMs);
  }

  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kFilling);
}

TEST(NodeLoads, PagesThatBecomePresentAreASignOfLife) {
  CoreRig rig;
  rig.Connect(1);
  rig.Ask(1, 5, CoreRig::Load("m", 1'000'000));
  rig.Plan(800);

  for (std::uint64_t present = 1; present <= 20; ++present) {
    rig.Keep(rig.core.Progressed(rig.LastStarted(), 0, present, rig.now_ns));
    rig.Tick(45'000 * kMs);
  }

  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kFilling);
}

TEST(NodeLoads, HugePagesAreOnlyClaimedWhenTheKernelCountedThem) {
  for (const std::uint64_t huge_bytes : {0u, 100u, 700u}) {
    CoreRig rig;
    rig.Connect(1);
    rig.Ask(1, 5, CoreRig::Load("m", 1000));
    rig.Plan(800);
    const StateId id = rig.LastStarted();

    rig.Keep(rig.core.ArenaAllocated(id, "thp", rig.now_ns));
    rig.Keep(rig.core.Filled(id, CoreRig::Content(), huge_bytes, rig.now_ns));
    rig.Keep(rig.core.Published(id, /*is_kept=*/false, rig.now_ns));

    EXPECT_EQ(rig.Answer<wire::LoadReply>(1, 5)->state.huge_pages,
              huge_bytes == 700 ? "thp" : "none");
  }
}

TEST(NodeLoads, ProgressIsToldAboutTenTimesASecond) {
  CoreRig rig;
  rig.Connect(1);
  rig.Ask(1, 5, CoreRig::Load("m", 100'000));
  rig.Plan(1000);
  rig.actions.clear();

  const StateId id{1};
  for (std::uint64_t done = 1; done <= 1000; ++done) {
    rig.now_ns += kMs;
    rig.Keep(rig.core.Progressed(id, done, 1000, rig.now_ns));
  }

  EXPECT_GE(rig.Count<Send>(), 9);
  EXPECT_LE(rig.Count<Send>(), 11);
}

TEST(NodeLoads, LoadIsCancelledWhenItsOnlyWaiterDies) {
  CoreRig rig;
  rig.Connect(1);
  rig.Ask(1, 5, CoreRig::Load("m", 1000));
  rig.Plan(100);

  rig.Disconnect(1);

  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kFailed);
  EXPECT_EQ(rig.Count<KillLoader>(), 1);
  EXPECT_EQ(rig.Count<FreeArena>(), 1);
}

TEST(NodeLoads, ALoadThatWasGivenUpIsToldAsCancelledAndNotAsAFailure) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  rig.Ask(1, 5, CoreRig::Load("unwanted", 1000));
  rig.Plan(100);
  rig.Disconnect(1);
  rig.Ask(2, 5, CoreRig::Load("evicted"));
  rig.Plan(100);
  rig.Ask(2, 6, wire::EvictRequest{"evicted", 0});
  rig.Ask(2, 7, CoreRig::Load("bad"));
  rig.FailLoader("bad header");

  rig.Ask(2, 8, wire::EventsRequest{0, 0});

  EXPECT_TRUE(rig.InfoOf("unwanted")->cancelled);
  EXPECT_TRUE(rig.Answer<wire::EvictReply>(2, 6)->state.cancelled);
  EXPECT_FALSE(rig.InfoOf("bad")->cancelled);
  std::vector<std::string> cancelled;
  std::vector<std::string> failed;
  for (const wire::Event& event : rig.Answer<wire::EventsReply>(2, 8)->events) {
    if (event.kind == wire::EventKind::kLoadCancelled) cancelled.push_back(event.state);
    if (event.kind == wire::EventKind::kLoadFailed) failed.push_back(event.state);
  }
  EXPECT_EQ(cancelled, (std::vector<std::string>{"unwanted", "evicted"}));
  EXPECT_EQ(failed, (std::vector<std::string>{"bad"}));
}

TEST(NodeLoads, TimeInTheQueueIsToldApartFromTheTimeThatTheLoadTook) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  rig.MakeReady("old", 600);
  rig.Ask(2, 2, CoreRig::AttachTo("old"));
  rig.Ask(1, 5, CoreRig::Load("new", 60'000));
  rig.now_ns += 200 * kMs;  // headers are read
  rig.Plan(500);
  rig.Tick(3000 * kMs);
  EXPECT_EQ(rig.InfoOf("new")->queued_ms, 3000u) << "it waits";

  rig.Disconnect(2);
  rig.Ask(1, 6, wire::EvictRequest{"old", 0});
  rig.Keep(rig.core.Borrowers(rig.Last<AskBorrowers>()->state, /*any=*/false, rig.now_ns));
  rig.now_ns += 500 * kMs;
  rig.Fill();

  const auto* reply = rig.Answer<wire::LoadReply>(1, 5);
  ASSERT_NE(reply, nullptr);
  EXPECT_EQ(reply->state.queued_ms, 3000u);
  EXPECT_EQ(reply->state.load_ms, 700u);
}

TEST(NodeLoads, LoadGoesOnWhenAnotherStillWaits) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  rig.Ask(1, 5, CoreRig::Load("m", 1000));
  rig.Ask(2, 6, CoreRig::AttachTo("m", 1000));
  rig.Plan(100);

  rig.Disconnect(1);
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kFilling);
  rig.Fill();

  EXPECT_NE(rig.Answer<wire::AttachReply>(2, 6), nullptr);
}

TEST(NodeLoads, LoadThatNobodyWaitedForOutlivesItsRequester) {
  CoreRig rig;
  rig.Connect(1);
  rig.Ask(1, 5, CoreRig::Load("m"));

  rig.Disconnect(1);
  rig.Plan(100);
  rig.Fill();

  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kReady);
}

TEST(NodeLoads, WaiterIsAnsweredAtItsDeadlineAndTheLoadGoesOn) {
  CoreRig rig;
  rig.Connect(1);
  rig.Ask(1, 5, CoreRig::Load("m", 1000));
  rig.Plan(100);

  rig.Tick(1001 * kMs);

  EXPECT_EQ(rig.Answer<wire::Failure>(1, 5)->code, Code::kUnavailable);
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kFilling);
  rig.Disconnect(1);
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kFilling);
}

TEST(NodeLoads, OnlySoManyLoadsRunAtOnce) {
  CoreRig rig;
  rig.Connect(1);
  for (int i = 0; i < 4; ++i) rig.Ask(1, 5, CoreRig::Load("m" + std::to_string(i)));

  rig.Ask(1, 6, CoreRig::Load("more"));

  EXPECT_EQ(rig.Answer<wire::Failure>(1, 6)->code, Code::kUnavailable);
  EXPECT_EQ(rig.Count<StartLoader>(), 4);
}

TEST(NodeLoads, OnlySoManyStatesExist) {
  Limits limits = CoreRig::DefaultLimits();
  limits.state_count_max = 2;
  CoreRig rig(limits);
  rig.Connect(1);
  rig.MakeReady("a");
  rig.MakeReady("b");

  rig.Ask(1, 6, CoreRig::Load("c"));

  EXPECT_EQ(rig.Answer<wire::Failure>(1, 6)->code, Code::kOutOfMemory);
  EXPECT_EQ(rig.core.state_count(), 2u);
}

TEST(NodeLoads, LateWordsOfADeadLoaderChangeNothing) {
  CoreRig rig;
  rig.Connect(1);
  rig.Ask(1, 5, CoreRig::Load("m"));
  rig.Plan(100);
  const StateId id = rig.LastStarted();
  rig.FailLoader("x");
  rig.actions.clear();

  rig.Keep(rig.core.Planned(id, 100, 1, rig.now_ns));
  rig.Keep(rig.core.Progressed(id, 50, 50, rig.now_ns));
  rig.Keep(rig.core.Filled(id, CoreRig::Content(), 0, rig.now_ns));
  rig.Keep(rig.core.Published(id, /*is_kept=*/false, rig.now_ns));

  EXPECT_TRUE(rig.actions.empty());
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kFailed);
}

TEST(NodeLoads, ShutDownAnswersWhoeverWaitsAndTakesNoMoreWork) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  rig.MakeReady("ready");
  rig.Ask(1, 5, CoreRig::Load("m", 1000));
  rig.Ask(2, 6, CoreRig::AttachTo("m", 1000));

  rig.Keep(rig.core.ShutDown(rig.now_ns));

  EXPECT_EQ(rig.Answer<wire::Failure>(1, 5)->code, Code::kUnavailable);
  EXPECT_EQ(rig.Answer<wire::Failure>(2, 6)->code, Code::kUnavailable);
  EXPECT_EQ(rig.Count<KillLoader>(), 1);
  rig.Ask(1, 7, CoreRig::AttachTo("ready"));
  EXPECT_EQ(rig.Answer<wire::Failure>(1, 7)->code, Code::kUnavailable);
  rig.Ask(1, 8, CoreRig::Load("other"));
  EXPECT_EQ(rig.Answer<wire::Failure>(1, 8)->code, Code::kUnavailable);
}

TEST(NodeLoads, ALoadThatFailsWhenItsLoaderHasGoneGivesItsMemoryBack) {
  CoreRig rig;
  rig.Connect(1);
  rig.Ask(1, 5, CoreRig::Load("m", 60'000));
  rig.Plan(100);
  const StateId id = rig.LastStarted();
  rig.Keep(rig.core.Filled(id, CoreRig::Content(), /*huge_bytes=*/0, rig.now_ns));
  rig.Keep(rig.core.LoaderGone(id, rig.now_ns));

  rig.Ask(1, 6, wire::EvictRequest{"m"});  // before its keeper has it

  EXPECT_EQ(rig.Count<FreeArena>(), 1);
  EXPECT_EQ(rig.core.used_bytes(), 0U);
}

TEST(NodeLoads, ABuildThatIsOverdueFailsOnceAlsoWhileItsMemoryIsMapped) {
  Limits limits = CoreRig::DefaultLimits();
  limits.build_ns = limits.fill_stall_ns = 1000 * kMs;
  CoreRig rig(limits);
  rig.Connect(1);
  rig.Ask(1, 1, wire::BuildRequest{.state = "b"});
  rig.Ask(1, 2, wire::BuildArenaRequest{200, 0});
  const StateId id = rig.Last<MakeBuildArena>()->state;

  rig.Tick(1001 * kMs);  // neither were its pages made, nor was it committed
  rig.Keep(rig.core.Borrowers(id, /*any=*/true, rig.now_ns));
  rig.Tick(1001 * kMs);

  EXPECT_EQ(rig.PhaseOf("b"), StatePhase::kClosing);
  EXPECT_EQ(rig.Count<KillLoader>(), 1);
}

}  // namespace
}  // namespace sticky::daemon
