// The life of a load: from the request to the published state, or to its failure.

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "daemon/core/core_text.h"
#include "daemon/core/node_state.h"

namespace sticky::daemon {

using wire::EventKind;
using wire::Placement;
using wire::StatePhase;

NodeState::Actions NodeState::LoadAsked(ConnectionId connection, std::uint32_t request_id,
                                        const wire::LoadRequest& request, BundleId bundle,
                                        std::int64_t now_ns) {
  asked_ns_ = now_ns;
  State* const known = FindToLoad(request.state);
  const std::optional<Error> refusal = RefusalOfLoad(connection, request);
  const bool is_expected =
      known != nullptr && known->is_expected && IsNodeOwner(PeerOf(connection));
  const bool starts = known == nullptr || is_expected || known->phase == StatePhase::kDraining ||
                      (request.placement != Placement::kJoin && known->phase == StatePhase::kReady);
  if (!refusal && starts) {
    StartLoad(connection, request_id, request, bundle, now_ns);
    return Settle(now_ns);
  }
  if (refusal) {
    Refuse(connection, request_id, *refusal);
  } else {
    JoinLoad(connection, request_id, *known, request, now_ns);
  }
  actions_.emplace_back(DropBundle{bundle});
  return Settle(now_ns);
}

// Why this load is not even looked at; about the whole node, or about a state of that name.
std::optional<Error> NodeState::RefusalOfLoad(ConnectionId connection,
                                              const wire::LoadRequest& request) const {
  const std::string doing = "load '" + request.state + "': ";
  const Peer& peer = PeerOf(connection);
  if (shutting_down_) return Error{Code::kUnavailable, doing + "the daemon is shutting down"};
  if (draining_) {
    return Error{Code::kUnavailable, doing +
                                         "the node is being drained (`stickyctl drain`); run on "
                                         "another node, or try again later"};
  }
  if (request.policy.priority > 0 && !IsNodeOwner(peer)) {
    return Error{Code::kPermissionDenied,
                 doing + Format("priority %d: above 0 is for the node's owner; user %u may ask for "
                                "0 and less",
                                request.policy.priority, peer.uid)};
  }
  const State* const known = FindToLoad(request.state);
  if (known == nullptr) return std::nullopt;
  if (!MayUse(peer, *known)) {
    return Error{Code::kPermissionDenied, doing + "a state of that name is there; " +
                                              RuleText(known->ownership()) + "; use another name"};
  }
  if (request.placement != Placement::kJoin && !MayManage(peer, *known)) {
    return Error{Code::kPermissionDenied,
                 doing + Format("to replace it is for its owner, user %u, and the node's owner",
                                known->uid)};
  }
  if (request.placement == Placement::kInPlace && !known->IsLoading() && HasDerived(known->id)) {
    return Error{Code::kUnavailable,
                 doing +
                     "it cannot be replaced in its place: it is kept by what is derived from "
                     "it: " +
                     DerivedText(known->id, peer) +
                     "; evict that first, or build the new one beside it with " + kReplaceWords};
  }
  return std::nullopt;
}

void NodeState::JoinLoad(ConnectionId connection, std::uint32_t request_id, State& state,
                         const wire::LoadRequest& request, std::int64_t now_ns) {
  const std::string doing = "load '" + request.state + "'";
  if (state.template_digest != request.template_digest) {
    const bool loading = state.IsLoading();
    return Refuse(
        connection, request_id,
        Error{loading ? Code::kUnavailable : Code::kInvalidArgument,
              doing +
                  (loading ? ": a state of that name is being built from template "
                           : ": a state of that name was built from template ") +
                  ToHex(state.template_digest) + ", not " + ToHex(request.template_digest) +
                  (loading ? "; wait until it is ready"
                           : "; use another name, or --replace (builds the new one beside it) or "
                             "--in-place (instead of it)")});
  }
  // Who may only use a state does not change how long it stays.
  if (MayManage(PeerOf(connection), state)) {
    state.policy.pin = state.policy.pin || request.policy.pin;
    state.kept_by_holds = state.kept_by_holds && request.hold;
    RecordChanged(state);
  }
  if (request.hold) state.holders_to_be.insert(connection);
  if (!state.IsLoading() || request.wait_ms == 0) {
    if (state.IsRunning()) state.cancelled_when_unwanted = false;
    return Reply(connection, request_id, wire::LoadReply{Info(state, now_ns), /*joined=*/true});
  }
  AddWaiter(Waiter{.connection = connection,
                   .request_id = request_id,
                   .wish = Wish::kLoad,
                   .state = state.id,
                   .deadline_ns = now_ns + MsToNs(request.wait_ms),
                   .joined = true});
}

Status NodeState::MayAddState(const Peer& peer, const std::string& doing) const {
  // A killed loader ends at once, unless the file system that it reads from hangs.
  constexpr int kStuckLoadersMax = 16;
  const auto stuck = std::count_if(loaders_.begin(), loaders_.end(), [this](StateId id) {
    const State* const state = FindById(id);
    return state == nullptr || state->phase == StatePhase::kFailed;
  });
  if (stuck >= kStuckLoadersMax) {
    return Error{Code::kUnavailable,
                 Format("%s: %d loaders of ended loads cannot be killed; does the file system of "
                        "the model files still answer?",
                        doing.c_str(), static_cast<int>(stuck))};
  }
  std::uint32_t live = 0;
  std::uint32_t own_loads = 0;
  for (const auto& [id, state] : states_) {
    live += state.phase != StatePhase::kFailed ? 1 : 0;
    own_loads += state.IsLoading() && state.uid == peer.uid ? 1 : 0;
  }
  if (own_loads >= limits_.user.load_count_max && !IsNodeOwner(peer)) {
    return Error{Code::kUnavailable, Format("%s: user %u has %u loads that run or wait, the limit "
                                            "(limits.per_user.loads); try again when one has ended",
                                            doing.c_str(), peer.uid, own_loads)};
  }
  if (live >= limits_.state_count_max) {
    return Error{Code::kOutOfMemory,
                 Format("%s: %u states exist, the limit (limits.states); evict one first",
                        doing.c_str(), limits_.state_count_max)};
  }
  return Ok{};
}

Status NodeState::MayTakeTurn(const wire::LoadRequest& request) const {
  const std::string doing = "load '" + request.state + "'";
  const bool must_wait = RunningLoads() >= limits_.load_count_max;
  if (must_wait && request.wait_ms > 0 && queue_.size() >= limits_.queue_count_max) {
    return Error{Code::kUnavailable, Format("%s: %zu loads wait already, the limit (limits.queue)",
                                            doing.c_str(), queue_.size())};
  }
  if (must_wait && request.wait_ms == 0) {
    return Error{Code::kUnavailable, Format("%s: %u loads are running, the limit (limits.loads); "
                                            "wait for a turn with --wait, or try again later",
                                            doing.c_str(), limits_.load_count_max)};
  }
  return Ok{};
}

State& NodeState::AddState(const Peer& peer, const std::string& name, const Policy& policy,
                           std::int64_t now_ns) {
  if (State* const newest = FindNewest(name);
      newest != nullptr && newest->phase == StatePhase::kFailed) {
    Forget(newest->id);
  }
  const StateId id{next_state_++};
  State& state = states_[id];
  state.id = id;
  state.name = name;
  state.epoch = next_epoch_++;
  state.uid = peer.uid;
  state.gid = peer.gid;
  state.policy = policy;
  state.asked_ns = state.moved_ns = now_ns;
  return state;
}

void NodeState::Succeed(State& state, State* earlier, Placement placement, const Peer& by,
                        std::int64_t now_ns) {
  if (earlier == nullptr) return;
  if (placement == Placement::kReplace) state.replaces = earlier->id;
  if (placement != Placement::kInPlace) return;
  state.follows = earlier->id;
  earlier->gives_way = earlier->phase == StatePhase::kReady;
  Drain(*earlier, "it is replaced in place", &by, now_ns);
}

void NodeState::StartLoad(ConnectionId connection, std::uint32_t request_id,
                          const wire::LoadRequest& request, BundleId bundle, std::int64_t now_ns) {
  const Peer& peer = PeerOf(connection);
  State* const earlier = FindToLoad(request.state);
  const bool is_expected = earlier != nullptr && earlier->is_expected;
  Status may = is_expected ? Status(Ok{}) : MayAddState(peer, "load '" + request.state + "'");
  if (may.ok()) may = MayMake(peer, request.state, "load '" + request.state + "': ");
  if (may.ok() && !is_expected) may = MayTakeTurn(request);
  if (!may.ok()) {
    Refuse(connection, request_id, may.error());
    actions_.emplace_back(DropBundle{bundle});
    return;
  }
  State& state = is_expected ? *earlier : AddState(peer, request.state, request.policy, now_ns);
  const StateId id = state.id;
  state.is_expected = false;
  state.policy = request.policy;
  state.template_digest = request.template_digest;
  state.source = request.source;
  state.dtype = request.dtype;
  state.huge_pages_wanted = request.huge_pages;
  state.prefault = request.prefault;
  state.file_count = request.file_count;
  state.expect_digest = request.expect_digest;
  state.kept_by_holds = request.hold;
  if (request.hold) state.holders_to_be.insert(connection);
  state.cancelled_when_unwanted = request.wait_ms != 0;
  state.bundle = bundle;
  EnterQueue(state, now_ns);
  LogLine(Log::Level::kInfo,
          Format("load '%s' (epoch %llu) for user %u from '%s'", state.name.c_str(),
                 Ull(state.epoch), state.uid, Escape(state.source).c_str()));
  Note(EventKind::kLoad, &state, &peer, state.source, now_ns);
  if (!is_expected) Succeed(state, earlier, request.placement, peer, now_ns);
  ServeQueue(now_ns);
  if (request.wait_ms == 0) {
    return Reply(connection, request_id, wire::LoadReply{Info(state, now_ns), /*joined=*/false});
  }
  const bool waits = AddWaiter(Waiter{.connection = connection,
                                      .request_id = request_id,
                                      .wish = Wish::kLoad,
                                      .state = id,
                                      .deadline_ns = now_ns + MsToNs(request.wait_ms)});
  if (!waits) CancelIfUnwanted(id, now_ns);
}

// Its turn has come: a loader reads the headers.
void NodeState::Launch(State& state, std::int64_t now_ns) {
  LeaveQueue(state, now_ns);
  loaders_.insert(state.id);
  state.phase = StatePhase::kPlanning;
  state.moved_ns = now_ns;
  const BundleId bundle = *std::exchange(state.bundle, std::nullopt);
  actions_.emplace_back(StartLoader{
      state.id, bundle,
      wire::PlanRequest{state.name, state.dtype, state.file_count, state.expect_digest}});
}

NodeState::Actions NodeState::Planned(StateId id, std::uint64_t arena_bytes,
                                      std::uint32_t tensor_count, std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state == nullptr || state->phase != StatePhase::kPlanning) return Settle(now_ns);
  state->wanted_bytes = arena_bytes;
  state->tensor_count = tensor_count;
  state->moved_ns = now_ns;
  if (const Status may = MayEverFit(*state); !may.ok()) {
    FailLoad(*state, may.error(), now_ns);
    return Settle(now_ns);
  }
  state->phase = StatePhase::kQueued;
  EnterQueue(*state, now_ns);
  ServeQueue(now_ns);
  const bool is_queued = state->phase == StatePhase::kQueued;
  const bool may_wait = IsAwaited(id) && QueuePlace(id) <= limits_.queue_count_max;
  if (is_queued && !may_wait && !RoomIsComing(*state)) {
    FailLoad(*state, NoRoomFor(*state, now_ns), now_ns);
  } else if (is_queued) {
    TellProgress(*state, now_ns);
  }
  return Settle(now_ns);
}

