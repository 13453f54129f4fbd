// The life of a load: from the request to the published state, or to its failure.

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "daemon/core/core_text.h"
#include "daemon/core/node_state.h"

namespace sticky::daemon {

using wire::StatePhase;

NodeState::Actions NodeState::LoadAsked(ConnectionId connection, std::uint32_t request_id,
                                        const wire::LoadRequest& request, BundleId bundle,
                                        std::int64_t now_ns) {
  State* const known = FindByName(request.state);
  if (const Status may = MayAsk(connection); !may.ok()) {
    Refuse(connection, request_id, may.error());
  } else if (shutting_down_) {
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

void NodeState::JoinLoad(ConnectionId connection, std::uint32_t request_id, State& state,
                         const wire::LoadRequest& request, std::int64_t now_ns) {
  const std::string doing = "load '" + request.state + "'";
  if (state.template_digest != request.template_digest) {
    Refuse(connection, request_id,
           Error{Code::kInvalidArgument, doing + ": a state of that name was built from template " +
                                             ToHex(state.template_digest) + ", not " +
                                             ToHex(request.template_digest) +
                                             "; evict it first or use another name"});
    return;
  }
  if (state.phase == StatePhase::kDraining) {
    Refuse(connection, request_id,
           Error{Code::kUnavailable, doing + ": it is being evicted; try again when it is gone"});
    return;
  }
  state.pinned = state.pinned || request.pin;
  state.kept_by_holds = state.kept_by_holds && request.hold;
  if (request.hold) state.holders_to_be.insert(connection);
  if (!IsLoading(state.phase) || request.wait_ms == 0) {
    if (IsLoading(state.phase)) state.cancelled_when_unwanted = false;
    Reply(connection, request_id, wire::LoadReply{Info(state, now_ns), /*joined=*/true});
    return;
  }
  AddWaiter(Waiter{.connection = connection,
                   .request_id = request_id,
                   .wish = Wish::kLoad,
                   .state = state.id,
                   .deadline_ns = now_ns + MsToNs(request.wait_ms),
                   .joined = true});
}

Status NodeState::MayStartLoad(const wire::LoadRequest& request) const {
  const std::string doing = "load '" + request.state + "'";
  // A killed loader ends at once, unless the file system that it reads from hangs.
  constexpr std::uint32_t kStuckLoadersMax = 16;
  if (loaders_.size() >= limits_.load_count_max + kStuckLoadersMax) {
    return Error{Code::kUnavailable,
                 Format("%s: %zu loaders of ended loads cannot be killed; does the file system of "
                        "the model files still answer?",
                        doing.c_str(), loaders_.size())};
  }
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
  if (const Status may = MayStartLoad(request); !may.ok()) {
    Refuse(connection, request_id, may.error());
    actions_.emplace_back(DropBundle{bundle});
    return;
  }
  if (State* const failed = FindByName(request.state)) Forget(failed->id);
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
  if (request.hold) state.holders_to_be.insert(connection);
  state.cancelled_when_unwanted = request.wait_ms != 0;
  state.epoch = next_epoch_++;
  state.asked_ns = state.moved_ns = now_ns;

  loaders_.insert(id);
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
                                         std::uint64_t bytes_present, std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state == nullptr || state->phase != StatePhase::kFilling) return Take();
  // Only an advance is a sign of life: a loader that repeats itself has stalled.
  if (std::max(bytes_done, bytes_present) > state->arena_bytes) return Take();
  if (bytes_done <= state->bytes_done && bytes_present <= state->bytes_present) return Take();
  state->bytes_done = std::max(bytes_done, state->bytes_done);
  state->bytes_present = std::max(bytes_present, state->bytes_present);
  state->moved_ns = now_ns;
  TellProgress(*state, now_ns);
  return Take();
}

NodeState::Actions NodeState::Filled(StateId id, const Digest& content_digest,
                                     std::uint64_t huge_bytes, std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state == nullptr || state->phase != StatePhase::kFilling) return Take();
  state->content_digest = content_digest;
  state->bytes_done = state->arena_bytes;
  state->moved_ns = now_ns;
  // Whether ordinary pages were joined is only known now that the kernel has been asked.
  if (state->huge_pages != "hugetlb") {
    const bool joined = huge_bytes > 0 && huge_bytes >= state->arena_bytes / 2;
    state->huge_pages = joined ? "thp" : "none";
  }
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
  if (state == nullptr || !IsLoading(state->phase)) return Take();
  FailLoad(*state, Error{error.code, "load '" + state->name + "': " + error.message, error.os_code},
           now_ns);
  return Take();
}

NodeState::Actions NodeState::LoaderGone(StateId id) {
  dying_bytes_.erase(id);
  loaders_.erase(id);
  return Take();
}

void NodeState::FailLoad(State& state, const Error& error, std::int64_t now_ns) {
  state.phase = StatePhase::kFailed;
  state.failure = wire::Failure{error.code, error.message, error.os_code};
  state.ended_ns = now_ns;
  // Its loader may be filling the arena right now: the memory is free when that process is gone.
  if (state.arena_bytes > 0) dying_bytes_[state.id] = state.arena_bytes;
  state.arena_bytes = 0;
  state.holders_to_be.clear();
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

}  // namespace sticky::daemon
