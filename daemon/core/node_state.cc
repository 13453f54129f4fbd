// The life of states: loads, publication, eviction. Requests that only ask are in node_info.cc,
// waiting ones in node_waiters.cc.

#include "daemon/core/node_state.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace sticky::daemon {
namespace {

using wire::StatePhase;

bool IsLoading(StatePhase phase) {
  return phase == StatePhase::kPlanning || phase == StatePhase::kFilling;
}

std::int64_t MsToNs(std::uint32_t ms) { return static_cast<std::int64_t>(ms) * 1'000'000; }

unsigned long long Ull(std::uint64_t value) { return value; }

}  // namespace

NodeState::NodeState(const Limits& limits, wire::StatusReply facts, std::int64_t now_ns)
    : limits_(limits),
      facts_(std::move(facts)),
      started_ns_(now_ns),
      leases_(limits.lease_count_max) {}

NodeState::Actions NodeState::Connected(ConnectionId connection, Peer peer, std::int64_t) {
  peers_.insert_or_assign(connection, std::move(peer));
  return Take();
}

NodeState::Actions NodeState::Disconnected(ConnectionId connection, std::int64_t now_ns) {
  peers_.erase(connection);
  std::vector<StateId> unwanted;
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    if (waiter.connection != connection) return false;
    unwanted.push_back(waiter.state);
    return true;
  });
  for (const Lease& lease : leases_.EndAll(connection)) Release(lease.state, now_ns);
  for (auto& [id, state] : states_) {
    if (state.holder_to_be != connection) continue;
    state.holder_to_be = ConnectionId{0};
    if (state.phase == StatePhase::kReady) unwanted.push_back(id);
  }
  for (const StateId id : unwanted) {
    CancelIfUnwanted(id, now_ns);
    Release(id, now_ns);
  }
  return Take();
}

NodeState::Actions NodeState::Asked(ConnectionId connection, const wire::Message& message,
                                    std::int64_t now_ns) {
  const std::uint32_t id = message.request_id;
  if (const auto* attach = std::get_if<wire::AttachRequest>(&message.body)) {
    Attach(connection, id, *attach, now_ns);
  } else if (const auto* evict = std::get_if<wire::EvictRequest>(&message.body)) {
    Evict(connection, id, *evict, now_ns);
  } else if (const auto* show = std::get_if<wire::ShowRequest>(&message.body)) {
    Show(connection, id, *show, now_ns);
  } else if (std::holds_alternative<wire::ListRequest>(message.body)) {
    Reply(connection, id, wire::ListReply{ListStates(now_ns)});
  } else if (std::holds_alternative<wire::StatusRequest>(message.body)) {
    Reply(connection, id, StatusOf(now_ns));
  } else if (std::holds_alternative<wire::LeasesRequest>(message.body)) {
    Reply(connection, id, wire::LeasesReply{LeasesOn(std::nullopt, now_ns)});
  } else {
    Refuse(connection, id, Error{Code::kInvalidArgument, "answer a request: it is not a request"});
  }
  return Take();
}

// --- loads ------------------------------------------------------------------------------------

NodeState::Actions NodeState::LoadAsked(ConnectionId connection, std::uint32_t request_id,
                                        const wire::LoadRequest& request, BundleId bundle,
                                        std::int64_t now_ns) {
  State* const known = FindByName(request.state);
  if (shutting_down_) {
    Refuse(connection, request_id,
           Error{Code::kUnavailable, "load '" + request.state + "': the daemon is shutting down"});
  } else if (known != nullptr && known->phase != StatePhase::kFailed) {
    JoinLoad(connection, request_id, *known, request, now_ns);
  } else {
    StartLoad(connection, request_id, request, bundle, now_ns);
    return Take();
  }
  actions_.emplace_back(DropBundle{bundle});
  return Take();
}

