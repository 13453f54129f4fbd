// Leases: a leased state is never freed, a dead peer holds nothing, and memory counts until nobody
// maps it any more.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/daemon/core_rig.h"

namespace sticky::daemon {
namespace {

using ::testing::HasSubstr;
using wire::StatePhase;

wire::LoadRequest HoldLoad(const std::string& state) {
  wire::LoadRequest request = CoreRig::Load(state, 1000);
  request.hold = true;
  return request;
}

wire::AttachRequest Hold(const std::string& state) {
  wire::AttachRequest request = CoreRig::AttachTo(state);
  request.hold = true;
  return request;
}

TEST(NodeLeases, AttachGrantsALeaseAndHandsOutTheState) {
  CoreRig rig;
  rig.Connect(1);
  const StateId id = rig.MakeReady("m");

  rig.Ask(1, 5, CoreRig::AttachTo("m"));

  const auto* send = rig.Last<Send>();
  ASSERT_NE(send, nullptr);
  EXPECT_EQ(send->attachment, Attachment::kState);
  EXPECT_EQ(send->state, id);
  const auto& reply = std::get<wire::AttachReply>(send->message.body);
  EXPECT_TRUE(reply.arena_bytes.empty()) << "the sizes go with the descriptors, from outside";
  EXPECT_EQ(rig.core.leases().CountOn(id), 1u);
}

TEST(NodeLeases, DeadPeerHoldsNothing) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  const StateId id = rig.MakeReady("m");
  rig.Ask(2, 5, CoreRig::AttachTo("m"));
  rig.Ask(2, 6, CoreRig::AttachTo("m"));

  rig.Disconnect(2);

  EXPECT_EQ(rig.core.leases().CountOn(id), 0u);
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kReady);
  EXPECT_EQ(rig.Count<FreeArena>(), 0);
}

TEST(NodeLeases, UnknownStateIsNotFoundAtOnceEvenWithAWait) {
  CoreRig rig;
  rig.Connect(1);

  rig.Ask(1, 5, CoreRig::AttachTo("m", 1000));

  EXPECT_EQ(rig.Answer<wire::Failure>(1, 5)->code, Code::kNotFound);
}

TEST(NodeLeases, AttachWithoutWaitToALoadingStateIsUnavailable) {
  CoreRig rig;
  rig.Connect(1);
  rig.Ask(1, 4, CoreRig::Load("m"));

  rig.Ask(1, 5, CoreRig::AttachTo("m"));

  EXPECT_EQ(rig.Answer<wire::Failure>(1, 5)->code, Code::kUnavailable);
}

TEST(NodeLeases, WaitingAttachIsAnsweredWhenTheLoadFails) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  rig.Ask(1, 4, CoreRig::Load("m"));
  rig.Ask(2, 5, CoreRig::AttachTo("m", 1000));

  rig.FailLoader("bad");

  EXPECT_EQ(rig.Answer<wire::Failure>(2, 5)->code, Code::kCorrupt);
}

TEST(NodeLeases, AnotherDigestIsRefusedWithBoth) {
  CoreRig rig;
  rig.Connect(1);
  rig.MakeReady("m");
  wire::AttachRequest request = CoreRig::AttachTo("m");
  request.digest = Digest{};

  rig.Ask(1, 5, request);

  const auto* failure = rig.Answer<wire::Failure>(1, 5);
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->code, Code::kCorrupt);
  EXPECT_THAT(failure->message, HasSubstr(ToHex(Digest{})));
  EXPECT_THAT(failure->message, HasSubstr(ToHex(CoreRig::Content())));
  EXPECT_EQ(rig.core.leases().count(), 0u);
}

TEST(NodeLeases, LeasesPastTheLimitAreRefused) {
  Limits limits = CoreRig::DefaultLimits();
  limits.lease_count_max = 2;
  CoreRig rig(limits);
  rig.Connect(1);
  rig.MakeReady("m");
  rig.Ask(1, 5, CoreRig::AttachTo("m"));
  rig.Ask(1, 6, CoreRig::AttachTo("m"));

  rig.Ask(1, 7, CoreRig::AttachTo("m"));

  EXPECT_EQ(rig.Answer<wire::Failure>(1, 7)->code, Code::kOutOfMemory);
  EXPECT_EQ(rig.core.leases().count(), 2u);
}

TEST(NodeLeases, RequestsThatWaitAreBounded) {
  Limits limits = CoreRig::DefaultLimits();
  limits.waiter_count_max = 3;
  CoreRig rig(limits);
  rig.Connect(1);
  rig.Ask(1, 1, CoreRig::Load("m"));

  for (std::uint32_t id = 10; id < 20; ++id) rig.Ask(1, id, CoreRig::AttachTo("m", 1000));

  EXPECT_EQ(rig.core.waiter_count(), 3u);
  EXPECT_EQ(rig.Answer<wire::Failure>(1, 19)->code, Code::kUnavailable);
}

