// NodeState: every decision of the daemon. Events go in, actions come out; nothing is touched here.
//
// A state's life: queued (the load waits for its turn) -> planning (the loader reads headers) ->
// queued (it waits for room in memory, if it must) -> filling (it copies into the arena) -> ready
// -> draining (no new leases, some are left) -> closing (no lease is left, the arena is still
// mapped somewhere) -> gone. All before ready may end in failed. Memory counts against the budget
// from the moment that there was room until nobody maps the arena any more.
//
// Two epochs of one name may exist beside each other: a replacement and what it replaces, or a new
// load and what still drains.
//
// Thread: loop thread only.
// Source: docs/ARCHITECTURE.md, "Invariants"; docs/daemon.md.

#ifndef STICKY_DAEMON_CORE_NODE_STATE_H_
#define STICKY_DAEMON_CORE_NODE_STATE_H_

#include <cstdint>
#include <deque>
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
#include "daemon/core/access.h"
#include "daemon/core/actions.h"
#include "daemon/core/journal.h"
#include "daemon/core/lease_table.h"
#include "daemon/core/state.h"
#include "flatbuffers/wire_codec.h"

namespace sticky::daemon {

// A build, as the outside needs to know it.
struct BuildInfo {
  StateId state;
  std::string name;
};

class NodeState {
 public:
  // facts: what StatusReply says that never changes. now_ns and wall_ms: one moment on the
  // monotonic clock and since the epoch; events are dated with it.
  NodeState(const Limits& limits, wire::StatusReply facts, std::int64_t now_ns,
            std::int64_t wall_ms);

  // --- events; each returns what is to be done, in order -------------------------------------
  using Actions = std::vector<Action>;

  // Whether a new connection of `peer` is taken. Errors: kPermissionDenied, kUnavailable past the
  // user's limit. The outside tells the client and closes.
  Status MayConnect(const Peer& peer) const;
  Actions Connected(ConnectionId connection, Peer peer, std::int64_t now_ns);
  Actions Disconnected(ConnectionId connection, std::int64_t now_ns);

  // A state of an earlier daemon that the outside has taken over; called for each, in order of
  // epoch, then Adopted once, before Install. What is to be done comes with Adopted.
  StateId Adopt(const wire::StateRecord& record, std::int64_t now_ns);
  Actions Adopted(const Adoption& adoption, std::int64_t now_ns);
  // What kept states is there no more; they go with this daemon.
  Actions KeeperLost(std::int64_t now_ns);

  // The templates that the node's owner has installed; begins those that are built at the start.
  // Called once, before any connection. gid: the daemon's primary group.
  Actions Install(std::vector<Installed> installed, std::uint32_t gid, std::int64_t now_ns);
  // The requester of an installed template has ended; by then its load has come, or will not.
  Actions RequesterEnded(StateId state, const Error& error, std::int64_t now_ns);

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
  // is_kept: whether a keeper has it too.
  Actions Published(StateId state, bool is_kept, std::int64_t now_ns);
  // A builder has sent the table of what its arenas hold; the outside has checked it and keeps it.
  Actions CommitAsked(ConnectionId connection, std::uint32_t request_id,
                      const wire::BuildCommitRequest& request, std::uint32_t tensor_count,
                      std::int64_t now_ns);
  Actions BuildArenaMade(StateId state, std::int64_t now_ns);
  // The arenas cannot be sealed now, for a reason that the builder can mend: the build goes on.
  Actions BuildNotSealed(StateId state, const Error& error, std::int64_t now_ns);
  // The state that is built on this connection and may be committed now, for the outside.
  std::optional<BuildInfo> BuildOf(ConnectionId connection) {
    const State* const state = FindBuild(connection);
    if (state == nullptr || !MayCommit(*state)) return std::nullopt;
    return BuildInfo{state->id, state->name};
  }
  // Whatever went wrong with a load, at any step; the message need not name the load. Harmless once
  // the load has ended.
  Actions LoaderFailed(StateId state, const Error& error, std::int64_t now_ns);
  // The loader's process has been reaped, whatever became of its load: it maps nothing any more.
  Actions LoaderGone(StateId state, std::int64_t now_ns);

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
  std::uint64_t budget_bytes() const { return budget_bytes_; }
  std::uint32_t state_count() const { return static_cast<std::uint32_t>(states_.size()); }
  std::uint32_t waiter_count() const { return static_cast<std::uint32_t>(waiters_.size()); }
  std::uint32_t connection_count() const { return static_cast<std::uint32_t>(peers_.size()); }
  // Loaders and requesters that have not been reaped.
  std::uint32_t process_count() const {
    return static_cast<std::uint32_t>(loaders_.size() + requesters_.size());
  }
  const LeaseTable& leases() const { return leases_; }
  const std::map<StateId, State>& states() const { return states_; }
  // What a keeper has of it, but for arena_inodes, when the state is kept; and of the daemon.
  wire::StateRecord RecordOf(const State& state) const;
  wire::NodeRecord RecordOfNode() const;
  // As the node's owner sees them, by name.
  std::vector<wire::StateInfo> ListStates(std::int64_t now_ns) const;

