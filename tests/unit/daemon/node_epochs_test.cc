// Two epochs of one name: a reload beside the old state or in its place; and draining.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/daemon/core_rig.h"

namespace sticky::daemon {
namespace {

using ::testing::HasSubstr;
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
