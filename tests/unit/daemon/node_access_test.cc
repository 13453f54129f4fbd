// Who may do what: the node's owner, a state's owner, those whom it is for, and everybody else. And
// the journal, which tells each of them only what is theirs to know.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/daemon/core_rig.h"

namespace sticky::daemon {
namespace {

using ::testing::HasSubstr;
using wire::StatePhase;

constexpr std::uint32_t kAnn = 2001;
constexpr std::uint32_t kBob = 2002;
constexpr std::uint32_t kStaff = 50;

// Connection 1 is the node's owner, 2 is Ann, 3 is Bob.
struct ThreeUsers : CoreRig {
  explicit ThreeUsers(const Limits& limits = DefaultLimits()) : CoreRig(limits) {
    Connect(1);
    Connect(2, kAnn);
    Connect(3, kBob);
  }
  void MakeAnns(const Access& access) {
    wire::LoadRequest load = Load("m");
    load.policy.access = access;
    MakeReady(load, 100, /*connection=*/2);
  }
  void ExpectRefused(std::uint64_t connection, std::uint32_t request_id) {
    const auto* failure = Answer<wire::Failure>(connection, request_id);
    ASSERT_NE(failure, nullptr) << request_id;
    EXPECT_EQ(failure->code, Code::kPermissionDenied) << failure->message;
  }
};

TEST(NodeAccess, AStateIsForItsOwnerAloneUnlessItsTemplateSaysMore) {
  ThreeUsers rig;
  rig.MakeAnns({});

  rig.Ask(3, 5, ThreeUsers::AttachTo("m"));
  rig.Ask(3, 6, ThreeUsers::Load("m"));
  rig.Ask(3, 7, wire::ShowRequest{"m"});
  rig.Ask(3, 8, wire::EvictRequest{"m", 0});
  rig.Ask(3, 9, wire::DrainRequest{"m", false, 0});
  rig.Ask(3, 10, wire::DrainRequest{std::nullopt, false, 0});
  rig.Ask(3, 11, wire::ListRequest{});
  rig.Ask(2, 12, wire::ListRequest{});
  rig.Ask(2, 13, ThreeUsers::AttachTo("m"));

  for (std::uint32_t id = 5; id <= 10; ++id) rig.ExpectRefused(3, id);
  EXPECT_THAT(rig.Answer<wire::Failure>(3, 5)->message,
              HasSubstr("user 2001 had it built, for itself alone"));
  EXPECT_TRUE(rig.Answer<wire::ListReply>(3, 11)->states.empty());
  EXPECT_EQ(rig.Answer<wire::ListReply>(2, 12)->states.size(), 1u);
  EXPECT_NE(rig.Answer<wire::AttachReply>(2, 13), nullptr);
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kReady);
  EXPECT_EQ(rig.Count<DropBundle>(), 1) << "the files of the refused load";
}

TEST(NodeAccess, UsersGroupsAndTheNodeAreLetInAsTheTemplateSays) {
  const Access lets_bob_in[] = {{AccessMode::kNode, {}, {}},
                                {AccessMode::kOwner, {kBob}, {}},
                                {AccessMode::kOwner, {}, {kStaff}},
                                {AccessMode::kGroup, {}, {}}};
  for (const Access& access : lets_bob_in) {
    ThreeUsers rig;
    rig.Disconnect(3);
    // Bob is one of staff, and of the group that is Ann's own.
    rig.Keep(
        rig.core.Connected(ConnectionId{3}, Peer{103, kBob, kBob, {kStaff, kAnn}, ""}, rig.now_ns));
    rig.MakeAnns(access);

    rig.Ask(3, 5, ThreeUsers::AttachTo("m"));
    rig.Ask(3, 6, wire::EvictRequest{"m", 0});

    EXPECT_NE(rig.Answer<wire::AttachReply>(3, 5), nullptr);
    rig.ExpectRefused(3, 6);
  }
}

TEST(NodeAccess, WhoMayUseAStateDoesNotDecideHowLongItStays) {
  ThreeUsers rig;
  wire::LoadRequest anns = ThreeUsers::Load("m");
  anns.policy.access.mode = AccessMode::kNode;
  anns.hold = true;
  rig.MakeReady(anns, 100, /*connection=*/2);

  wire::LoadRequest bobs = ThreeUsers::Load("m");
  bobs.policy.pin = true;
  rig.Ask(3, 5, bobs);
  rig.Disconnect(2);  // the only holder

  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kClosing);
}