bool NodeState::JoinLoad(ConnectionId connection, std::uint32_t request_id, State& state,
                         const wire::LoadRequest& request, std::int64_t now_ns) {
  const std::string doing = "load '" + request.state + "'";
  if (state.template_digest != request.template_digest) {
    Refuse(connection, request_id,
           Error{Code::kInvalidArgument, doing + ": a state of that name was built from template " +
                                             ToHex(state.template_digest) + ", not " +
                                             ToHex(request.template_digest) +
                                             "; evict it first or use another name"});
    return false;
  }
  if (state.phase == StatePhase::kDraining) {
    Refuse(connection, request_id,
           Error{Code::kUnavailable, doing + ": it is being evicted; try again when it is gone"});
    return false;
  }
  state.pinned = state.pinned || request.pin;
  state.kept_by_holds = state.kept_by_holds && request.hold;
  if (request.hold) state.holder_to_be = connection;
  if (!IsLoading(state.phase) || request.wait_ms == 0) {
    if (IsLoading(state.phase)) state.cancelled_when_unwanted = false;
    Reply(connection, request_id, wire::LoadReply{Info(state, now_ns), /*joined=*/true});
    return true;
  }
  return AddWaiter(Waiter{.connection = connection,
                          .request_id = request_id,
                          .wish = Wish::kLoad,
                          .state = state.id,
                          .deadline_ns = now_ns + MsToNs(request.wait_ms),
                          .joined = true});
}

Status NodeState::MayStartLoad(const wire::LoadRequest& request) const {
  const std::string doing = "load '" + request.state + "'";
  if (RunningLoads() >= limits_.load_count_max) {
    return Error{Code::kUnavailable, Format("%s: %u loads are running, the limit (limits.loads); "
                                            "try again when one has ended",
                                            doing.c_str(), limits_.load_count_max)};
  }
  const auto live = static_cast<std::uint32_t>(
      std::count_if(states_.begin(), states_.end(),
                    [](const auto& entry) { return entry.second.phase != StatePhase::kFailed; }));
  if (live >= limits_.state_count_max) {
    return Error{Code::kOutOfMemory,
                 Format("%s: %u states exist, the limit (limits.states); evict one first",
                        doing.c_str(), limits_.state_count_max)};
  }
  return Ok{};
}

void NodeState::StartLoad(ConnectionId connection, std::uint32_t request_id,
                          const wire::LoadRequest& request, BundleId bundle, std::int64_t now_ns) {
  if (State* const failed = FindByName(request.state)) Forget(failed->id);
  if (const Status may = MayStartLoad(request); !may.ok()) {
    Refuse(connection, request_id, may.error());
    actions_.emplace_back(DropBundle{bundle});
    return;
  }
  const StateId id{next_state_++};
  State& state = states_[id];
  state.id = id;
  state.name = request.state;
  state.template_digest = request.template_digest;
  state.source = request.source;
  state.dtype = request.dtype;
  state.huge_pages_wanted = request.huge_pages;
  state.pinned = request.pin;
  state.kept_by_holds = request.hold;
  state.holder_to_be = request.hold ? connection : ConnectionId{0};
  state.cancelled_when_unwanted = request.wait_ms != 0;
  state.epoch = next_epoch_++;
  state.asked_ns = state.moved_ns = now_ns;

  LogLine(Log::Level::kInfo, Format("load '%s' (epoch %llu) from '%s'", state.name.c_str(),
                                    Ull(state.epoch), Escape(state.source).c_str()));
  actions_.emplace_back(
      StartLoader{id, bundle, wire::PlanRequest{state.name, request.dtype, request.file_count}});
  const Waiter waiter{.connection = connection,
                      .request_id = request_id,
                      .wish = Wish::kLoad,
                      .state = id,
                      .deadline_ns = now_ns + MsToNs(request.wait_ms)};
  if (request.wait_ms == 0) {
    Reply(connection, request_id, wire::LoadReply{Info(state, now_ns), /*joined=*/false});
  } else if (!AddWaiter(waiter)) {
    CancelIfUnwanted(id, now_ns);
  }
}

NodeState::Actions NodeState::Planned(StateId id, std::uint64_t arena_bytes,
                                      std::uint32_t tensor_count, std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state == nullptr || state->phase != StatePhase::kPlanning) return Take();
  const std::uint64_t used = used_bytes();
  const std::uint64_t left = limits_.budget_bytes - std::min(used, limits_.budget_bytes);
  if (arena_bytes > left) {
    FailLoad(*state,
             Error{Code::kOutOfMemory,
                   Format("load '%s': it needs %llu bytes (%s), %llu (%s) of the node's budget of "
                          "%llu (%s) are free; evict a state, or raise memory.host",
                          state->name.c_str(), Ull(arena_bytes), ByteCount(arena_bytes).c_str(),
                          Ull(left), ByteCount(left).c_str(), Ull(limits_.budget_bytes),
                          ByteCount(limits_.budget_bytes).c_str())},
             now_ns);
    return Take();
  }
  state->arena_bytes = arena_bytes;
  state->tensor_count = tensor_count;
  state->phase = StatePhase::kFilling;
  state->moved_ns = now_ns;
  actions_.emplace_back(AllocateArena{id, arena_bytes, state->huge_pages_wanted});
  return Take();
}

