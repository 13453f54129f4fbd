// A seeded random history of everything that can happen to the core, in any order, with the
// invariants checked after each event. The seed is gtest's --gtest_random_seed, printed.

#include <map>
#include <random>
#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "tests/unit/daemon/core_rig.h"

namespace sticky::daemon {
namespace {

constexpr int kEventCount = 100'000;
constexpr std::uint64_t kConnectionCount = 12;
constexpr int kNameCount = 6;

Limits TightLimits() {
  Limits limits = CoreRig::DefaultLimits();
  limits.lease_count_max = 20;
  limits.state_count_max = 5;
  limits.load_count_max = 3;
  limits.waiter_count_max = 10;
  limits.failed_count_max = 4;
  limits.plan_ns = limits.fill_stall_ns = 2000 * kMs;
  limits.failed_kept_ns = 5000 * kMs;
  return limits;
}

// Plays the outside: truthfully where the core must rely on it, at random elsewhere.
class History {
 public:
  explicit History(unsigned seed) : rng_(seed), rig_(TightLimits()) {
    Installed installed;
    installed.name = "s0";
    installed.build = BuildWhen::kOnDemand;
    installed.access.mode = AccessMode::kNode;
    rig_.Keep(rig_.core.Install({installed}, kOurUid, rig_.now_ns));
  }

  void Step() {
    rig_.now_ns += static_cast<std::int64_t>(Below(40)) * kMs;
    Move(Below(16));
    Perform();
    Check();
  }

  // After a shutdown and the end of every connection, nothing is left.
  void End() {
    rig_.Keep(rig_.core.ShutDown(rig_.now_ns));
    Perform();
    Check();
    EXPECT_EQ(rig_.core.waiter_count(), 0u);
    EXPECT_TRUE(open_.empty()) << open_.size() << " requests were never answered";
    for (std::uint64_t connection = 1; connection <= kConnectionCount; ++connection) {
      Disconnect(connection);
    }
    Perform();
    EXPECT_EQ(rig_.core.leases().count(), 0u);
  }

  int ready_count = 0;
  int attach_count = 0;
  int freed_count = 0;

 private:
  using Request = std::pair<std::uint64_t, std::uint32_t>;  // connection, request

  std::uint64_t Below(std::uint64_t limit) { return rng_() % limit; }
  std::string Name() { return "s" + std::to_string(Below(kNameCount)); }
  std::uint32_t Wait() { return static_cast<std::uint32_t>(Below(2) * Below(3000)); }

  void Move(std::uint64_t kind) {
    if (kind == 0) return Connect(1 + Below(kConnectionCount));
    if (kind == 1 && Below(2) == 0) return Disconnect(1 + Below(kConnectionCount));
    if (kind == 2 || kind == 3) return AskLoad();
    if (kind >= 4 && kind <= 6) return AskAttach();
    if (kind == 7 && Below(4) == 0) return Ask(wire::EvictRequest{Name(), Wait()});
    if (kind == 8) return Ask(wire::ShowRequest{Name()});
    if (kind == 9) return rig_.Tick(static_cast<std::int64_t>(Below(200)) * kMs);
    if (kind == 10 && Below(10) == 0) return AskDrain();
    if (kind == 10 && Below(10) == 0) return AskBudget();
    if (kind == 12) return MoveABuilder();
    if (kind == 13 && Below(2) == 0) return EndARequester();
    if (kind == 11) return Ask(wire::EventsRequest{Below(next_request_), Wait()});
    MoveALoader();
  }
  void Connect(std::uint64_t connection) {
    // The node's owner, and two others.
    if (connected_.insert(connection).second) {
      rig_.Connect(connection, kOurUid + static_cast<std::uint32_t>(connection % 3));
    }
  }
  void Disconnect(std::uint64_t connection) {
    if (connected_.erase(connection) == 0) return;
    std::erase_if(open_, [&](const Request& request) { return request.first == connection; });
    rig_.Disconnect(connection);
  }
  void Ask(wire::Body body) {
    if (connected_.empty()) return;
    const std::uint64_t connection = Any(connected_);
    open_.insert({connection, next_request_});
    rig_.Ask(connection, next_request_++, std::move(body));
  }
  void AskLoad() {
    wire::LoadRequest request = CoreRig::Load(Name(), Wait());
    request.hold = Below(3) == 0;
    request.policy.pin = Below(10) == 0;
    request.policy.priority = -static_cast<std::int32_t>(Below(3));
    request.policy.idle_ms = Below(3) == 0 ? 300 : 0;
    request.policy.ttl_ms = Below(10) == 0 ? 1000 : 0;
    request.policy.lease_count_max = Below(4) == 0 ? 2 : 0;
    request.policy.access.mode = static_cast<AccessMode>(Below(kAccessModeCount));
    request.placement = static_cast<wire::Placement>(Below(3));
    if (Below(10) == 0) request.template_digest.bytes.fill(2);
    Ask(request);
  }
  void AskDrain() {
    wire::DrainRequest request{Name(), Below(2) == 0, Wait()};
    if (Below(3) == 0) request.state.reset();
    Ask(request);
  }
  void AskBudget() {
    const std::uint64_t whole = TightLimits().budget_bytes;
    Ask(wire::BudgetRequest{Below(3) == 0 ? whole / 3 : whole});
  }
  void MoveABuilder() {
    const std::uint64_t what = Below(4);
    if (what == 0) {
      wire::BuildRequest request{.state = Name()};
      request.placement = static_cast<wire::Placement>(Below(3));
      if (Below(3) == 0) request.base = Name();
      return Ask(request);
    }
    if (what <= 2) return Ask(wire::BuildArenaRequest{Below(400), Wait()});
    if (connected_.empty()) return;
    const std::uint64_t connection = Any(connected_);
    open_.insert({connection, next_request_});
    rig_.Keep(rig_.core.CommitAsked(ConnectionId{connection}, next_request_++,
                                    wire::BuildCommitRequest{}, 1, rig_.now_ns));
  }
  void AskAttach() {
    wire::AttachRequest request = CoreRig::AttachTo(Name(), Wait());
    request.hold = Below(4) == 0;
    if (Below(10) == 0) request.digest = Digest{};
    Ask(request);
  }
  void EndARequester() {
    if (requesters_.empty()) return;
    const StateId id = Any(requesters_);
    requesters_.erase(id);
    rig_.Keep(rig_.core.RequesterEnded(id, Error{Code::kNotFound, "x"}, rig_.now_ns));
  }
  template <typename T>
  T Any(const std::set<T>& set) {
    auto at = set.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(Below(set.size())));
    return *at;
  }

