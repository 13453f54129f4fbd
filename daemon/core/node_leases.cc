// Attaching to a state, letting go, and evicting it.

#include <utility>

#include "base/text.h"
#include "daemon/core/core_text.h"
#include "daemon/core/node_state.h"

namespace sticky::daemon {

using wire::StatePhase;

void NodeState::Attach(ConnectionId connection, std::uint32_t request_id,
                       const wire::AttachRequest& request, std::int64_t now_ns) {
  const std::string doing = "attach '" + request.state + "'";
  State* const state = FindByName(request.state);
  if (shutting_down_) {
    return Refuse(connection, request_id,
                  Error{Code::kUnavailable, doing + ": the daemon is shutting down"});
  }
  if (state == nullptr) {
    return Refuse(connection, request_id,
                  Error{Code::kNotFound,
                        doing + ": no such state on this node; `stickyctl ls` shows those there "
                                "are, `stickyctl load TEMPLATE` builds one"});
  }
  switch (state->phase) {
    case StatePhase::kReady:
      return GrantAttach(connection, request_id, *state, request, now_ns);
    case StatePhase::kFailed:
      return Refuse(
          connection, request_id,
          Error{state->failure->code, doing + ": its load failed: " + state->failure->message});
    case StatePhase::kDraining:
    case StatePhase::kClosing:
      return Refuse(connection, request_id,
                    Error{Code::kUnavailable, doing + ": it is being evicted"});
    case StatePhase::kPlanning:
    case StatePhase::kFilling:
      break;
  }
  if (request.wait_ms == 0) {
    return Refuse(connection, request_id,
                  Error{Code::kUnavailable,
                        Format("%s: it is being loaded, %llu of %llu bytes are done; wait for it "
                               "with a deadline",
                               doing.c_str(), Ull(state->bytes_done), Ull(state->arena_bytes))});
  }
  AddWaiter(Waiter{.connection = connection,
                   .request_id = request_id,
                   .wish = Wish::kAttach,
                   .state = state->id,
                   .deadline_ns = now_ns + MsToNs(request.wait_ms),
                   .attach = request});
}

void NodeState::GrantAttach(ConnectionId connection, std::uint32_t request_id, State& state,
                            const wire::AttachRequest& request, std::int64_t now_ns) {
  if (request.digest && *request.digest != *state.content_digest) {
    return Refuse(connection, request_id,
                  Error{Code::kCorrupt, "attach '" + state.name + "': content digest is " +
                                            ToHex(*state.content_digest) + ", wanted " +
                                            ToHex(*request.digest)});
  }
  Result<LeaseId> lease = leases_.Grant(Lease{state.id, connection, now_ns, request.hold});
  if (!lease.ok()) return Refuse(connection, request_id, lease.error());
  if (request.hold) state.holders_to_be.erase(connection);
  const wire::AttachReply reply{lease.value().value, state.epoch, {state.arena_bytes}};
  actions_.emplace_back(
      Send{connection, {request_id, reply}, Attachment::kState, state.id, lease.value()});
}

NodeState::Actions NodeState::LendFailed(LeaseId lease, std::int64_t now_ns) {
  const auto found = leases_.leases().find(lease);
  if (found == leases_.leases().end()) return Take();
  const StateId state = found->second.state;
  leases_.End(lease);
  Release(state, now_ns);
  return Take();
}

// Evicting is the owner's word: a pinned state goes too. `pin` keeps a state from ending with its
// holds, and will keep it from being evicted for want of memory.
void NodeState::Evict(ConnectionId connection, std::uint32_t request_id,
                      const wire::EvictRequest& request, std::int64_t now_ns) {
  State* state = FindEvenClosing(request.state);
  if (state == nullptr) {
    return Refuse(connection, request_id,
                  Error{Code::kNotFound, "evict '" + request.state +
                                             "': no such state on this node; `stickyctl ls` "
                                             "shows those there are"});
  }
  const StateId id = state->id;
  if (IsLoading(state->phase)) {
    FailLoad(*state, Error{Code::kUnavailable, "load '" + state->name + "': it was evicted"},
             now_ns);
    state = FindById(id);
  }
  if (state == nullptr || state->phase == StatePhase::kFailed) {
    wire::StateInfo info;
    info.name = request.state;
    info.phase = StatePhase::kFailed;
    if (state != nullptr) info = Info(*state, now_ns);
    Forget(id);
    return Reply(connection, request_id, wire::EvictReply{info, /*freed=*/true, {}});
  }
  Drain(*state, now_ns);
  if (request.wait_ms == 0 && state->phase == StatePhase::kDraining) {
    return Reply(connection, request_id,
                 wire::EvictReply{Info(*state, now_ns), /*freed=*/false, LeasesOn(id, now_ns)});
  }
  // Nobody leases it any more; with wait_ms 0 the answer comes with the next look at borrowers.
  AddWaiter(Waiter{.connection = connection,
                   .request_id = request_id,
                   .wish = Wish::kEvict,
                   .state = id,
                   .deadline_ns = now_ns + MsToNs(request.wait_ms)});
}

void NodeState::Drain(State& state, std::int64_t now_ns) {
  if (state.phase == StatePhase::kReady) {
    state.phase = StatePhase::kDraining;
    LogLine(Log::Level::kInfo,
            Format("state '%s' (epoch %llu) drains: %u leases are left", state.name.c_str(),
                   Ull(state.epoch), leases_.CountOn(state.id)));
  }
  Release(state.id, now_ns);
}

// Something that kept the state may have ended: goes on with its end of life when nothing is left.
void NodeState::Release(StateId id, std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state == nullptr) return;
  const bool held = !state->holders_to_be.empty() || leases_.HoldCountOn(id) > 0;
  if (state->phase == StatePhase::kReady && state->kept_by_holds && !state->pinned && !held) {
    return Drain(*state, now_ns);
  }
  if (state->phase != StatePhase::kDraining || leases_.CountOn(id) > 0) return;
  state->phase = StatePhase::kClosing;
  state->looked_ns = now_ns;
  actions_.emplace_back(AskBorrowers{id});
}

NodeState::Actions NodeState::Borrowers(StateId id, bool any, std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state == nullptr || state->phase != StatePhase::kClosing) return Take();
  if (any) {
    ExpireWaiters(now_ns);
    return Take();
  }
  LogLine(Log::Level::kInfo,
          Format("state '%s' (epoch %llu) is gone: %s are free again", state->name.c_str(),
                 Ull(state->epoch), ByteCount(state->arena_bytes).c_str()));
  actions_.emplace_back(FreeArena{id});
  AnswerWaiters(id, now_ns);
  Forget(id);
  return Take();
}

void NodeState::Forget(StateId id) { states_.erase(id); }

}  // namespace sticky::daemon
