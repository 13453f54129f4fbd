// Two epochs of one name: a reload beside the old state or in its place; and draining.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/daemon/core_rig.h"

namespace sticky::daemon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using wire::Placement;
using wire::StatePhase;

wire::LoadRequest Other(const std::string& state, Placement placement, std::uint32_t wait_ms = 0) {
  wire::LoadRequest request = CoreRig::Load(state, wait_ms);
  request.template_digest.bytes.fill(2);
  request.placement = placement;
  return request;
}

TEST(NodeReplace, NewLeasesGetTheNewEpochAndOldOnesKeepTheirs) {
  CoreRig rig;
  for (std::uint64_t connection = 1; connection <= 3; ++connection) rig.Connect(connection);
  rig.MakeReady("m", 400);
  rig.Ask(1, 1, CoreRig::AttachTo("m"));

  rig.Ask(1, 5, Other("m", Placement::kReplace));
  rig.Plan(400);
  rig.Ask(2, 2, CoreRig::AttachTo("m"));
  rig.Fill();
  rig.Ask(3, 3, CoreRig::AttachTo("m"));

  EXPECT_EQ(rig.Answer<wire::AttachReply>(1, 1)->epoch, 1u);
  EXPECT_EQ(rig.Answer<wire::AttachReply>(2, 2)->epoch, 1u) << "the new one was not ready yet";
  EXPECT_EQ(rig.Answer<wire::AttachReply>(3, 3)->epoch, 2u);
  EXPECT_EQ(rig.core.state_count(), 2u);
  rig.Disconnect(1);
  rig.Disconnect(2);
  rig.Keep(rig.core.Borrowers(rig.Last<AskBorrowers>()->state, /*any=*/false, rig.now_ns));
  EXPECT_EQ(rig.core.state_count(), 1u);
  EXPECT_EQ(rig.core.used_bytes(), 400u);
}

TEST(NodeReplace, AFailedReplacementLeavesTheOldOneAsItWas) {
  CoreRig rig;
  rig.Connect(1);
  rig.MakeReady("m", 400);

  rig.Ask(1, 5, Other("m", Placement::kReplace, 1000));
  rig.FailLoader("the file is cut short");

  EXPECT_THAT(rig.Answer<wire::Failure>(1, 5)->message, HasSubstr("cut short"));
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kReady);
  EXPECT_EQ(rig.core.state_count(), 1u);
  rig.Ask(1, 6, CoreRig::AttachTo("m"));
  EXPECT_NE(rig.Answer<wire::AttachReply>(1, 6), nullptr);
}

TEST(NodeReplace, WhenBothDoNotFitTheAnswerNamesTheOtherWay) {
  CoreRig rig;
  rig.Connect(1);
  rig.MakeReady("m", 600);

  rig.Ask(1, 5, Other("m", Placement::kReplace, 1000));
  rig.Plan(600);
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kReady) << "it does not evict what it replaces";
  rig.Tick(1001 * kMs);

  EXPECT_THAT(rig.Answer<wire::Failure>(1, 5)->message, HasSubstr("--in-place"));
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kReady);
}

TEST(NodeReplace, InPlaceWaitsUntilTheOldOneIsGone) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  rig.MakeReady("m", 600);
  rig.Ask(2, 1, CoreRig::AttachTo("m"));

  rig.Ask(1, 5, Other("m", Placement::kInPlace));
  rig.Plan(600);

  rig.Ask(1, 6, CoreRig::AttachTo("m"));
  EXPECT_EQ(rig.Answer<wire::Failure>(1, 6)->code, Code::kUnavailable);
  rig.Tick(CoreRig::DefaultLimits().room_ns * 2);
  EXPECT_EQ(rig.Count<AllocateArena>(), 0);
  rig.Disconnect(2);
  rig.Keep(rig.core.Borrowers(rig.Last<AskBorrowers>()->state, /*any=*/false, rig.now_ns));
  rig.Fill();
  rig.Ask(1, 7, CoreRig::AttachTo("m"));
  ASSERT_NE(rig.Answer<wire::AttachReply>(1, 7), nullptr);
  EXPECT_EQ(rig.Answer<wire::AttachReply>(1, 7)->epoch, 2u);
}

