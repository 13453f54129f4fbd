// What outlives the daemon, decided without one: records, taking over, the end.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/daemon/core_rig.h"

namespace sticky::daemon {
namespace {

using ::testing::HasSubstr;
using wire::StatePhase;

constexpr std::uint32_t kStranger = 4242;

// A rig whose daemon has a keeper.
struct KeptRig : CoreRig {
  KeptRig() : CoreRig() {}
  explicit KeptRig(const Limits& limits) : CoreRig(limits) {}

  // As MakeReady, and kept.
  StateId MakeKept(const wire::LoadRequest& load, std::uint64_t bytes = 100) {
    Ask(1, 900, load);
    Plan(bytes);
    const StateId id = LastStarted();
    Keep(core.ArenaAllocated(id, "none", now_ns));
    Keep(core.Filled(id, Content(), /*huge_bytes=*/0, now_ns));
    record = Last<Publish>()->record;
    Keep(core.Published(id, /*is_kept=*/true, now_ns));
    Keep(core.LoaderGone(id, now_ns));
    return id;
  }
  // The record that the keeper has now.
  wire::StateRecord Record() const {
    const auto* const newer = Last<KeepRecord>();
    return newer != nullptr ? newer->record : record;
  }
  wire::StateRecord record;
};

void TakeOver(CoreRig& next, const wire::StateRecord& record, const wire::NodeRecord& node = {}) {
  next.core.Adopt(record, next.now_ns);
  next.Keep(next.core.Adopted({node, 0, 0, record.epoch}, next.now_ns));
}

TEST(NodeKept, TheNextDaemonHasTheStateWithAllThatWasKnownOfIt) {
  KeptRig before;
  before.Connect(1, kStranger);
  wire::LoadRequest load = CoreRig::Load("m");
  load.policy.idle_ms = 5000;
  load.policy.labels = {{"a", "b"}};
  load.source = "/models/m";
  before.MakeKept(load, 300);
  wire::StateInfo was = *before.InfoOf("m");

  CoreRig after;
  TakeOver(after, before.Record());

  wire::StateInfo is = *after.InfoOf("m");
  EXPECT_TRUE(is.kept);
  is.age_ms = was.age_ms = is.idle_ms = was.idle_ms = 0;
  EXPECT_EQ(is, was);
  EXPECT_EQ(after.core.used_bytes(), 300u);
  after.Connect(1, kStranger);
  after.Ask(1, 1, CoreRig::AttachTo("m"));
  EXPECT_EQ(after.Answer<wire::AttachReply>(1, 1)->epoch, was.epoch);
  EXPECT_EQ(after.MakeReady("other").value, 2u);
  EXPECT_EQ(after.InfoOf("other")->epoch, was.epoch + 1) << "epochs go on";
}

TEST(NodeKept, ChangesOfAStateAreRecorded) {
  KeptRig rig;
  rig.Connect(1);
  rig.MakeKept(CoreRig::Load("m"));

  rig.Ask(1, 1, wire::DrainRequest{"m"});
  EXPECT_TRUE(rig.Record().closed);
  rig.Ask(1, 2, wire::DrainRequest{"m", /*resume=*/true});
  EXPECT_FALSE(rig.Record().closed);
  wire::LoadRequest pinned = CoreRig::Load("m");
  pinned.policy.pin = true;
  rig.Ask(1, 3, pinned);
  EXPECT_TRUE(rig.Record().policy.pin);
  rig.Ask(1, 4, CoreRig::AttachTo("m"));
  rig.Ask(1, 5, wire::EvictRequest{"m"});
  EXPECT_TRUE(rig.Record().ending);
}

TEST(NodeKept, AnEvictedStateDoesNotComeBackToLife) {
  KeptRig before;
  before.Connect(1);
  before.MakeKept(CoreRig::Load("m"));
  before.Ask(1, 1, CoreRig::AttachTo("m"));
  before.Ask(1, 2, wire::EvictRequest{"m"});

  CoreRig after;
  TakeOver(after, before.Record());

  EXPECT_EQ(after.PhaseOf("m"), StatePhase::kClosing);
  const StateId id = after.Last<AskBorrowers>()->state;
  after.Keep(after.core.Borrowers(id, /*any=*/true, after.now_ns));
  EXPECT_EQ(after.core.used_bytes(), 100u) << "somebody maps it";
  after.Keep(after.core.Borrowers(id, /*any=*/false, after.now_ns));
  EXPECT_EQ(after.core.used_bytes(), 0u);
}

TEST(NodeKept, ADrainedNodeAndAnotherBudgetStay) {
  KeptRig before;
  before.Connect(1);
  before.Ask(1, 1, wire::DrainRequest{});
  before.Ask(1, 2, wire::BudgetRequest{555});

  CoreRig after;
  after.Keep(after.core.Adopted({before.Last<KeepNode>()->record, 0, 0, 0}, after.now_ns));

  EXPECT_EQ(after.core.budget_bytes(), 555u);
  after.Connect(1);
  after.Ask(1, 1, CoreRig::Load("m"));
  EXPECT_THAT(after.Answer<wire::Failure>(1, 1)->message, HasSubstr("is being drained"));
}

TEST(NodeKept, AStateOfAStickyTaskWaitsForItToHoldAgain) {
  KeptRig before;
  before.Connect(1);
  wire::LoadRequest load = CoreRig::Load("m", /*wait_ms=*/1000);
  load.hold = true;
  before.MakeKept(load);
  wire::AttachRequest hold = CoreRig::AttachTo("m");
  hold.hold = true;
  const std::int64_t patience_ns = CoreRig::DefaultLimits().hold_again_ns;

  CoreRig returned;
  TakeOver(returned, before.Record());
  returned.Connect(1);
  returned.Ask(1, 1, hold);
  returned.Tick(patience_ns + kMs);
  EXPECT_EQ(returned.PhaseOf("m"), StatePhase::kReady);
  returned.Disconnect(1);
  EXPECT_EQ(returned.PhaseOf("m"), StatePhase::kClosing);

  CoreRig missed;
  TakeOver(missed, before.Record());
  missed.Tick(patience_ns - kMs);
  EXPECT_EQ(missed.PhaseOf("m"), StatePhase::kReady);
  missed.Tick(2 * kMs);
  EXPECT_EQ(missed.PhaseOf("m"), StatePhase::kClosing);
}

TEST(NodeKept, ADerivedStateKeepsItsBaseInTheNextDaemonToo) {
  wire::StateRecord base;
  base.state = "base";
  base.epoch = 3;
  base.arena_bytes = 10;
  base.ending = true;
  wire::StateRecord derived = base;
  derived.state = "derived";
  derived.epoch = 4;
  derived.ending = false;
  derived.base = "base";
  derived.base_epoch = 3;

  CoreRig rig;
  rig.core.Adopt(base, rig.now_ns);
  TakeOver(rig, derived);

  EXPECT_EQ(rig.PhaseOf("base"), StatePhase::kDraining) << "it stays for what is derived from it";
  rig.Connect(1);
  rig.Ask(1, 1, wire::EvictRequest{"derived"});
  rig.Keep(rig.core.Borrowers(rig.Last<AskBorrowers>()->state, /*any=*/false, rig.now_ns));
  EXPECT_EQ(rig.PhaseOf("base"), StatePhase::kClosing);
}

TEST(NodeKept, WhatAnotherVersionKeptCountsAndIsTold) {
  CoreRig rig;
  rig.Keep(rig.core.Adopted({{}, 2, 700, 9}, rig.now_ns));
  rig.Connect(1);

  rig.Ask(1, 1, wire::StatusRequest{});

  EXPECT_EQ(rig.Answer<wire::StatusReply>(1, 1)->foreign_count, 2u);
  EXPECT_EQ(rig.core.used_bytes(), 700u);
  rig.Ask(1, 2, CoreRig::Load("m"));
  rig.Plan(400);
  EXPECT_THAT(rig.Answer<wire::LoadReply>(1, 2)->state.epoch, 10u);
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kFailed) << "700 of 1000 are taken";
}

TEST(NodeKept, WithoutItsKeeperNothingIsKept) {
  KeptRig rig;
  rig.Connect(1);
  rig.MakeKept(CoreRig::Load("m"));

  rig.Keep(rig.core.KeeperLost(rig.now_ns));

  EXPECT_FALSE(rig.InfoOf("m")->kept);
  rig.Ask(1, 1, wire::StatusRequest{});
  EXPECT_TRUE(rig.Answer<wire::StatusReply>(1, 1)->keeper_lost);
  rig.Ask(1, 2, wire::DrainRequest{"m"});
  EXPECT_EQ(rig.Count<KeepRecord>(), 0);
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kReady);
}