NodeState::Actions NodeState::ArenaAllocated(StateId id, std::string huge_pages,
                                             std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state != nullptr && state->phase == StatePhase::kFilling) {
    state->huge_pages = std::move(huge_pages);
    state->moved_ns = now_ns;
    TellProgress(*state, now_ns);
  }
  return Take();
}

NodeState::Actions NodeState::Progressed(StateId id, std::uint64_t bytes_done,
                                         std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state == nullptr || state->phase != StatePhase::kFilling) return Take();
  // Only an advance is a sign of life: a loader that repeats itself has stalled.
  if (bytes_done <= state->bytes_done || bytes_done > state->arena_bytes) return Take();
  state->bytes_done = bytes_done;
  state->moved_ns = now_ns;
  TellProgress(*state, now_ns);
  return Take();
}

NodeState::Actions NodeState::Filled(StateId id, const Digest& content_digest,
                                     std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state == nullptr || state->phase != StatePhase::kFilling) return Take();
  state->content_digest = content_digest;
  state->bytes_done = state->arena_bytes;
  state->moved_ns = now_ns;
  actions_.emplace_back(
      Publish{id, state->name, state->epoch, facts_.nonce, content_digest, state->template_digest});
  return Take();
}

NodeState::Actions NodeState::Published(StateId id, std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state == nullptr || state->phase != StatePhase::kFilling) return Take();
  state->phase = StatePhase::kReady;
  state->ended_ns = now_ns;
  LogLine(Log::Level::kInfo,
          Format("state '%s' (epoch %llu) is ready: %s in %.2f s, digest %s", state->name.c_str(),
                 Ull(state->epoch), ByteCount(state->arena_bytes).c_str(),
                 static_cast<double>(now_ns - state->asked_ns) / 1e9,
                 ToHex(*state->content_digest).c_str()));
  AnswerWaiters(id, now_ns);
  Release(id, now_ns);  // its holder may have gone in the meantime
  return Take();
}

NodeState::Actions NodeState::LoaderFailed(StateId id, const Error& error, std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state != nullptr && IsLoading(state->phase)) FailLoad(*state, error, now_ns);
  return Take();
}

void NodeState::FailLoad(State& state, const Error& error, std::int64_t now_ns) {
  state.phase = StatePhase::kFailed;
  state.failure = wire::Failure{error.code, error.message, error.os_code};
  state.ended_ns = now_ns;
  state.arena_bytes = 0;
  state.content_digest.reset();
  LogLine(Log::Level::kWarning, Format("load '%s' (epoch %llu) failed: %s", state.name.c_str(),
                                       Ull(state.epoch), Printable(error.message).c_str()));
  actions_.emplace_back(KillLoader{state.id});
  actions_.emplace_back(FreeArena{state.id});
  AnswerWaiters(state.id, now_ns);
  TrimFailed();
}

void NodeState::CancelIfUnwanted(StateId id, std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state == nullptr || !IsLoading(state->phase) || !state->cancelled_when_unwanted) return;
  const bool wanted = std::any_of(waiters_.begin(), waiters_.end(),
                                  [id](const Waiter& waiter) { return waiter.state == id; });
  if (wanted) return;
  FailLoad(*state,
           Error{Code::kUnavailable,
                 "load '" + state->name + "': cancelled, nobody waits for it any more"},
           now_ns);
}

void NodeState::TrimFailed() {
  std::uint32_t failed_count = 0;
  for (const auto& [id, state] : states_) failed_count += state.phase == StatePhase::kFailed;
  for (auto it = states_.begin(); it != states_.end() && failed_count > limits_.failed_count_max;) {
    const bool oldest = it->second.phase == StatePhase::kFailed;
    it = oldest ? states_.erase(it) : std::next(it);
    failed_count -= oldest ? 1 : 0;
  }
}

// --- leases and eviction ----------------------------------------------------------------------

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
  if (request.hold && state.holder_to_be == connection) state.holder_to_be = ConnectionId{0};
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