// A state that is leased by connection 2, and whose successor connection 1 waits for, in its place.
struct InPlace : CoreRig {
  explicit InPlace(std::uint32_t wait_ms = 1000) {
    for (std::uint64_t connection = 1; connection <= 4; ++connection) Connect(connection);
    MakeReady("m", 600);
    Ask(2, 1, AttachTo("m"));
    Ask(1, 5, Other("m", Placement::kInPlace, wait_ms));
    Plan(600);
  }
};

TEST(NodeInPlace, AReplacementThatIsGivenUpSaysSoAndLeavesTheOldOneOpenAgain) {
  InPlace rig;

  rig.Tick(1001 * kMs);

  const auto* failure = rig.Answer<wire::Failure>(1, 5);
  ASSERT_NE(failure, nullptr);
  EXPECT_THAT(failure->message,
              AllOf(HasSubstr("epoch 1, which it is to replace in its place, has not gone"),
                    HasSubstr("the replacement is given up, and epoch 1 takes new leases again"),
                    HasSubstr("wait longer")));
  EXPECT_EQ(rig.core.state_count(), 1u);
  rig.Ask(3, 6, CoreRig::AttachTo("m"));
  ASSERT_NE(rig.Answer<wire::AttachReply>(3, 6), nullptr);
  EXPECT_EQ(rig.Answer<wire::AttachReply>(3, 6)->epoch, 1u);
  rig.Disconnect(2);
  rig.Disconnect(3);
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kReady);
}

TEST(NodeInPlace, AReplacementThatGoesOnSaysThatTheOldOneTakesNoNewLeases) {
  InPlace rig;
  rig.Ask(3, 6, Other("m", Placement::kInPlace, 60'000));

  rig.Tick(1001 * kMs);

  const auto* failure = rig.Answer<wire::Failure>(1, 5);
  ASSERT_NE(failure, nullptr);
  EXPECT_THAT(failure->message, AllOf(HasSubstr("epoch 1 takes no new leases any more"),
                                      HasSubstr("the replacement goes on waiting")));
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kDraining);
  rig.Tick(60'000 * kMs);
  EXPECT_THAT(rig.Answer<wire::Failure>(3, 6)->message, HasSubstr("is given up"));
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kReady);
}

TEST(NodeInPlace, EveryoneWhoseWaitEndsAtOnceIsToldTheSame) {
  InPlace rig;
  rig.Ask(3, 6, Other("m", Placement::kInPlace, 1000));

  rig.Tick(1001 * kMs);

  for (const auto& [connection, request] : {std::pair(1u, 5u), std::pair(3u, 6u)}) {
    ASSERT_NE(rig.Answer<wire::Failure>(connection, request), nullptr);
    EXPECT_THAT(rig.Answer<wire::Failure>(connection, request)->message,
                HasSubstr("is given up, and epoch 1 takes new leases again"));
  }
}

TEST(NodeInPlace, AReplacementThatNobodyWaitsForIsNotGivenUp) {
  InPlace rig(/*wait_ms=*/0);

  rig.Tick(3600 * 1000 * kMs);

  EXPECT_EQ(rig.core.state_count(), 2u);
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kDraining);
}

TEST(NodeInPlace, AReplacementWhoseLoaderFailsLeavesTheOldOneOpenAgain) {
  InPlace rig;

  rig.FailLoader("the file is cut short");

  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kReady);
  rig.Ask(3, 6, CoreRig::AttachTo("m"));
  EXPECT_NE(rig.Answer<wire::AttachReply>(3, 6), nullptr);
}