 private:
  enum class Wish : std::int8_t { kLoad = 0, kAttach, kEvict, kDrain, kEvents, kArena, kCommit };
  struct Waiter {
    ConnectionId connection;
    std::uint32_t request_id = 0;
    Wish wish = Wish::kLoad;
    std::optional<StateId> state;  // absent: of a drain, every state; of events, none
    std::int64_t deadline_ns = 0;
    std::int64_t told_ns = 0;  // last LoadProgress
    std::uint32_t told_place = 0;
    bool joined = false;
    wire::AttachRequest attach = {};  // when kAttach
    std::uint64_t after = 0;          // when kEvents
  };

  // node_leases.cc: attaching, letting go, evicting, draining.
  void Attach(ConnectionId connection, std::uint32_t request_id, const wire::AttachRequest& request,
              std::int64_t now_ns);
  void GrantAttach(ConnectionId connection, std::uint32_t request_id, State& state,
                   const wire::AttachRequest& request, std::int64_t now_ns);
  Status MayLease(const Peer& peer, const State& state) const;
  void Evict(ConnectionId connection, std::uint32_t request_id, const wire::EvictRequest& request,
             std::int64_t now_ns);
  void DrainAsked(ConnectionId connection, std::uint32_t request_id,
                  const wire::DrainRequest& request, std::int64_t now_ns);
  // why: for the log and the journal; `by` may be null: the daemon itself.
  void Drain(State& state, const std::string& why, const Peer* by, std::int64_t now_ns);
  void Release(StateId id, std::int64_t now_ns);
  void LookForBorrowers(State& state, std::int64_t now_ns);
  void Forget(StateId id) { states_.erase(id); }

  // node_loads.cc: from the request to the published state, or to the failure.
  std::optional<Error> RefusalOfLoad(ConnectionId connection,
                                     const wire::LoadRequest& request) const;
  void JoinLoad(ConnectionId connection, std::uint32_t request_id, State& state,
                const wire::LoadRequest& request, std::int64_t now_ns);
  void StartLoad(ConnectionId connection, std::uint32_t request_id,
                 const wire::LoadRequest& request, BundleId bundle, std::int64_t now_ns);
  // Whether there is room in the tables for one more state. doing: "load 'm'".
  Status MayAddState(const Peer& peer, const std::string& doing) const;
  Status MayTakeTurn(const wire::LoadRequest& request) const;
  State& AddState(const Peer& peer, const std::string& name, const Policy& policy,
                  std::int64_t now_ns);
  // What the new state of a name means for the earlier one.
  void Succeed(State& state, State* earlier, wire::Placement placement, const Peer& by,
               std::int64_t now_ns);
  void Launch(State& state, std::int64_t now_ns);
  void FailLoad(State& state, const Error& error, std::int64_t now_ns);
  // As FailLoad, of a load that somebody gave up.
  void CancelLoad(State& state, const std::string& why, std::int64_t now_ns);
  // The state that was drained for `failed`, which was to follow it, takes new leases again.
  void ReopenEarlier(const State& failed, std::int64_t now_ns);
  static bool MayOpenAgain(const State& earlier);
  void CancelIfUnwanted(StateId id, std::int64_t now_ns);
  void FailOverdueLoads(std::int64_t now_ns);
  void TrimFailed();

