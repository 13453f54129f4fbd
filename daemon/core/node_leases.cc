// Attaching to a state, letting go, evicting and draining.

#include <utility>

#include "base/text.h"
#include "daemon/core/core_text.h"
#include "daemon/core/node_state.h"

namespace sticky::daemon {

using wire::EventKind;
using wire::StatePhase;

void NodeState::Attach(ConnectionId connection, std::uint32_t request_id,
                       const wire::AttachRequest& request, std::int64_t now_ns) {
  const std::string doing = "attach '" + request.state + "'";
  if (shutting_down_) {
    return Refuse(connection, request_id,
                  Error{Code::kUnavailable, doing + ": the daemon is shutting down"});
  }
  const Result<State*> found = FindOrExpect(PeerOf(connection), request.state, now_ns);
  if (!found.ok()) return Refuse(connection, request_id, found.error());
  State* const state = found.value();
  if (state == nullptr) {
    return Refuse(connection, request_id,
                  Error{Code::kNotFound,
                        doing + ": no such state on this node; `stickyctl ls` shows those there "
                                "are, `stickyctl load TEMPLATE` builds one"});
  }
  if (const Peer& peer = PeerOf(connection); !MayUse(peer, *state)) {
    return Refuse(connection, request_id,
                  Error{Code::kPermissionDenied,
                        doing + Format(" as user %u: ", peer.uid) + RuleText(state->ownership())});
  }
  switch (state->phase) {
    case StatePhase::kReady:
      return GrantAttach(connection, request_id, *state, request, now_ns);
    case StatePhase::kFailed:
      return Refuse(
          connection, request_id,
          Error{state->failure->code, doing + ": its load " +
                                          (state->cancelled ? "was cancelled: " : "failed: ") +
                                          state->failure->message});
    case StatePhase::kDraining:
    case StatePhase::kClosing:
      return Refuse(connection, request_id,
                    Error{Code::kUnavailable, doing + ": it is being evicted"});
    case StatePhase::kQueued:
    case StatePhase::kPlanning:
    case StatePhase::kFilling:
      break;
  }
  if (request.wait_ms == 0) {
    return Refuse(
        connection, request_id,
        Error{Code::kUnavailable,
              Format("%s: it is being loaded, %llu of %llu bytes are done; give %s, and it "
                     "is waited for",
                     doing.c_str(), Ull(state->bytes_done), Ull(state->arena_bytes), kWaitWords)});
  }
  AddWaiter(Waiter{.connection = connection,
                   .request_id = request_id,
                   .wish = Wish::kAttach,
                   .state = state->id,
                   .deadline_ns = now_ns + MsToNs(request.wait_ms),
                   .attach = request});
}

Status NodeState::MayLease(const Peer& peer, const State& state) const {
  const std::string doing = "attach '" + state.name + "': ";
  if (draining_ || state.closed) {
    const std::string what = draining_ ? "the node is" : "it is";
    const std::string drained = draining_ ? "" : state.name + " ";
    return Error{Code::kUnavailable,
                 doing + what + " being drained and takes no new leases; run on another node, or " +
                     "try again later (`stickyctl drain " + drained + "--resume` ends it)"};
  }
  const std::uint32_t count = leases_.CountOn(state.id);
  if (state.policy.lease_count_max != 0 && count >= state.policy.lease_count_max) {
    return Error{Code::kUnavailable,
                 doing + Format("it has %u leases, the most that its template allows (max_leases); "
                                "try again when one has ended",
                                count)};
  }
  if (!IsNodeOwner(peer) && leases_.CountOf(peer.uid) >= limits_.user.lease_count_max) {
    return Error{Code::kUnavailable,
                 doing + Format("user %u has %u leases, the limit of one user "
                                "(limits.per_user.leases); try again when one has ended",
                                peer.uid, leases_.CountOf(peer.uid))};
  }
  return Ok{};
}

void NodeState::GrantAttach(ConnectionId connection, std::uint32_t request_id, State& state,
                            const wire::AttachRequest& request, std::int64_t now_ns) {
  const Peer& peer = PeerOf(connection);
  if (request.digest && *request.digest != *state.content_digest) {
    return Refuse(connection, request_id,
                  Error{Code::kCorrupt, "attach '" + state.name + "': content digest is " +
                                            ToHex(*state.content_digest) + ", wanted " +
                                            ToHex(*request.digest)});
  }
  if (const Status may = MayLease(peer, state); !may.ok()) {
    return Refuse(connection, request_id, may.error());
  }
  Result<LeaseId> lease =
      leases_.Grant(Lease{state.id, connection, peer.uid, now_ns, request.hold, request.job});
  if (!lease.ok()) return Refuse(connection, request_id, lease.error());
  if (request.hold) state.holders_to_be.erase(connection);
  ++attach_total_;
  Note(EventKind::kAttach, &state, &peer, request.hold ? "hold" : "", now_ns);
  const wire::AttachReply reply{lease.value().value, state.epoch, /*arena_bytes=*/{}};
  actions_.emplace_back(
      Send{connection, {request_id, reply}, Attachment::kState, state.id, lease.value()});
}

NodeState::Actions NodeState::LendFailed(LeaseId lease, std::int64_t now_ns) {
  const auto found = leases_.leases().find(lease);
  if (found == leases_.leases().end()) return Settle(now_ns);
  const StateId state = found->second.state;
  leases_.End(lease);
  Release(state, now_ns);
  return Settle(now_ns);
}

// Evicting is an owner's word: a pinned state goes too. `pin` keeps a state from ending with its
// holds, and from being evicted for want of memory.
void NodeState::Evict(ConnectionId connection, std::uint32_t request_id,
                      const wire::EvictRequest& request, std::int64_t now_ns) {
  const Peer& peer = PeerOf(connection);
  State* state = FindNewest(request.state);
  if (state == nullptr) {
    return Refuse(connection, request_id,
                  Error{Code::kNotFound, "evict '" + request.state +
                                             "': no such state on this node; `stickyctl ls` "
                                             "shows those there are"});
  }
  if (!MayManage(peer, *state)) {
    return Refuse(connection, request_id,
                  Error{Code::kPermissionDenied,
                        Format("evict '%s' as user %u: that is for its owner, user %u, and the "
                               "node's owner",
                               request.state.c_str(), peer.uid, state->uid)});
  }
  wire::StateInfo ended = Info(*state, now_ns);
  if (state->IsLoading()) {
    const StateId loading = state->id;
    if (WaitsForEarlier(*state)) FindById(*state->follows)->gives_way = false;
    CancelLoad(*state, "cancelled, it was evicted", now_ns);
    ended.phase = StatePhase::kFailed;
    if (const State* const failed = FindById(loading)) ended = Info(*failed, now_ns);
    state = FindNewest(request.state);  // the epoch that it was to replace
  }
  if (state == nullptr || state->phase == StatePhase::kFailed) {
    if (state != nullptr) Forget(state->id);
    return Reply(connection, request_id, wire::EvictReply{ended, /*freed=*/true, {}});
  }
  Drain(*state, Format("user %u evicts it", peer.uid), &peer, now_ns);
  if (request.wait_ms == 0 && state->phase == StatePhase::kDraining) {
    return Reply(
        connection, request_id,
        wire::EvictReply{Info(*state, now_ns), /*freed=*/false, LeasesOn(state->id, peer, now_ns)});
  }
  // Nobody leases it any more; with wait_ms 0 the answer comes with the next look at borrowers.
  AddWaiter(Waiter{.connection = connection,
                   .request_id = request_id,
                   .wish = Wish::kEvict,
                   .state = state->id,
                   .deadline_ns = now_ns + MsToNs(request.wait_ms)});
}

// Of one state or of the node: nobody new comes in, whoever is there may stay. Nothing is freed.
void NodeState::DrainAsked(ConnectionId connection, std::uint32_t request_id,
                           const wire::DrainRequest& request, std::int64_t now_ns) {
  const Peer& peer = PeerOf(connection);
  const std::string doing = request.state ? "drain '" + *request.state + "'" : "drain the node";
  State* const state = request.state ? FindToAttach(*request.state) : nullptr;
  if (request.state && (state == nullptr || state->phase == StatePhase::kFailed)) {
    return Refuse(connection, request_id,
                  Error{Code::kNotFound, doing + ": no such state on this node; `stickyctl ls` "
                                                 "shows those there are"});
  }
  const bool may = state != nullptr ? MayManage(peer, *state) : IsNodeOwner(peer);
  if (!may) {
    return Refuse(connection, request_id,
                  Error{Code::kPermissionDenied,
                        doing + Format(" as user %u: that is for %sthe node's owner", peer.uid,
                                       state != nullptr ? "its owner and " : "")});
  }
  (state != nullptr ? state->closed : draining_) = !request.resume;
  state != nullptr ? RecordChanged(*state) : NodeRecordChanged();
  LogLine(Log::Level::kInfo,
          Format("user %u %s %s", peer.uid, request.resume ? "resumes" : "drains",
                 state != nullptr ? ("'" + state->name + "'").c_str() : "the node"));
  Note(request.resume ? EventKind::kResume : EventKind::kDrain, state, &peer, "", now_ns);
  AddWaiter(Waiter{.connection = connection,
                   .request_id = request_id,
                   .wish = Wish::kDrain,
                   .state = state != nullptr ? std::optional(state->id) : std::nullopt,
                   .deadline_ns = now_ns + (request.resume ? 0 : MsToNs(request.wait_ms))});
  ExpireWaiters(now_ns);
}

void NodeState::Drain(State& state, const std::string& why, const Peer* by, std::int64_t now_ns) {
  if (state.phase == StatePhase::kReady) {
    state.phase = StatePhase::kDraining;
    RecordChanged(state);
    LogLine(Log::Level::kInfo,
            Format("state '%s' (epoch %llu) drains: %s; %u leases are left", state.name.c_str(),
                   Ull(state.epoch), why.c_str(), leases_.CountOn(state.id)));
    Note(EventKind::kEvict, &state, by, why, now_ns);
  }
  Release(state.id, now_ns);
}

// Something that kept the state may have ended: goes on with its end of life when nothing is left.
void NodeState::Release(StateId id, std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state == nullptr) return;
  const bool leased = leases_.CountOn(id) > 0;
  const bool held = !state->holders_to_be.empty() || leases_.HoldCountOn(id) > 0 ||
                    now_ns < state->awaited_until_ns;
  if (!leased) state->used_ns = now_ns;
  if (state->phase == StatePhase::kReady && state->kept_by_holds && !state->policy.pin && !held) {
    return Drain(*state, "its last hold has ended", nullptr, now_ns);
  }
  if (state->phase != StatePhase::kDraining || leased || HasDerived(id)) return;
  state->phase = StatePhase::kClosing;
  LookForBorrowers(*state, now_ns);
}

void NodeState::LookForBorrowers(State& state, std::int64_t now_ns) {
  state.looked_ns = now_ns;
  state.is_looked_at = true;
  actions_.emplace_back(AskBorrowers{state.id});
}

NodeState::Actions NodeState::Borrowers(StateId id, bool any, std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state == nullptr || state->phase != StatePhase::kClosing) return Settle(now_ns);
  state->is_looked_at = false;
  if (any || (state->builder && loaders_.contains(id))) {
    ExpireWaiters(now_ns);
    return Settle(now_ns);
  }
  LogLine(Log::Level::kInfo,
          Format("state '%s' (epoch %llu) is gone: %s are free again", state->name.c_str(),
                 Ull(state->epoch), ByteCount(state->arena_bytes).c_str()));
  Note(EventKind::kGone, state, nullptr, ByteCount(state->arena_bytes), now_ns);
  actions_.emplace_back(FreeArena{id});
  AnswerWaiters(id, now_ns);
  const std::optional<StateId> base = state->base;
  Forget(id);
  if (base) Release(*base, now_ns);
  return Settle(now_ns);
}

}  // namespace sticky::daemon