TEST(NodeInPlace, AnOldOneThatIsStillMappedOpensAgain) {
  InPlace rig;
  rig.Disconnect(2);
  ASSERT_EQ(rig.PhaseOf("m"), StatePhase::kClosing);
  const StateId old = rig.Last<AskBorrowers>()->state;
  rig.Keep(rig.core.Borrowers(old, /*any=*/true, rig.now_ns));

  rig.Disconnect(1);
  rig.Keep(rig.core.Borrowers(old, /*any=*/false, rig.now_ns));

  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kReady);
  EXPECT_EQ(rig.core.used_bytes(), 600u);
}

TEST(NodeInPlace, AnOldOneThatIsLookedAtIsLetGoAndDoesNotOpenAgain) {
  InPlace rig;
  rig.Disconnect(2);
  ASSERT_EQ(rig.PhaseOf("m"), StatePhase::kClosing);
  const StateId old = rig.Last<AskBorrowers>()->state;

  rig.Disconnect(1);  // the replacement is given up while the keeper lets the old one go

  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kClosing);
  rig.Keep(rig.core.Borrowers(old, /*any=*/false, rig.now_ns));
  EXPECT_EQ(rig.core.used_bytes(), 0u);
}

TEST(NodeInPlace, AnOldOneThatWasEvictedByHandStaysEvicted) {
  InPlace rig;
  rig.Ask(1, 7, wire::EvictRequest{"m", 0});
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kDraining);
  EXPECT_EQ(rig.core.state_count(), 1u) << "the replacement is gone, too";

  CoreRig other;
  other.Connect(1);
  other.Connect(2);
  other.MakeReady("m", 600);
  other.Ask(2, 1, CoreRig::AttachTo("m"));
  other.Ask(1, 4, wire::EvictRequest{"m", 0});
  other.Ask(1, 5, Other("m", Placement::kInPlace, 1000));
  other.Plan(600);
  other.Tick(1001 * kMs);

  EXPECT_EQ(other.PhaseOf("m"), StatePhase::kDraining);
  EXPECT_THAT(other.Answer<wire::Failure>(1, 5)->message,
              AllOf(HasSubstr("is given up"), Not(HasSubstr("takes new leases again"))));
}