NodeState::Actions NodeState::ArenaAllocated(StateId id, std::string huge_pages,
                                             std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state != nullptr && state->phase == StatePhase::kFilling) {
    state->huge_pages = std::move(huge_pages);
    state->moved_ns = now_ns;
    TellProgress(*state, now_ns);
  }
  return Settle(now_ns);
}

NodeState::Actions NodeState::Progressed(StateId id, std::uint64_t bytes_done,
                                         std::uint64_t bytes_present, std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state == nullptr || state->phase != StatePhase::kFilling) return Settle(now_ns);
  // Only an advance is a sign of life: a loader that repeats itself has stalled.
  if (std::max(bytes_done, bytes_present) > state->arena_bytes) return Settle(now_ns);
  if (bytes_done <= state->bytes_done && bytes_present <= state->bytes_present) {
    return Settle(now_ns);
  }
  state->bytes_done = std::max(bytes_done, state->bytes_done);
  state->bytes_present = std::max(bytes_present, state->bytes_present);
  state->moved_ns = now_ns;
  TellProgress(*state, now_ns);
  return Settle(now_ns);
}

NodeState::Actions NodeState::Filled(StateId id, const Digest& content_digest,
                                     std::uint64_t huge_bytes, std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state == nullptr || state->phase != StatePhase::kFilling) return Settle(now_ns);
  state->content_digest = content_digest;
  state->bytes_done = state->arena_bytes;
  state->moved_ns = state->ended_ns = now_ns;
  // Whether ordinary pages were joined is only known now that the kernel has been asked.
  if (state->huge_pages != "hugetlb") {
    const bool joined = huge_bytes > 0 && huge_bytes >= state->arena_bytes / 2;
    state->huge_pages = joined ? "thp" : "none";
  }
  state->is_record_stale = false;
  actions_.emplace_back(Publish{id, facts_.nonce, RecordOf(*state)});
  return Settle(now_ns);
}