  // One of the loaders that are alive does something, in turn or not.
  void MoveALoader() {
    if (loaders_.empty()) return;
    const StateId id = Any(loaders_);
    const std::uint64_t kind = Below(10);
    if (kind <= 2) {
      rig_.Keep(rig_.core.Planned(id, 1 + Below(500), 1, rig_.now_ns));
    } else if (kind == 3) {
      rig_.Keep(rig_.core.Progressed(id, Below(700), Below(700), rig_.now_ns));
    } else if (kind <= 7) {
      if (arenas_.contains(id)) rig_.Keep(rig_.core.Filled(id, CoreRig::Content(), 0, rig_.now_ns));
    } else if (kind == 8) {
      rig_.Keep(rig_.core.LoaderFailed(id, Error{Code::kCorrupt, "x"}, rig_.now_ns));
    } else {
      // It dies: the failure is reported first, then that it is gone.
      rig_.Keep(rig_.core.LoaderFailed(id, Error{Code::kInternal, "died"}, rig_.now_ns));
      Perform();
      loaders_.erase(id);
      dying_.erase(id);
      rig_.Keep(rig_.core.LoaderGone(id, rig_.now_ns));
    }
  }

  void Perform() {
    // Performing one action may append others.
    for (std::size_t i = 0; i < rig_.actions.size(); ++i) {
      const Action action = rig_.actions[i];
      std::visit([this](const auto& what) { Do(what); }, action);
    }
    rig_.actions.clear();
  }
  void Do(const Send& send) {
    if (std::holds_alternative<wire::LoadProgress>(send.message.body)) return;
    const Request request{send.to.value, send.message.request_id};
    EXPECT_EQ(open_.erase(request), 1u) << "an answer to nothing, or a second one";
    if (send.attachment == Attachment::kNone) return;
    if (send.attachment == Attachment::kBuildArena) {
      EXPECT_FALSE(published_.contains(send.state)) << "writable memory of a published state";
      if (Below(3) == 0) mapped_.insert(send.state);  // a builder that goes on mapping it
      return;
    }
    EXPECT_TRUE(published_.contains(send.state)) << "something unpublished is handed out";
    if (send.attachment != Attachment::kState) return;
    ++attach_count;
    if (Below(20) == 0) {
      rig_.Keep(rig_.core.LendFailed(send.lease, rig_.now_ns));
    } else if (Below(3) == 0) {
      mapped_.insert(send.state);  // somebody goes on mapping it after the lease has ended
    }
  }
  void Do(const StartRequester& start) { requesters_.insert(start.state); }
  void Do(const StartLoader& start) { loaders_.insert(start.state); }
  void Do(const AllocateArena& allocate) {
    ExpectWithinBudget();
    arenas_[allocate.state] = allocate.arena_bytes;
    rig_.Keep(rig_.core.ArenaAllocated(allocate.state, "none", rig_.now_ns));
  }
  void Do(const Publish& publish) {
    EXPECT_TRUE(arenas_.contains(publish.state));
    if (Below(10) == 0) {
      const Error error{Code::kUnavailable, "seal"};
      return rig_.Keep(rig_.core.LoaderFailed(publish.state, error, rig_.now_ns));
    }
    ++ready_count;
    published_.insert(publish.state);
    rig_.Keep(rig_.core.Published(publish.state, /*is_kept=*/false, rig_.now_ns));
  }
  void Do(const MakeBuildArena& make) {
    ExpectWithinBudget();
    loaders_.insert(make.state);
    arenas_[make.state] += make.arena_bytes;
    rig_.Keep(rig_.core.BuildArenaMade(make.state, rig_.now_ns));
  }
  void Do(const CommitBuild& commit) {
    if (Below(4) == 0 || mapped_.contains(commit.state)) {
      mapped_.erase(commit.state);
      const Error error{Code::kUnavailable, "a writable mapping is alive"};
      return rig_.Keep(rig_.core.BuildNotSealed(commit.state, error, rig_.now_ns));
    }
    rig_.Keep(rig_.core.Filled(commit.state, CoreRig::Content(), 0, rig_.now_ns));
  }
  void Do(const KillLoader&) {}  // it is reaped when MoveALoader says so
  void Do(const FreeArena& free) {
    EXPECT_EQ(rig_.core.leases().CountOn(free.state), 0u) << "a leased state was freed";
    EXPECT_FALSE(mapped_.contains(free.state)) << "a mapped state was freed";
    const auto arena = arenas_.find(free.state);
    if (arena == arenas_.end()) return;
    ++freed_count;
    const bool may_still_map = loaders_.contains(free.state) && !published_.contains(free.state);
    if (may_still_map) dying_[free.state] = arena->second;
    arenas_.erase(arena);
    published_.erase(free.state);
  }
  void Do(const AskBorrowers& ask) {
    if (Below(2) == 0) mapped_.erase(ask.state);
    rig_.Keep(rig_.core.Borrowers(ask.state, mapped_.contains(ask.state), rig_.now_ns));
  }
  void Do(const KeepRecord&) {}
  void Do(const KeepNode&) {}
  void Do(const Stop&) {}
  void Do(const DropBundle&) {}
  void Do(const Log&) {}