void NodeState::Evict(ConnectionId connection, std::uint32_t request_id,
                      const wire::EvictRequest& request, std::int64_t now_ns) {
  const std::string doing = "evict '" + request.state + "'";
  State* state = FindByName(request.state);
  if (state == nullptr) {
    return Refuse(connection, request_id,
                  Error{Code::kNotFound, doing + ": no such state on this node"});
  }
  const StateId id = state->id;
  if (state->phase == StatePhase::kFailed) {
    const wire::StateInfo info = Info(*state, now_ns);
    Forget(id);
    return Reply(connection, request_id, wire::EvictReply{info, /*freed=*/true, {}});
  }
  if (IsLoading(state->phase)) {
    FailLoad(*state, Error{Code::kUnavailable, "load '" + state->name + "': it was evicted"},
             now_ns);
    state = FindById(id);
    const wire::StateInfo info = state != nullptr ? Info(*state, now_ns) : wire::StateInfo{};
    Forget(id);
    return Reply(connection, request_id, wire::EvictReply{info, /*freed=*/true, {}});
  }
  const wire::StateInfo before = Info(*state, now_ns);
  Drain(*state, now_ns);
  state = FindById(id);
  if (state == nullptr) {
    return Reply(connection, request_id, wire::EvictReply{before, /*freed=*/true, {}});
  }
  if (request.wait_ms == 0) {
    return Reply(connection, request_id,
                 wire::EvictReply{Info(*state, now_ns), /*freed=*/false, LeasesOn(id, now_ns)});
  }
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
  const bool held = state->holder_to_be != ConnectionId{0} || leases_.HoldCountOn(id) > 0;
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
  if (any || state == nullptr || state->phase != StatePhase::kClosing) return Take();
  LogLine(Log::Level::kInfo,
          Format("state '%s' (epoch %llu) is gone: %s are free again", state->name.c_str(),
                 Ull(state->epoch), ByteCount(state->arena_bytes).c_str()));
  actions_.emplace_back(FreeArena{id});
  AnswerWaiters(id, now_ns);
  Forget(id);
  return Take();
}

void NodeState::Forget(StateId id) { states_.erase(id); }

// --- time ---------------------------------------------------------------------------------------

NodeState::Actions NodeState::Tick(std::int64_t now_ns) {
  std::vector<StateId> expired;
  for (auto& [id, state] : states_) {
    const std::int64_t silent_ns = now_ns - state.moved_ns;
    if (state.phase == StatePhase::kPlanning && silent_ns > limits_.plan_ns) {
      FailLoad(state,
               Error{Code::kUnavailable,
                     Format("load '%s': its files' headers were not read within %.1f s",
                            state.name.c_str(), static_cast<double>(limits_.plan_ns) / 1e9)},
               now_ns);
      break;  // FailLoad may have dropped other failed states; the rest waits for the next tick
    }
    if (state.phase == StatePhase::kFilling && silent_ns > limits_.fill_stall_ns) {
      FailLoad(state,
               Error{Code::kUnavailable,
                     Format("load '%s': the loader stalled for %.1f s at %llu of %llu bytes",
                            state.name.c_str(), static_cast<double>(silent_ns) / 1e9,
                            Ull(state.bytes_done), Ull(state.arena_bytes))},
               now_ns);
      break;
    }
    if (state.phase == StatePhase::kFailed && now_ns - state.ended_ns > limits_.failed_kept_ns) {
      expired.push_back(id);
    }
    if (state.phase == StatePhase::kClosing && now_ns - state.looked_ns > limits_.borrower_ns) {
      state.looked_ns = now_ns;
      actions_.emplace_back(AskBorrowers{id});
    }
  }
  for (const StateId id : expired) Forget(id);
  ExpireWaiters(now_ns);
  return Take();
}

NodeState::Actions NodeState::ShutDown(std::int64_t now_ns) {
  if (shutting_down_) return Take();
  shutting_down_ = true;
  LogLine(Log::Level::kInfo,
          Format("shutting down: %u leases stay valid for their holders", leases_.count()));
  std::vector<StateId> loading;
  for (const auto& [id, state] : states_) {
    if (IsLoading(state.phase)) loading.push_back(id);
  }
  const Error error{Code::kUnavailable, "the daemon is shutting down"};
  for (const StateId id : loading) {
    if (State* const state = FindById(id)) FailLoad(*state, error, now_ns);
  }
  for (const Waiter& waiter : std::exchange(waiters_, {})) {
    Refuse(waiter.connection, waiter.request_id, error);
  }
  return Take();
}

bool NodeState::NeedsTicks() const {
  return !waiters_.empty() || std::any_of(states_.begin(), states_.end(), [](const auto& entry) {
    return entry.second.phase != StatePhase::kReady && entry.second.phase != StatePhase::kDraining;
  });
}

}  // namespace sticky::daemon