TEST(NodeKept, WhatChangesOnTheWayToTheKeeperIsRecordedWhenItIsThere) {
  KeptRig rig;
  rig.Connect(1);
  rig.Ask(1, 1, CoreRig::Load("m"));
  rig.Plan(100);
  const StateId id = rig.LastStarted();
  rig.Keep(rig.core.Filled(id, CoreRig::Content(), /*huge_bytes=*/0, rig.now_ns));
  rig.now_ns += 5 * kMs;
  rig.Ask(1, 2, wire::DrainRequest{"m"});
  EXPECT_EQ(rig.Count<KeepRecord>(), 0);

  rig.Keep(rig.core.Published(id, /*is_kept=*/true, rig.now_ns));

  ASSERT_EQ(rig.Count<KeepRecord>(), 1);
  EXPECT_TRUE(rig.Record().closed);
  EXPECT_EQ(rig.Record().ready_ns, rig.Last<Publish>()->record.ready_ns);
}

TEST(NodeKept, ABuildThatFailsOnTheWayToTheKeeperDoesNotComeBackToLife) {
  KeptRig rig;
  rig.Connect(1);
  rig.Ask(1, 1, wire::BuildRequest{.state = "b"});
  rig.Ask(1, 2, wire::BuildArenaRequest{200, 0});
  const StateId id = rig.Last<MakeBuildArena>()->state;
  rig.Keep(rig.core.BuildArenaMade(id, rig.now_ns));
  rig.Keep(rig.core.CommitAsked(ConnectionId{1}, 3, {}, /*tensor_count=*/1, rig.now_ns));
  rig.Keep(rig.core.Filled(id, CoreRig::Content(), /*huge_bytes=*/0, rig.now_ns));

  rig.Disconnect(1);  // and a child of the builder's goes on mapping it

  ASSERT_EQ(rig.Count<KeepRecord>(), 1);
  EXPECT_TRUE(rig.Record().ending);
  CoreRig after;
  TakeOver(after, rig.Record());
  EXPECT_EQ(after.PhaseOf("b"), StatePhase::kClosing);
  EXPECT_EQ(after.core.used_bytes(), 200u);
}

TEST(NodeShutdown, IsForTheNodesOwnerAndKeepsOnlyWhatIsKept) {
  KeptRig rig;
  rig.Connect(1);
  rig.Connect(2, kStranger);
  rig.MakeKept(CoreRig::Load("m"));

  rig.Ask(2, 1, wire::ShutdownRequest{});
  rig.Ask(1, 2, wire::ShutdownRequest{/*keep_states=*/true});

  EXPECT_EQ(rig.Answer<wire::Failure>(2, 1)->code, Code::kPermissionDenied);
  EXPECT_THAT(rig.Answer<wire::Failure>(1, 2)->message, HasSubstr("nothing keeps them"));
  EXPECT_EQ(rig.Count<Stop>(), 0);
  rig.Ask(1, 3, wire::ShutdownRequest{});
  EXPECT_EQ(rig.Answer<wire::ShutdownReply>(1, 3)->state_count, 1u);
  EXPECT_FALSE(rig.Last<Stop>()->keep_states);
}

}  // namespace
}  // namespace sticky::daemon