  // node_installed.cc: states that the daemon has built by itself.
  const Installed* FindInstalled(const Peer& peer, std::string_view name) const;
  // Names of installed templates are the node's owner's. doing: "load 'm': ".
  Status MayMake(const Peer& peer, const std::string& name, const std::string& doing) const;
  State& Expect(const Installed& installed, std::int64_t now_ns);
  static bool MayBeTriedAgain(const State& state, std::int64_t now_ns);
  void StartRequesters(std::int64_t now_ns);
  // The state that an attach to `name` finds: begun by it when an installed template says so.
  Result<State*> FindOrExpect(const Peer& peer, const std::string& name, std::int64_t now_ns);
  wire::TemplatesReply TemplatesFor(const Peer& peer) const;

  // node_kept.cc: what outlives the daemon.
  void RecordChanged(State& state);
  void NodeRecordChanged();
  void ShutdownAsked(ConnectionId connection, std::uint32_t request_id,
                     const wire::ShutdownRequest& request, std::int64_t now_ns);

  // node_builds.cc: states that a builder makes.
  void Build(ConnectionId connection, std::uint32_t request_id, const wire::BuildRequest& request,
             std::int64_t now_ns);
  Result<const State*> FindBase(const Peer& peer, const wire::BuildRequest& request);
  void ArenaAsked(ConnectionId connection, std::uint32_t request_id,
                  const wire::BuildArenaRequest& request, std::int64_t now_ns);
  Status MayTakeName(const wire::BuildRequest& request, const State& earlier) const;
  Status MayHaveArena(const State& state, std::uint64_t size_bytes) const;
  State* FindBuild(ConnectionId connection);
  static bool MayCommit(const State& build);
  // The builder goes on without the arena that it waited for.
  void GiveUpArena(State& state, std::int64_t now_ns);
  void RefuseArena(State& state, const Error& error, std::int64_t now_ns);
  bool HasDerived(StateId id) const;
  // The states that are derived from it, for `peer`: "'a', 'b' and 2 of other users".
  std::string DerivedText(StateId id, const Peer& peer) const;

  // node_room.cc: the budget, the queue, and who makes room.
  void EnterQueue(State& state, std::int64_t now_ns);
  void LeaveQueue(State& state, std::int64_t now_ns);
  void ServeQueue(std::int64_t now_ns);
  bool TryPlace(State& state, std::int64_t now_ns);
  Status MayEverFit(const State& state) const;
  std::uint64_t FreeBytes() const;
  // Memory that will be free without anybody's doing.
  std::uint64_t ComingBytes() const;
  // Whether it is the earlier epoch of its name that it waits for, not memory.
  bool WaitsForEarlier(const State& state) const;
  // Whether all that it waits for is that one of the loads that run ends.
  bool WaitsForTurn(const State& state) const;
  // Whether a queued load that nobody waits for may be left to get its room.
  bool RoomIsComing(const State& state) const;
  bool IsFreeToGo(const State& state) const;
  void SetBudget(ConnectionId connection, std::uint32_t request_id,
                 const wire::BudgetRequest& request, std::int64_t now_ns);
  void FailWhatNeverFits(std::int64_t now_ns);
  void ShrinkToBudget(std::int64_t now_ns);
  std::vector<StateId> VictimsFor(const State& state, std::uint64_t need_bytes) const;
  Error NoRoomFor(const State& state, std::int64_t now_ns, bool has_waited = false) const;
  std::string HoldersText(const State& state, std::int64_t now_ns) const;
  std::vector<const State*> HoldersOfMemory() const;
  std::string WhyItStays(const State& state, const State& wanted, std::int64_t now_ns) const;
  std::uint32_t QueuePlace(StateId id) const;
  void EndLifetimes(std::int64_t now_ns);

  // node_waiters.cc
  bool AddWaiter(const Waiter& waiter);
  bool IsAwaited(StateId id) const;
  void AnswerWaiters(StateId id, std::int64_t now_ns);
  void AnswerDrains();
  void AnswerEvents();
  void ExpireWaiters(std::int64_t now_ns);
  void Expire(const Waiter& waiter, std::int64_t now_ns);
  // What has become of the earlier epoch that the state follows, and of the state, for whoever
  // waits no longer; empty when it follows none.
  std::string EarlierText(const State& state) const;
  void TellProgress(State& state, std::int64_t now_ns);
  void TellPlaces(std::int64_t now_ns);  // to those whose place in the queue has changed