NodeState::Actions NodeState::Published(StateId id, bool is_kept, std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state == nullptr || state->phase != StatePhase::kFilling) return Settle(now_ns);
  state->phase = StatePhase::kReady;
  state->builder.reset();
  state->is_helped = false;
  state->used_ns = now_ns;  // it ended when it was filled: that is what its record says
  state->is_kept = is_kept && !keeper_lost_;
  if (state->is_record_stale) RecordChanged(*state);
  const std::string queued =
      state->queued_ns > 0
          ? Format(" after %.2f s in the queue", static_cast<double>(state->queued_ns) / 1e9)
          : "";
  const std::string made =
      Format("%s in %.2f s%s, digest %s", ByteCount(state->arena_bytes).c_str(),
             static_cast<double>(LoadNs(*state)) / 1e9, queued.c_str(),
             ToHex(*state->content_digest).c_str());
  LogLine(Log::Level::kInfo, Format("state '%s' (epoch %llu) is ready: %s", state->name.c_str(),
                                    Ull(state->epoch), made.c_str()));
  Note(EventKind::kReady, state, nullptr, made, now_ns);
  if (State* const earlier = state->replaces ? FindById(*state->replaces) : nullptr) {
    Drain(*earlier, Format("epoch %llu replaces it", Ull(state->epoch)), nullptr, now_ns);
  }
  AnswerWaiters(id, now_ns);
  Release(id, now_ns);  // its holder may have gone in the meantime
  return Settle(now_ns);
}