TEST(NodeLeases, LendThatFailedEndsTheLease) {
  CoreRig rig;
  rig.Connect(1);
  rig.MakeReady("m");
  rig.Ask(1, 5, CoreRig::AttachTo("m"));

  rig.Keep(rig.core.LendFailed(rig.Last<Send>()->lease, rig.now_ns));

  EXPECT_EQ(rig.core.leases().count(), 0u);
}

TEST(NodeLeases, LeasesSayWhoHoldsWhat) {
  CoreRig rig;
  rig.Connect(1);
  rig.MakeReady("m");
  rig.Ask(1, 5, Hold("m"));
  rig.now_ns += 3000 * kMs;

  rig.Ask(1, 6, wire::LeasesRequest{});

  const auto* reply = rig.Answer<wire::LeasesReply>(1, 6);
  ASSERT_NE(reply, nullptr);
  ASSERT_EQ(reply->leases.size(), 1u);
  EXPECT_EQ(reply->leases[0].state, "m");
  EXPECT_EQ(reply->leases[0].pid, 101u);
  EXPECT_EQ(reply->leases[0].age_ms, 3000u);
  EXPECT_TRUE(reply->leases[0].hold);
}

// --- evict --------------------------------------------------------------------------------------

TEST(NodeEvict, UnleasedStateIsFreedAndTheAnswerSaysSo) {
  CoreRig rig;
  rig.Connect(1);
  const StateId id = rig.MakeReady("m");

  rig.Ask(1, 5, wire::EvictRequest{"m", 0});
  EXPECT_EQ(rig.Count<AskBorrowers>(), 1);
  EXPECT_EQ(rig.AnswerCount(1, 5), 0);
  rig.Keep(rig.core.Borrowers(id, /*any=*/false, rig.now_ns));

  ASSERT_NE(rig.Answer<wire::EvictReply>(1, 5), nullptr);
  EXPECT_TRUE(rig.Answer<wire::EvictReply>(1, 5)->freed);
  EXPECT_EQ(rig.PhaseOf("m"), std::nullopt);
  EXPECT_EQ(rig.core.used_bytes(), 0u);
  EXPECT_EQ(rig.Count<FreeArena>(), 1);
}

TEST(NodeEvict, LeasedStateDrainsAndIsFreedAtTheLastRelease) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  const StateId id = rig.MakeReady("m");
  rig.Ask(2, 4, CoreRig::AttachTo("m"));

  rig.Ask(1, 5, wire::EvictRequest{"m", 0});
  const auto* reply = rig.Answer<wire::EvictReply>(1, 5);
  ASSERT_NE(reply, nullptr);
  EXPECT_FALSE(reply->freed);
  ASSERT_EQ(reply->leases.size(), 1u);
  EXPECT_EQ(reply->leases[0].pid, 102u);
  rig.Ask(1, 6, CoreRig::AttachTo("m"));
  EXPECT_EQ(rig.Answer<wire::Failure>(1, 6)->code, Code::kUnavailable);
  EXPECT_EQ(rig.Count<FreeArena>(), 0);
  rig.Disconnect(2);
  rig.Keep(rig.core.Borrowers(id, false, rig.now_ns));

  EXPECT_EQ(rig.Count<FreeArena>(), 1);
  EXPECT_EQ(rig.core.state_count(), 0u);
}

TEST(NodeEvict, WaitingEvictIsAnsweredWhenTheMemoryIsFree) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  const StateId id = rig.MakeReady("m");
  rig.Ask(2, 4, CoreRig::AttachTo("m"));
  rig.Ask(1, 5, wire::EvictRequest{"m", 1000});
  EXPECT_EQ(rig.AnswerCount(1, 5), 0);

  rig.Disconnect(2);
  rig.Keep(rig.core.Borrowers(id, true, rig.now_ns));
  EXPECT_EQ(rig.AnswerCount(1, 5), 0);
  rig.Keep(rig.core.Borrowers(id, false, rig.now_ns));

  ASSERT_NE(rig.Answer<wire::EvictReply>(1, 5), nullptr);
  EXPECT_TRUE(rig.Answer<wire::EvictReply>(1, 5)->freed);
}

TEST(NodeEvict, WaitingEvictIsToldWhoHoldsItAtItsDeadline) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  rig.MakeReady("m");
  rig.Ask(2, 4, CoreRig::AttachTo("m"));
  rig.Ask(1, 5, wire::EvictRequest{"m", 1000});

  rig.Tick(1001 * kMs);

  ASSERT_NE(rig.Answer<wire::EvictReply>(1, 5), nullptr);
  EXPECT_FALSE(rig.Answer<wire::EvictReply>(1, 5)->freed);
  EXPECT_EQ(rig.Answer<wire::EvictReply>(1, 5)->leases.size(), 1u);
}