TEST(NodeAccess, TheNodesOwnerMayDoEverything) {
  ThreeUsers rig;
  rig.MakeAnns({});

  rig.Ask(1, 5, ThreeUsers::AttachTo("m"));
  rig.Ask(1, 6, wire::EvictRequest{"m", 0});

  EXPECT_NE(rig.Answer<wire::AttachReply>(1, 5), nullptr);
  EXPECT_NE(rig.Answer<wire::EvictReply>(1, 6), nullptr);
}

TEST(NodeAccess, PriorityAboveZeroIsForTheNodesOwner) {
  ThreeUsers rig;
  wire::LoadRequest load = ThreeUsers::Load("m");
  load.policy.priority = 1;

  rig.Ask(2, 5, load);
  rig.Ask(1, 6, load);

  rig.ExpectRefused(2, 5);
  EXPECT_NE(rig.Answer<wire::LoadReply>(1, 6), nullptr);
}

TEST(NodeAccess, HoldersOfStatesThatOneMayNotSeeAreNotTold) {
  ThreeUsers rig;
  rig.MakeAnns({});
  rig.Ask(2, 4, ThreeUsers::AttachTo("m"));

  rig.Ask(3, 5, ThreeUsers::Load("n"));
  rig.Plan(950);
  rig.Ask(3, 6, wire::ShowRequest{"n"});
  rig.Ask(3, 7, wire::LeasesRequest{});

  const auto* shown = rig.Answer<wire::ShowReply>(3, 6);
  ASSERT_TRUE(shown != nullptr && shown->state.failure);
  EXPECT_THAT(shown->state.failure->message, HasSubstr("held: others 100 B"));
  EXPECT_TRUE(rig.Answer<wire::LeasesReply>(3, 7)->leases.empty());
}

TEST(NodeAccess, OneUserHasLimitsThatTheNodesOwnerHasNot) {
  Limits limits = CoreRig::DefaultLimits();
  limits.user.connection_count_max = 1;
  limits.user.load_count_max = 1;
  limits.user.memory_bytes = 300;
  limits.user.lease_count_max = 1;
  ThreeUsers rig(limits);
  rig.MakeAnns({});
  rig.Ask(2, 4, ThreeUsers::AttachTo("m"));

  rig.Ask(2, 5, ThreeUsers::AttachTo("m"));
  rig.Ask(2, 6, ThreeUsers::Load("a"));
  rig.Plan(250);
  rig.Ask(2, 7, ThreeUsers::Load("b"));
  rig.Ask(2, 8, ThreeUsers::Load("c"));

  EXPECT_THAT(rig.Answer<wire::Failure>(2, 5)->message, HasSubstr("limits.per_user.leases"));
  EXPECT_THAT(rig.InfoOf("a")->failure->message, HasSubstr("limits.per_user.memory"));
  EXPECT_NE(rig.Answer<wire::LoadReply>(2, 7), nullptr);
  EXPECT_THAT(rig.Answer<wire::Failure>(2, 8)->message, HasSubstr("limits.per_user.loads"));
  rig.Ask(2, 9, wire::StatusRequest{});
  rig.Ask(1, 9, wire::StatusRequest{});
  EXPECT_EQ(rig.Answer<wire::StatusReply>(2, 9)->own_bytes, 100u);
  EXPECT_EQ(rig.Answer<wire::StatusReply>(2, 9)->own_bytes_max, 300u);
  EXPECT_EQ(rig.Answer<wire::StatusReply>(1, 9)->own_bytes_max, 0u) << "the node's owner has none";
  EXPECT_FALSE(rig.core.MayConnect(Peer{9, kAnn, kAnn, {}, ""}).ok());
  EXPECT_TRUE(rig.core.MayConnect(Peer{9, kOurUid, kOurUid, {}, ""}).ok());
  rig.Disconnect(2);
  EXPECT_TRUE(rig.core.MayConnect(Peer{9, kAnn, kAnn, {}, ""}).ok());
}