TEST(NodeInPlace, WhatOthersAreDerivedFromIsNotReplacedInItsPlaceAndTheyAreNamed) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  rig.MakeReady("base", 100);
  rig.Ask(2, 1, wire::BuildRequest{.state = "packed", .base = "base"});

  rig.Ask(1, 5, Other("base", Placement::kInPlace, 30'000));
  wire::BuildRequest build{.state = "base"};
  build.placement = Placement::kInPlace;
  rig.Ask(1, 6, build);

  for (const std::uint32_t id : {5u, 6u}) {
    const auto* failure = rig.Answer<wire::Failure>(1, id);
    ASSERT_NE(failure, nullptr);
    EXPECT_EQ(failure->code, Code::kUnavailable);
    EXPECT_THAT(failure->message,
                AllOf(HasSubstr("kept by what is derived from it: 'packed'; evict that first"),
                      HasSubstr("--replace")));
  }
  EXPECT_EQ(rig.PhaseOf("base"), StatePhase::kReady);
  rig.Disconnect(2);
  rig.Ask(1, 7, Other("base", Placement::kInPlace));
  EXPECT_NE(rig.Answer<wire::LoadReply>(1, 7), nullptr);
}

TEST(NodeReplace, AReplacementThatIsUnderWayIsJoinedByTheSameTemplateAlone) {
  CoreRig rig;
  rig.Connect(1);
  rig.MakeReady("m", 400);
  rig.Ask(1, 5, Other("m", Placement::kReplace));

  rig.Ask(1, 6, Other("m", Placement::kReplace));
  wire::LoadRequest third = Other("m", Placement::kReplace);
  third.template_digest.bytes.fill(3);
  rig.Ask(1, 7, third);

  EXPECT_TRUE(rig.Answer<wire::LoadReply>(1, 6)->joined);
  EXPECT_EQ(rig.Answer<wire::Failure>(1, 7)->code, Code::kUnavailable);
  EXPECT_EQ(rig.Count<StartLoader>(), 1);
}

TEST(NodeReplace, ANewLoadDoesNotWaitForWhatStillDrains) {
  CoreRig rig;
  rig.Connect(1);
  rig.MakeReady("m", 400);
  rig.Ask(1, 1, CoreRig::AttachTo("m"));
  rig.Ask(1, 2, wire::EvictRequest{"m", 0});

  rig.Ask(1, 5, CoreRig::Load("m"));
  rig.Plan(400);
  rig.Fill();

  rig.Ask(1, 6, CoreRig::AttachTo("m"));
  EXPECT_EQ(rig.Answer<wire::AttachReply>(1, 6)->epoch, 2u);
}

TEST(NodeDrain, ADrainedStateKeepsItsLeasesAndTakesNoNewOnesUntilItIsResumed) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  rig.MakeReady("m");
  rig.Ask(2, 1, CoreRig::AttachTo("m"));

  rig.Ask(1, 5, wire::DrainRequest{"m", false, 0});

  ASSERT_NE(rig.Answer<wire::DrainReply>(1, 5), nullptr);
  EXPECT_FALSE(rig.Answer<wire::DrainReply>(1, 5)->empty);
  EXPECT_EQ(rig.Answer<wire::DrainReply>(1, 5)->leases.size(), 1u);
  rig.Ask(1, 6, CoreRig::AttachTo("m"));
  EXPECT_EQ(rig.Answer<wire::Failure>(1, 6)->code, Code::kUnavailable);
  rig.Disconnect(2);
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kReady) << "drained is not evicted";
  rig.Ask(1, 7, wire::DrainRequest{"m", true, 0});
  rig.Ask(1, 8, CoreRig::AttachTo("m"));
  EXPECT_NE(rig.Answer<wire::AttachReply>(1, 8), nullptr);
}

TEST(NodeDrain, WhoeverWaitsIsToldWhenTheLastLeaseEnds) {
  CoreRig rig;
  rig.Connect(1);
  rig.Connect(2);
  rig.MakeReady("m");
  rig.Ask(2, 1, CoreRig::AttachTo("m"));
  rig.Ask(1, 5, wire::DrainRequest{"m", false, 60'000});
  EXPECT_EQ(rig.AnswerCount(1, 5), 0);

  rig.Disconnect(2);

  ASSERT_NE(rig.Answer<wire::DrainReply>(1, 5), nullptr);
  EXPECT_TRUE(rig.Answer<wire::DrainReply>(1, 5)->empty);
}

TEST(NodeDrain, ANodeThatIsDrainedTakesNoLoadsEither) {
  CoreRig rig;
  rig.Connect(1);
  rig.MakeReady("m");

  rig.Ask(1, 5, wire::DrainRequest{std::nullopt, false, 0});

  EXPECT_TRUE(rig.Answer<wire::DrainReply>(1, 5)->empty);
  rig.Ask(1, 6, CoreRig::AttachTo("m"));
  rig.Ask(1, 7, CoreRig::Load("n"));
  for (const std::uint32_t id : {6u, 7u}) {
    ASSERT_NE(rig.Answer<wire::Failure>(1, id), nullptr);
    EXPECT_THAT(rig.Answer<wire::Failure>(1, id)->message, HasSubstr("being drained"));
  }
  rig.Ask(1, 8, wire::DrainRequest{std::nullopt, true, 0});
  rig.Ask(1, 9, CoreRig::AttachTo("m"));
  EXPECT_NE(rig.Answer<wire::AttachReply>(1, 9), nullptr);
}

}  // namespace
}  // namespace sticky::daemon
