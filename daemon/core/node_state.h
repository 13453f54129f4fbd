// NodeState: every decision of the daemon. Events go in, actions come out; nothing is touched here.
//
// A state's life: planning (the loader reads headers) -> filling (it copies into the arena) ->
// ready -> draining (evict was asked, leases are left) -> closing (no lease is left, the arena is
// still mapped somewhere) -> gone. Planning and filling may end in failed. Memory counts against
// the budget from the plan until nobody maps the arena any more.
//
// Thread: loop thread only.
// Source: docs/ARCHITECTURE.md, "Invariants".

#ifndef STICKY_DAEMON_CORE_NODE_STATE_H_
#define STICKY_DAEMON_CORE_NODE_STATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/ids.h"
#include "base/result.h"
#include "daemon/core/actions.h"
#include "daemon/core/lease_table.h"
#include "flatbuffers/wire_codec.h"

namespace sticky::daemon {

class NodeState {
 public:
  // facts: what StatusReply says that never changes. daemon_nonce: this life of the daemon.
  NodeState(const Limits& limits, wire::StatusReply facts, std::int64_t now_ns);

  // --- events; each returns what is to be done, in order -------------------------------------
  using Actions = std::vector<Action>;

  Actions Connected(ConnectionId connection, Peer peer, std::int64_t now_ns);
  Actions Disconnected(ConnectionId connection, std::int64_t now_ns);

  // A decoded request. LoadRequest does not come here but to LoadAsked, once all its files have.
  Actions Asked(ConnectionId connection, const wire::Message& message, std::int64_t now_ns);
  Actions LoadAsked(ConnectionId connection, std::uint32_t request_id,
                    const wire::LoadRequest& request, BundleId bundle, std::int64_t now_ns);

  Actions Planned(StateId state, std::uint64_t arena_bytes, std::uint32_t tensor_count,
                  std::int64_t now_ns);
  Actions ArenaAllocated(StateId state, std::string huge_pages, std::int64_t now_ns);
  // Of the arena: bytes filled, and bytes whose pages are there (known before they are filled).
  Actions Progressed(StateId state, std::uint64_t bytes_done, std::uint64_t bytes_present,
                     std::int64_t now_ns);
  // huge_bytes: of the arena, in huge pages.
  Actions Filled(StateId state, const Digest& content_digest, std::uint64_t huge_bytes,
                 std::int64_t now_ns);
  Actions Published(StateId state, std::int64_t now_ns);
  // Whatever went wrong with a load, at any step; the message need not name the load. Harmless once
  // the load has ended.
  Actions LoaderFailed(StateId state, const Error& error, std::int64_t now_ns);
  // The loader's process has been reaped, whatever became of its load: it maps nothing any more.
  Actions LoaderGone(StateId state);

  // The reply that carried this lease could not be made; ends it. The outside tells the client.
  Actions LendFailed(LeaseId lease, std::int64_t now_ns);
  Actions Borrowers(StateId state, bool any, std::int64_t now_ns);
  Actions Tick(std::int64_t now_ns);
  // No new work from here on; everything that waits is answered, running loads are killed.
  Actions ShutDown(std::int64_t now_ns);

  // Whether Tick must be called often (every 50 ms); else every few seconds is enough.
  bool NeedsTicks() const;
  bool shutting_down() const { return shutting_down_; }

  // --- for tests and status -------------------------------------------------------------------
  std::uint64_t used_bytes() const;
  std::uint32_t state_count() const { return static_cast<std::uint32_t>(states_.size()); }
  std::uint32_t waiter_count() const { return static_cast<std::uint32_t>(waiters_.size()); }
  const LeaseTable& leases() const { return leases_; }
  std::vector<wire::StateInfo> ListStates(std::int64_t now_ns) const;