  // node_info.cc: answers that only tell.
  void Show(ConnectionId connection, std::uint32_t request_id, const wire::ShowRequest& request,
            std::int64_t now_ns);
  void Events(ConnectionId connection, std::uint32_t request_id, const wire::EventsRequest& request,
              std::int64_t now_ns);
  wire::EventsReply EventsFor(const Peer& peer, std::uint64_t after) const;
  void Reply(ConnectionId to, std::uint32_t request_id, wire::Body body);
  void Refuse(ConnectionId to, std::uint32_t request_id, const Error& error);
  void LogLine(Log::Level level, std::string text);
  // Into the journal. about: may be null; by: null for the daemon itself.
  void Note(wire::EventKind kind, const State* about, const Peer* by, std::string text,
            std::int64_t now_ns);
  wire::StateInfo Info(const State& state, std::int64_t now_ns) const;
  std::vector<wire::StateInfo> StatesFor(const Peer& peer, std::int64_t now_ns) const;
  // As `peer` is told.
  wire::StatusReply StatusFor(const Peer& peer, std::int64_t now_ns) const;
  std::uint64_t BytesOf(std::uint32_t uid) const;  // of memory, of its states
  std::vector<wire::LeaseInfo> LeasesOn(std::optional<StateId> only, const Peer& peer,
                                        std::int64_t now_ns) const;

  // node_state.cc
  const Peer& PeerOf(ConnectionId connection) const;
  bool IsNodeOwner(const Peer& peer) const { return daemon::IsNodeOwner(peer, facts_.uid); }
  bool MayUse(const Peer& peer, const State& state) const;
  bool MayManage(const Peer& peer, const State& state) const;
  // The newest of a name that somebody could attach to, now or later; else the newest of any phase.
  State* FindToAttach(std::string_view name);
  // The newest of a name that is neither failed nor closing.
  State* FindToLoad(std::string_view name);
  const State* FindToLoad(std::string_view name) const {
    return const_cast<NodeState*>(this)->FindToLoad(name);
  }
  // The newest of a name.
  State* FindNewest(std::string_view name);
  State* FindById(StateId id);
  const State* FindById(StateId id) const;
  std::uint32_t RunningLoads() const;
  // What an event leads to beyond its own doing: loads that can go on, waits that have ended.
  Actions Settle(std::int64_t now_ns);

  const Limits limits_;
  std::uint64_t budget_bytes_;  // as the limits say, until the node's owner sets another
  const wire::StatusReply facts_;
  const std::int64_t started_ns_;
  const std::int64_t wall_offset_ms_;  // since the epoch, at monotonic 0
  std::vector<Installed> installed_;
  std::deque<StateId> to_request_;  // expected states whose requester waits for its turn
  std::set<StateId> requesters_;    // started and not yet reaped
  Peer self_;                       // the daemon, as the one who asks for what is installed
  std::map<StateId, State> states_;
  std::set<StateId> queue_;  // kQueued and no longer expected; ids are in order of asking
  // Arenas of failed loads whose loader may still map them: bytes.
  std::map<StateId, std::uint64_t> dying_bytes_;
  std::set<StateId> loaders_;  // started and not yet reaped
  std::map<ConnectionId, Peer> peers_;
  std::map<std::uint32_t, std::uint32_t> connections_of_user_;
  std::vector<Waiter> waiters_;
  LeaseTable leases_;
  Journal journal_;
  std::uint64_t next_state_ = 1;
  std::uint64_t next_epoch_ = 1;
  std::uint64_t events_told_ = 0;  // up to this event, waiters have been answered
  std::uint64_t attach_total_ = 0;
  std::uint64_t evict_total_ = 0;
  std::uint64_t refusal_total_ = 0;
  std::int64_t asked_ns_ = 0;  // when the request came that is being answered
  bool draining_ = false;      // an admin empties the node
  bool shutting_down_ = false;
  bool keeper_lost_ = false;
  std::uint32_t foreign_count_ = 0;  // kept for a daemon of another version
  std::uint64_t foreign_bytes_ = 0;
  Actions actions_;
};

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_CORE_NODE_STATE_H_