NodeState::Actions NodeState::LoaderFailed(StateId id, const Error& error, std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state == nullptr || !state->IsLoading()) return Settle(now_ns);
  FailLoad(*state, Error{error.code, Doing(*state) + error.message, error.os_code}, now_ns);
  return Settle(now_ns);
}

NodeState::Actions NodeState::LoaderGone(StateId id, std::int64_t now_ns) {
  dying_bytes_.erase(id);
  loaders_.erase(id);
  return Settle(now_ns);
}

void NodeState::FailLoad(State& state, const Error& error, std::int64_t now_ns) {
  const StateId id = state.id;
  const std::string name = state.name;
  state.phase = StatePhase::kFailed;
  state.failure = wire::Failure{error.code, error.message, error.os_code};
  state.ended_ns = now_ns;
  LeaveQueue(state, now_ns);
  if (state.bundle) actions_.emplace_back(DropBundle{*std::exchange(state.bundle, std::nullopt)});
  // A builder may go on mapping what it was given: then the memory is free when it lets go. A
  // loader may be filling the arena right now: then it is when that process is gone, unless it has
  // gone before, while the keeper was being told.
  const bool builder_may_map = state.builder.has_value() && state.arena_bytes > 0;
  if (state.arena_bytes > 0 && !builder_may_map) {
    const std::uint64_t arena_bytes = std::exchange(state.arena_bytes, 0);
    if (loaders_.contains(id)) dying_bytes_[id] = arena_bytes;
  }
  state.wanted_bytes = 0;
  if (const auto base = std::exchange(state.base, std::nullopt)) Release(*base, now_ns);
  state.holders_to_be.clear();
  // The keeper may have a filled build already, and what has failed does not come back to life.
  if (builder_may_map && state.content_digest) {
    wire::StateRecord record = RecordOf(state);
    record.ending = true;
    actions_.emplace_back(KeepRecord{id, std::move(record)});
  }
  state.content_digest.reset();
  LogLine(state.cancelled ? Log::Level::kInfo : Log::Level::kWarning,
          Format("epoch %llu of '%s' %s: %s", Ull(state.epoch), name.c_str(),
                 state.cancelled ? "was cancelled" : "failed", Printable(error.message).c_str()));
  Note(state.cancelled ? EventKind::kLoadCancelled : EventKind::kLoadFailed, &state, nullptr,
       error.message, now_ns);
  actions_.emplace_back(KillLoader{id});
  if (!builder_may_map) actions_.emplace_back(FreeArena{id});
  AnswerWaiters(id, now_ns);
  ReopenEarlier(state, now_ns);
  if (builder_may_map) {
    state.phase = StatePhase::kClosing;
    LookForBorrowers(state, now_ns);
    return;
  }
  // A failed replacement leaves the state that it was for as it was.
  if (FindToLoad(name) != nullptr) return Forget(id);
  TrimFailed();
}