 private:
  struct State {
    StateId id{0};
    std::string name;
    wire::StatePhase phase = wire::StatePhase::kPlanning;
    Digest template_digest;
    std::string source;
    DtypeChoice dtype = DtypeChoice::kAuto;
    bool huge_pages_wanted = false;
    bool pinned = false;
    bool kept_by_holds = false;            // drains by itself when its last hold ends
    std::set<ConnectionId> holders_to_be;  // asked with hold, have not attached yet
    bool cancelled_when_unwanted = false;  // everyone who asked for the load waits for it
    std::uint64_t epoch = 0;
    std::uint64_t arena_bytes = 0;  // 0 until planned
    std::uint32_t tensor_count = 0;
    std::uint64_t bytes_done = 0;
    std::uint64_t bytes_present = 0;
    std::string huge_pages;
    std::optional<Digest> content_digest;
    std::optional<wire::Failure> failure;
    std::int64_t asked_ns = 0;
    std::int64_t moved_ns = 0;   // last sign of life of the loader
    std::int64_t ended_ns = 0;   // ready or failed
    std::int64_t looked_ns = 0;  // last AskBorrowers
  };
  enum class Wish : std::int8_t { kLoad = 0, kAttach, kEvict };
  struct Waiter {
    ConnectionId connection;
    std::uint32_t request_id = 0;
    Wish wish = Wish::kLoad;
    StateId state{0};
    std::int64_t deadline_ns = 0;
    std::int64_t told_ns = 0;  // last LoadProgress
    bool joined = false;
    wire::AttachRequest attach = {};  // when kAttach
  };

  // Requests.
  void Attach(ConnectionId connection, std::uint32_t request_id, const wire::AttachRequest& request,
              std::int64_t now_ns);
  void GrantAttach(ConnectionId connection, std::uint32_t request_id, State& state,
                   const wire::AttachRequest& request, std::int64_t now_ns);
  void Evict(ConnectionId connection, std::uint32_t request_id, const wire::EvictRequest& request,
             std::int64_t now_ns);
  void Show(ConnectionId connection, std::uint32_t request_id, const wire::ShowRequest& request,
            std::int64_t now_ns);
  void JoinLoad(ConnectionId connection, std::uint32_t request_id, State& state,
                const wire::LoadRequest& request, std::int64_t now_ns);
  void StartLoad(ConnectionId connection, std::uint32_t request_id,
                 const wire::LoadRequest& request, BundleId bundle, std::int64_t now_ns);
  Status MayStartLoad(const wire::LoadRequest& request) const;

  // Changes of a state.
  void FailLoad(State& state, const Error& error, std::int64_t now_ns);
  void Drain(State& state, std::int64_t now_ns);
  void Release(StateId id, std::int64_t now_ns);
  void Forget(StateId id);
  void CancelIfUnwanted(StateId id, std::int64_t now_ns);
  void TrimFailed();

  void FailOverdueLoads(std::int64_t now_ns);

  // Waiters.
  bool AddWaiter(const Waiter& waiter);
  void AnswerWaiters(StateId id, std::int64_t now_ns);
  void ExpireWaiters(std::int64_t now_ns);
  void TellProgress(State& state, std::int64_t now_ns);

  // Answers.
  void Reply(ConnectionId to, std::uint32_t request_id, wire::Body body);
  void Refuse(ConnectionId to, std::uint32_t request_id, const Error& error);
  void LogLine(Log::Level level, std::string text);
  Actions Take() { return std::exchange(actions_, {}); }

  wire::StateInfo Info(const State& state, std::int64_t now_ns) const;
  wire::StatusReply StatusOf(std::int64_t now_ns) const;
  std::vector<wire::LeaseInfo> LeasesOn(std::optional<StateId> only, std::int64_t now_ns) const;
  Status MayAsk(ConnectionId connection) const;
  State* FindByName(std::string_view name);
  State* FindEvenClosing(std::string_view name);
  State* FindById(StateId id);
  std::uint32_t RunningLoads() const;

  const Limits limits_;
  const wire::StatusReply facts_;
  const std::int64_t started_ns_;
  std::map<StateId, State> states_;
  // Arenas of failed loads whose loader may still map them: bytes.
  std::map<StateId, std::uint64_t> dying_bytes_;
  std::set<StateId> loaders_;  // started and not yet reaped
  std::map<ConnectionId, Peer> peers_;
  std::vector<Waiter> waiters_;
  LeaseTable leases_;
  std::uint64_t next_state_ = 1;
  std::uint64_t next_epoch_ = 1;
  bool shutting_down_ = false;
  Actions actions_;
};

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_CORE_NODE_STATE_H_