  // A lower budget takes nothing from who has it, but gives nothing more.
  void ExpectWithinBudget() {
    EXPECT_LE(rig_.core.used_bytes(), rig_.core.budget_bytes()) << "memory was given past it";
  }

  void Check() {
    std::uint64_t sum = 0;
    for (const auto& [id, bytes] : arenas_) sum += bytes;
    for (const auto& [id, bytes] : dying_) sum += bytes;
    ASSERT_EQ(rig_.core.used_bytes(), sum);
    ASSERT_LE(sum, TightLimits().budget_bytes);
    for (const auto& [id, lease] : rig_.core.leases().leases()) {
      ASSERT_TRUE(published_.contains(lease.state)) << "a lease on what is not there";
      ASSERT_TRUE(connected_.contains(lease.connection.value)) << "a dead peer holds a lease";
    }
    ASSERT_LE(rig_.core.leases().count(), TightLimits().lease_count_max);
    ASSERT_LE(rig_.core.waiter_count(), TightLimits().waiter_count_max);
    ASSERT_LE(rig_.core.state_count(),
              TightLimits().state_count_max + TightLimits().failed_count_max);
  }

  std::mt19937 rng_;
  CoreRig rig_;
  std::set<std::uint64_t> connected_;
  std::set<StateId> requesters_;
  std::set<Request> open_;  // asked and not yet answered, of connections that live
  std::uint32_t next_request_ = 1;
  std::set<StateId> loaders_;  // started and not yet reaped
  std::map<StateId, std::uint64_t> arenas_;
  std::map<StateId, std::uint64_t> dying_;
  std::set<StateId> published_;
  std::set<StateId> mapped_;
};

TEST(RandomHistory, InvariantsHoldAfterEachOfManyEvents) {
  const auto seed = static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed());
  SCOPED_TRACE("seed " + std::to_string(seed));
  History history(seed);

  for (int i = 0; i < kEventCount && !::testing::Test::HasFailure(); ++i) history.Step();
  history.End();

  // The history was not idle.
  EXPECT_GT(history.ready_count, 50);
  EXPECT_GT(history.attach_count, 100);
  EXPECT_GT(history.freed_count, 50);
}

}  // namespace
}  // namespace sticky::daemon