TEST(NodeEvict, MemoryCountsUntilNobodyMapsIt) {
  CoreRig rig;
  rig.Connect(1);
  const StateId id = rig.MakeReady("m", 800);
  rig.Ask(1, 5, wire::EvictRequest{"m", 0});

  rig.Keep(rig.core.Borrowers(id, /*any=*/true, rig.now_ns));

  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kClosing);
  EXPECT_EQ(rig.core.used_bytes(), 800u);
  ASSERT_NE(rig.Answer<wire::EvictReply>(1, 5), nullptr);
  EXPECT_FALSE(rig.Answer<wire::EvictReply>(1, 5)->freed);
  EXPECT_TRUE(rig.core.NeedsTicks());
  const int asked = rig.Count<AskBorrowers>();
  rig.Tick(60 * kMs);
  EXPECT_EQ(rig.Count<AskBorrowers>(), asked + 1);
}

TEST(NodeEvict, ClosingStateHasGivenItsNameBack) {
  CoreRig rig;
  rig.Connect(1);
  const StateId id = rig.MakeReady("m", 400);
  rig.Ask(1, 5, wire::EvictRequest{"m", 0});
  rig.Keep(rig.core.Borrowers(id, /*any=*/true, rig.now_ns));

  rig.Ask(1, 6, CoreRig::Load("m"));
  rig.Plan(400);

  EXPECT_EQ(rig.Count<AllocateArena>(), 1);
  EXPECT_EQ(rig.core.used_bytes(), 800u);
  rig.Keep(rig.core.Borrowers(id, /*any=*/false, rig.now_ns));
  EXPECT_EQ(rig.core.used_bytes(), 400u);
}

TEST(NodeEvict, LoadThatRunsIsCancelled) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  rig.Ask(2, 4, CoreRig::Load("m", 1000));

  rig.Ask(1, 5, wire::EvictRequest{"m", 0});

  EXPECT_TRUE(rig.Answer<wire::EvictReply>(1, 5)->freed);
  EXPECT_EQ(rig.Answer<wire::Failure>(2, 4)->code, Code::kUnavailable);
  EXPECT_EQ(rig.PhaseOf("m"), std::nullopt);
}

TEST(NodeEvict, PinnedStateGoesWhenItsOwnerSaysSo) {
  CoreRig rig;
  rig.Connect(1);
  wire::LoadRequest load = CoreRig::Load("m");
  load.policy.pin = true;
  rig.Ask(1, 4, load);
  rig.Plan(10);
  rig.Fill();

  rig.Ask(1, 5, wire::EvictRequest{"m", 0});
  rig.Keep(rig.core.Borrowers(rig.LastStarted(), false, rig.now_ns));

  EXPECT_TRUE(rig.Answer<wire::EvictReply>(1, 5)->freed);
}

// --- holds --------------------------------------------------------------------------------------

TEST(NodeHolds, StateMadeByAHoldEndsWithItsLastHold) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  rig.Ask(1, 4, HoldLoad("m"));
  rig.Plan(10);
  rig.Fill();
  rig.Ask(1, 5, Hold("m"));
  rig.Ask(2, 6, CoreRig::AttachTo("m"));

  rig.Disconnect(1);
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kDraining);
  rig.Disconnect(2);
  rig.Keep(rig.core.Borrowers(rig.LastStarted(), false, rig.now_ns));

  EXPECT_EQ(rig.PhaseOf("m"), std::nullopt);
}

TEST(NodeHolds, HolderThatDiesBeforeItAttachesDoesNotLeaveTheStateBehind) {
  CoreRig rig;
  rig.Connect(1);
  rig.Ask(1, 4, HoldLoad("m"));
  rig.Plan(10);
  rig.Fill();

  rig.Disconnect(1);

  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kClosing);
}

TEST(NodeHolds, SecondHolderKeepsTheStateOfTheFirst) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  rig.Ask(1, 4, HoldLoad("m"));
  rig.Ask(2, 5, HoldLoad("m"));
  rig.Plan(10);
  rig.Fill();

  rig.Disconnect(2);
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kReady);
  rig.Disconnect(1);

  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kClosing);
}

TEST(NodeHolds, PlainLoadKeepsAHeldStateUntilItIsEvicted) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  rig.Ask(1, 4, HoldLoad("m"));
  rig.Ask(2, 5, CoreRig::Load("m"));
  rig.Plan(10);
  rig.Fill();

  rig.Disconnect(1);
  rig.Disconnect(2);

  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kReady);
}

}  // namespace
}  // namespace sticky::daemon
