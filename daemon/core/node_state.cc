// Connections, dispatch of requests, time and shutdown. Loads are in node_loads.cc, leases and
// evictions in node_leases.cc, answers that only tell in node_info.cc, waiting in node_waiters.cc.

#include "daemon/core/node_state.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "daemon/core/core_text.h"

namespace sticky::daemon {

using wire::StatePhase;

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
    if (state.holders_to_be.erase(connection) > 0) unwanted.push_back(id);
  }
  for (const StateId id : unwanted) {
    CancelIfUnwanted(id, now_ns);
    Release(id, now_ns);
  }
  return Take();
}

// Until there are access rules, a daemon serves its own user alone.
Status NodeState::MayAsk(ConnectionId connection) const {
  const auto peer = peers_.find(connection);
  if (peer == peers_.end() || peer->second.uid == facts_.uid) return Ok{};
  return Error{Code::kPermissionDenied,
               Format("ask stickyd: it runs as user %u and serves that user alone, this process "
                      "runs as user %u",
                      facts_.uid, peer->second.uid)};
}

NodeState::Actions NodeState::Asked(ConnectionId connection, const wire::Message& message,
                                    std::int64_t now_ns) {
  const std::uint32_t id = message.request_id;
  if (const Status may = MayAsk(connection); !may.ok()) {
    Refuse(connection, id, may.error());
  } else if (const auto* attach = std::get_if<wire::AttachRequest>(&message.body)) {
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

// --- time ---------------------------------------------------------------------------------------

NodeState::Actions NodeState::Tick(std::int64_t now_ns) {
  FailOverdueLoads(now_ns);
  std::vector<StateId> expired;
  for (auto& [id, state] : states_) {
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

void NodeState::FailOverdueLoads(std::int64_t now_ns) {
  std::vector<std::pair<StateId, Error>> overdue;
  for (const auto& [id, state] : states_) {
    const std::int64_t silent_ns = now_ns - state.moved_ns;
    if (state.phase == StatePhase::kPlanning && silent_ns > limits_.plan_ns) {
      overdue.emplace_back(
          id, Error{Code::kUnavailable,
                    Format("load '%s': its files' headers were not read within %.1f s",
                           state.name.c_str(), static_cast<double>(limits_.plan_ns) / 1e9)});
    }
    if (state.phase == StatePhase::kFilling && silent_ns > limits_.fill_stall_ns) {
      overdue.emplace_back(
          id, Error{Code::kUnavailable,
                    Format("load '%s': the loader stalled for %.1f s at %llu of %llu bytes",
                           state.name.c_str(), static_cast<double>(silent_ns) / 1e9,
                           Ull(state.bytes_done), Ull(state.arena_bytes))});
    }
  }
  for (const auto& [id, error] : overdue) {
    // An earlier failure may have pushed it out of the table of failed loads.
    if (State* const state = FindById(id)) FailLoad(*state, error, now_ns);
  }
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
    return IsLoading(entry.second.phase) || entry.second.phase == StatePhase::kClosing;
  });
}

}  // namespace sticky::daemon
