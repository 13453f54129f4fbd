// Connections, dispatch of requests, time and shutdown. Loads are in node_loads.cc, memory and the
// queue for it in node_room.cc, builders in node_builds.cc, installed templates in
// node_installed.cc, leases and evictions in node_leases.cc, waiting in node_waiters.cc, what
// outlives the daemon in node_kept.cc, answers that only tell in node_info.cc.

#include "daemon/core/node_state.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "daemon/core/core_text.h"

namespace sticky::daemon {

using wire::StatePhase;

NodeState::NodeState(const Limits& limits, wire::StatusReply facts, std::int64_t now_ns,
                     std::int64_t wall_ms)
    : limits_(limits),
      budget_bytes_(limits.budget_bytes),
      facts_(std::move(facts)),
      started_ns_(now_ns),
      wall_offset_ms_(wall_ms - now_ns / 1'000'000),
      leases_(limits.lease_count_max),
      journal_(limits.event_count_max) {}

Status NodeState::MayConnect(const Peer& peer) const {
  if (IsNodeOwner(peer)) return Ok{};
  if (limits_.who && !IsNamed(peer, *limits_.who)) {
    return Error{Code::kPermissionDenied,
                 Format("connect to stickyd: user %u is not among those that the node config lets "
                        "in (access.users, access.groups)",
                        peer.uid)};
  }
  const auto found = connections_of_user_.find(peer.uid);
  if (found == connections_of_user_.end() || found->second < limits_.user.connection_count_max) {
    return Ok{};
  }
  return Error{Code::kUnavailable,
               Format("connect to stickyd: user %u has %u connections, the limit "
                      "(limits.per_user.connections); try again later",
                      peer.uid, found->second)};
}

NodeState::Actions NodeState::Connected(ConnectionId connection, Peer peer, std::int64_t now_ns) {
  ++connections_of_user_[peer.uid];
  peers_.insert_or_assign(connection, std::move(peer));
  return Settle(now_ns);
}

NodeState::Actions NodeState::Disconnected(ConnectionId connection, std::int64_t now_ns) {
  std::vector<StateId> unwanted;
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    if (waiter.connection != connection) return false;
    if (waiter.state) unwanted.push_back(*waiter.state);
    return true;
  });
  const Peer& peer = PeerOf(connection);
  for (const Lease& lease : leases_.EndAll(connection)) {
    const State* const state = FindById(lease.state);
    Note(wire::EventKind::kDetach, state, &peer, "", now_ns);
    Release(lease.state, now_ns);
  }
  for (auto& [id, state] : states_) {
    if (state.holders_to_be.erase(connection) > 0) unwanted.push_back(id);
  }
  if (State* const build = FindBuild(connection)) {
    FailLoad(*build,
             Error{Code::kUnavailable,
                   Format("build '%s': its builder (pid %llu) ended before it committed",
                          build->name.c_str(), Ull(peer.pid))},
             now_ns);
  }
  for (const StateId id : unwanted) {
    CancelIfUnwanted(id, now_ns);
    Release(id, now_ns);
  }
  if (const auto found = peers_.find(connection); found != peers_.end()) {
    const auto count = connections_of_user_.find(found->second.uid);
    if (--count->second == 0) connections_of_user_.erase(count);
    peers_.erase(found);
  }
  return Settle(now_ns);
}

NodeState::Actions NodeState::Asked(ConnectionId connection, const wire::Message& message,
                                    std::int64_t now_ns) {
  asked_ns_ = now_ns;
  const std::uint32_t id = message.request_id;
  if (const auto* attach = std::get_if<wire::AttachRequest>(&message.body)) {
    Attach(connection, id, *attach, now_ns);
  } else if (const auto* evict = std::get_if<wire::EvictRequest>(&message.body)) {
    Evict(connection, id, *evict, now_ns);
  } else if (const auto* build = std::get_if<wire::BuildRequest>(&message.body)) {
    Build(connection, id, *build, now_ns);
  } else if (const auto* arena = std::get_if<wire::BuildArenaRequest>(&message.body)) {
    ArenaAsked(connection, id, *arena, now_ns);
  } else if (const auto* drain = std::get_if<wire::DrainRequest>(&message.body)) {
    DrainAsked(connection, id, *drain, now_ns);
  } else if (const auto* show = std::get_if<wire::ShowRequest>(&message.body)) {
    Show(connection, id, *show, now_ns);
  } else if (const auto* events = std::get_if<wire::EventsRequest>(&message.body)) {
    Events(connection, id, *events, now_ns);
  } else if (std::holds_alternative<wire::ListRequest>(message.body)) {
    Reply(connection, id, wire::ListReply{StatesFor(PeerOf(connection), now_ns)});
  } else if (std::holds_alternative<wire::StatusRequest>(message.body)) {
    Reply(connection, id, StatusFor(PeerOf(connection), now_ns));
  } else if (const auto* budget = std::get_if<wire::BudgetRequest>(&message.body)) {
    SetBudget(connection, id, *budget, now_ns);
  } else if (const auto* shutdown = std::get_if<wire::ShutdownRequest>(&message.body)) {
    ShutdownAsked(connection, id, *shutdown, now_ns);
  } else if (std::holds_alternative<wire::TemplatesRequest>(message.body)) {
    Reply(connection, id, TemplatesFor(PeerOf(connection)));
  } else if (std::holds_alternative<wire::LeasesRequest>(message.body)) {
    Reply(connection, id, wire::LeasesReply{LeasesOn(std::nullopt, PeerOf(connection), now_ns)});
  } else {
    Refuse(connection, id, Error{Code::kInvalidArgument, "answer a request: it is not a request"});
  }
  return Settle(now_ns);
}