TEST(NodeAccess, TheNodeConfigSaysWhoMayConnect) {
  Limits limits = CoreRig::DefaultLimits();
  limits.who = Access{AccessMode::kOwner, {kAnn}, {kStaff}};
  const CoreRig rig(limits);

  EXPECT_TRUE(rig.core.MayConnect(Peer{9, kAnn, kAnn, {}, ""}).ok());
  EXPECT_TRUE(rig.core.MayConnect(Peer{9, kBob, kBob, {kStaff}, ""}).ok());
  EXPECT_TRUE(rig.core.MayConnect(Peer{9, 0, 0, {}, ""}).ok());
  EXPECT_FALSE(rig.core.MayConnect(Peer{9, kBob, kBob, {}, ""}).ok());
}

// --- the journal --------------------------------------------------------------------------------

std::vector<wire::EventKind> KindsFor(ThreeUsers& rig, std::uint64_t connection) {
  rig.Ask(connection, 77, wire::EventsRequest{0, 0});
  std::vector<wire::EventKind> kinds;
  for (const wire::Event& event : rig.Answer<wire::EventsReply>(connection, 77)->events) {
    kinds.push_back(event.kind);
  }
  return kinds;
}

TEST(NodeJournal, TellsEachUserWhatIsTheirs) {
  using wire::EventKind;
  ThreeUsers rig;
  rig.MakeAnns({});
  rig.Ask(2, 4, ThreeUsers::AttachTo("m"));
  rig.Ask(3, 5, ThreeUsers::AttachTo("m"));

  EXPECT_EQ(KindsFor(rig, 2),
            (std::vector{EventKind::kLoad, EventKind::kReady, EventKind::kAttach}));
  EXPECT_EQ(KindsFor(rig, 3), std::vector{EventKind::kRefusal});
  EXPECT_EQ(KindsFor(rig, 1), (std::vector{EventKind::kLoad, EventKind::kReady, EventKind::kAttach,
                                           EventKind::kRefusal}));
}

TEST(NodeJournal, WhoeverFollowsIsToldWhenSomethingHappensOrAtTheDeadline) {
  ThreeUsers rig;
  rig.MakeAnns({});
  rig.Ask(1, 5, wire::EventsRequest{2, 1000});
  rig.Ask(1, 6, wire::EventsRequest{100, 500});
  EXPECT_EQ(rig.AnswerCount(1, 5), 0);

  rig.Ask(2, 4, ThreeUsers::AttachTo("m"));

  ASSERT_NE(rig.Answer<wire::EventsReply>(1, 5), nullptr);
  const wire::EventsReply& reply = *rig.Answer<wire::EventsReply>(1, 5);
  ASSERT_EQ(reply.events.size(), 1u);
  EXPECT_EQ(reply.events[0].sequence, 3u);
  EXPECT_EQ(reply.events[0].uid, kAnn);
  EXPECT_EQ(reply.events[0].pid, 102u);
  EXPECT_EQ(reply.events[0].time_ms, kWallMs);
  rig.Tick(501 * kMs);
  EXPECT_EQ(rig.AnswerCount(1, 6), 1);
}

TEST(NodeJournal, IsBoundedAndSaysWhatWasLost) {
  Journal journal(/*event_count_max=*/3);
  for (int i = 0; i < 5; ++i) journal.Add({});

  const wire::EventsReply reply = journal.Since(0, [](const Journal::Entry&) { return true; });

  EXPECT_EQ(reply.lost, 2u);
  EXPECT_EQ(reply.last, 5u);
  ASSERT_EQ(reply.events.size(), 3u);
  EXPECT_EQ(reply.events[0].sequence, 3u);
}

}  // namespace
}  // namespace sticky::daemon