void NodeState::CancelIfUnwanted(StateId id, std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state == nullptr || !state->IsLoading() || !state->cancelled_when_unwanted) return;
  if (IsAwaited(id)) return;
  CancelLoad(*state, "cancelled, nobody waits for it any more", now_ns);
}

void NodeState::CancelLoad(State& state, const std::string& why, std::int64_t now_ns) {
  state.cancelled = true;
  FailLoad(state, Error{Code::kUnavailable, Doing(state) + why}, now_ns);
}

// Once it is looked at, it may be free already: its keeper lets go of what nobody maps.
bool NodeState::MayOpenAgain(const State& earlier) {
  if (!earlier.gives_way) return false;
  return earlier.phase == StatePhase::kDraining || !earlier.is_looked_at;
}

// Whoever replaces a state in its place has given it up for the new one, not for nothing.
void NodeState::ReopenEarlier(const State& failed, std::int64_t now_ns) {
  if (!WaitsForEarlier(failed) || shutting_down_) return;
  State& earlier = *FindById(*failed.follows);
  const bool may_open = MayOpenAgain(earlier);
  earlier.gives_way = false;
  if (!may_open) return;
  earlier.phase = StatePhase::kReady;
  RecordChanged(earlier);
  const std::string why =
      Format("epoch %llu, which was to replace it in its place, has not come", Ull(failed.epoch));
  LogLine(Log::Level::kInfo, Format("state '%s' (epoch %llu) takes new leases again: %s",
                                    earlier.name.c_str(), Ull(earlier.epoch), why.c_str()));
  Note(EventKind::kResume, &earlier, nullptr, why, now_ns);
  Release(earlier.id, now_ns);  // its last hold may have ended meanwhile
}

void NodeState::FailOverdueLoads(std::int64_t now_ns) {
  std::vector<std::pair<StateId, Error>> overdue;
  for (const auto& [id, state] : states_) {
    if (!state.IsLoading()) continue;
    const std::int64_t silent_ns = now_ns - state.moved_ns;
    if (state.phase == StatePhase::kPlanning && silent_ns > limits_.plan_ns) {
      overdue.emplace_back(
          id, Error{Code::kUnavailable,
                    Format("load '%s': its files' headers were not read within %.1f s",
                           state.name.c_str(), static_cast<double>(limits_.plan_ns) / 1e9)});
    }
    if (state.is_expected && requesters_.contains(id) && silent_ns > limits_.plan_ns) {
      overdue.emplace_back(
          id, Error{Code::kUnavailable,
                    Format("load '%s': its template and files were not opened within %.1f s",
                           state.name.c_str(), static_cast<double>(limits_.plan_ns) / 1e9)});
    }
    if (state.builder && now_ns > state.build_deadline_ns) {
      overdue.emplace_back(id, Error{Code::kUnavailable,
                                     "build '" + state.name + "': it was not committed in time"});
    }
    const bool works = !state.builder || state.is_helped;
    if (state.phase == StatePhase::kFilling && works && silent_ns > limits_.fill_stall_ns) {
      overdue.emplace_back(
          id, Error{Code::kUnavailable,
                    Format("load '%s': the loader stalled for %.1f s at %llu of %llu bytes",
                           state.name.c_str(), static_cast<double>(silent_ns) / 1e9,
                           Ull(state.bytes_done), Ull(state.arena_bytes))});
    }
    const bool drains_first = state.follows && FindById(*state.follows) != nullptr;
    if (queue_.contains(id) && !IsAwaited(id) && !drains_first && silent_ns > limits_.room_ns) {
      overdue.emplace_back(id, NoRoomFor(state, now_ns));
    }
  }
  for (const auto& [id, error] : overdue) {
    // It may be overdue twice; and a failure may have pushed it out of the table of failed loads.
    State* const state = FindById(id);
    if (state != nullptr && state->IsLoading()) FailLoad(*state, error, now_ns);
  }
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