NodeState::Actions NodeState::Settle(std::int64_t now_ns) {
  if (!to_request_.empty()) StartRequesters(now_ns);
  if (!queue_.empty()) ServeQueue(now_ns);
  if (!waiters_.empty()) {
    AnswerDrains();
    AnswerEvents();
  }
  return std::exchange(actions_, {});
}

// --- who and what -------------------------------------------------------------------------------

const Peer& NodeState::PeerOf(ConnectionId connection) const {
  static const Peer gone{.uid = UINT32_MAX, .gid = UINT32_MAX, .groups = {}, .command = {}};
  const auto found = peers_.find(connection);
  return found == peers_.end() ? gone : found->second;
}

bool NodeState::MayUse(const Peer& peer, const State& state) const {
  return daemon::MayUse(peer, state.ownership(), facts_.uid);
}

bool NodeState::MayManage(const Peer& peer, const State& state) const {
  return daemon::MayManage(peer, state.ownership(), facts_.uid);
}

State* NodeState::FindToAttach(std::string_view name) {
  State* ready = nullptr;
  State* loading = nullptr;
  for (auto& [id, state] : states_) {
    if (state.name != name) continue;
    if (state.phase == StatePhase::kReady) ready = &state;
    if (state.IsLoading()) loading = &state;
  }
  if (ready != nullptr) return ready;
  return loading != nullptr ? loading : FindNewest(name);
}

State* NodeState::FindToLoad(std::string_view name) {
  State* found = nullptr;
  for (auto& [id, state] : states_) {
    const bool ended = state.phase == StatePhase::kFailed || state.phase == StatePhase::kClosing;
    if (state.name == name && !ended) found = &state;
  }
  return found;
}

State* NodeState::FindNewest(std::string_view name) {
  State* found = nullptr;
  for (auto& [id, state] : states_) {
    if (state.name == name) found = &state;
  }
  return found;
}

State* NodeState::FindById(StateId id) {
  const auto found = states_.find(id);
  return found == states_.end() ? nullptr : &found->second;
}

const State* NodeState::FindById(StateId id) const {
  const auto found = states_.find(id);
  return found == states_.end() ? nullptr : &found->second;
}

std::uint32_t NodeState::RunningLoads() const {
  return static_cast<std::uint32_t>(std::count_if(
      states_.begin(), states_.end(), [](const auto& entry) { return entry.second.IsRunning(); }));
}

// --- time ---------------------------------------------------------------------------------------

NodeState::Actions NodeState::Tick(std::int64_t now_ns) {
  FailOverdueLoads(now_ns);
  EndLifetimes(now_ns);
  ShrinkToBudget(now_ns);  // what was in use when it was lowered may be free by now
  std::vector<StateId> expired;
  for (auto& [id, state] : states_) {
    if (state.phase == StatePhase::kFailed && now_ns - state.ended_ns > limits_.failed_kept_ns) {
      expired.push_back(id);
    }
    if (state.phase == StatePhase::kClosing && now_ns - state.looked_ns > limits_.borrower_ns) {
      LookForBorrowers(state, now_ns);
    }
  }
  for (const StateId id : expired) Forget(id);
  ExpireWaiters(now_ns);
  if (!queue_.empty()) TellPlaces(now_ns);
  return Settle(now_ns);
}

NodeState::Actions NodeState::ShutDown(std::int64_t now_ns) {
  if (shutting_down_) return Settle(now_ns);
  shutting_down_ = true;
  LogLine(Log::Level::kInfo,
          Format("shutting down: %u leases stay valid for their holders", leases_.count()));
  Note(wire::EventKind::kShutdown, nullptr, nullptr, "", now_ns);
  AnswerEvents();
  std::vector<StateId> loading;
  for (const auto& [id, state] : states_) {
    if (state.IsLoading()) loading.push_back(id);
  }
  const Error error{Code::kUnavailable, "the daemon is shutting down"};
  for (const StateId id : loading) {
    if (State* const state = FindById(id)) FailLoad(*state, error, now_ns);
  }
  for (const Waiter& waiter : std::exchange(waiters_, {})) {
    Refuse(waiter.connection, waiter.request_id, error);
  }
  return Settle(now_ns);
}

bool NodeState::NeedsTicks() const {
  return !waiters_.empty() || std::any_of(states_.begin(), states_.end(), [](const auto& entry) {
    return entry.second.IsLoading() || entry.second.phase == StatePhase::kClosing;
  });
}

}  // namespace sticky::daemon
