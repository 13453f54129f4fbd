// What the daemon tells about itself, its states and its leases.

#include <algorithm>
#include <utility>

#include "daemon/core/node_state.h"

namespace sticky::daemon {
namespace {

std::uint64_t NsToMs(std::int64_t ns) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(ns, 0)) / 1'000'000;
}

}  // namespace

void NodeState::Reply(ConnectionId to, std::uint32_t request_id, wire::Body body) {
  actions_.emplace_back(Send{to, {request_id, std::move(body)}});
}

void NodeState::Refuse(ConnectionId to, std::uint32_t request_id, const Error& error) {
  Reply(to, request_id, wire::Failure{error.code, error.message, error.os_code});
}

void NodeState::LogLine(Log::Level level, std::string text) {
  actions_.emplace_back(Log{level, std::move(text)});
}

void NodeState::Show(ConnectionId connection, std::uint32_t request_id,
                     const wire::ShowRequest& request, std::int64_t now_ns) {
  State* const state = FindEvenClosing(request.state);
  if (state == nullptr) {
    return Refuse(connection, request_id,
                  Error{Code::kNotFound, "show '" + request.state +
                                             "': no such state on this node; `stickyctl ls` "
                                             "shows those there are"});
  }
  Send send{connection, {request_id, wire::ShowReply{Info(*state, now_ns)}}};
  if (state->phase == wire::StatePhase::kReady || state->phase == wire::StatePhase::kDraining) {
    send.attachment = Attachment::kManifest;
    send.state = state->id;
  }
  actions_.emplace_back(std::move(send));
}

wire::StateInfo NodeState::Info(const State& state, std::int64_t now_ns) const {
  wire::StateInfo info;
  info.name = state.name;
  info.phase = state.phase;
  info.device = "host";
  info.content_digest = state.content_digest;
  info.template_digest = state.template_digest;
  info.epoch = state.epoch;
  info.arena_bytes = state.arena_bytes;
  info.tensor_count = state.tensor_count;
  info.lease_count = leases_.CountOn(state.id);
  info.pinned = state.pinned;
  info.hold_count = leases_.HoldCountOn(state.id);
  info.bytes_done = state.bytes_done;
  info.age_ms = NsToMs(now_ns - state.asked_ns);
  info.load_ms = state.ended_ns != 0 ? NsToMs(state.ended_ns - state.asked_ns) : 0;
  info.source = state.source;
  info.huge_pages = state.huge_pages;
  info.dtype = state.dtype;
  info.failure = state.failure;
  return info;
}

std::vector<wire::StateInfo> NodeState::ListStates(std::int64_t now_ns) const {
  std::vector<wire::StateInfo> list;
  list.reserve(states_.size());
  for (const auto& [id, state] : states_) list.push_back(Info(state, now_ns));
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return a.name < b.name; });
  return list;
}

std::vector<wire::LeaseInfo> NodeState::LeasesOn(std::optional<StateId> only,
                                                 std::int64_t now_ns) const {
  std::vector<wire::LeaseInfo> list;
  for (const auto& [id, lease] : leases_.leases()) {
    if (only && lease.state != *only) continue;
    wire::LeaseInfo info;
    info.lease_id = id.value;
    info.age_ms = NsToMs(now_ns - lease.granted_ns);
    info.hold = lease.hold;
    if (const auto state = states_.find(lease.state); state != states_.end()) {
      info.state = state->second.name;
      info.epoch = state->second.epoch;
    }
    if (const auto peer = peers_.find(lease.connection); peer != peers_.end()) {
      info.pid = peer->second.pid;
      info.uid = peer->second.uid;
      info.command = peer->second.command;
    }
    list.push_back(std::move(info));
  }
  return list;
}

wire::StatusReply NodeState::StatusOf(std::int64_t now_ns) const {
  wire::StatusReply status = facts_;
  status.uptime_ms = NsToMs(now_ns - started_ns_);
  status.budget_bytes = limits_.budget_bytes;
  status.used_bytes = used_bytes();
  status.state_count = state_count();
  status.lease_count = leases_.count();
  status.connection_count = static_cast<std::uint32_t>(peers_.size());
  status.draining = shutting_down_;
  return status;
}

std::uint64_t NodeState::used_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [id, state] : states_) sum += state.arena_bytes;
  for (const auto& [id, bytes] : dying_bytes_) sum += bytes;
  return sum;
}

std::uint32_t NodeState::RunningLoads() const {
  std::uint32_t count = 0;
  for (const auto& [id, state] : states_) {
    count +=
        state.phase == wire::StatePhase::kPlanning || state.phase == wire::StatePhase::kFilling;
  }
  return count;
}

// A closing state has given its name back.
NodeState::State* NodeState::FindByName(std::string_view name) {
  for (auto& [id, state] : states_) {
    if (state.name == name && state.phase != wire::StatePhase::kClosing) return &state;
  }
  return nullptr;
}

NodeState::State* NodeState::FindEvenClosing(std::string_view name) {
  if (State* const state = FindByName(name)) return state;
  for (auto& [id, state] : states_) {
    if (state.name == name) return &state;
  }
  return nullptr;
}

NodeState::State* NodeState::FindById(StateId id) {
  const auto found = states_.find(id);
  return found == states_.end() ? nullptr : &found->second;
}

}  // namespace sticky::daemon
