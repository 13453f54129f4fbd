// What the daemon tells about itself, its states and its leases.

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "daemon/core/core_text.h"
#include "daemon/core/node_state.h"

namespace sticky::daemon {

using wire::StatePhase;

void NodeState::Reply(ConnectionId to, std::uint32_t request_id, wire::Body body) {
  actions_.emplace_back(Send{to, {request_id, std::move(body)}});
}

// Who was not allowed something is an admin's business, and in the log and the journal.
void NodeState::Refuse(ConnectionId to, std::uint32_t request_id, const Error& error) {
  Reply(to, request_id, wire::Failure{error.code, error.message, error.os_code});
  if (error.code != Code::kPermissionDenied) return;
  const Peer& peer = PeerOf(to);
  ++refusal_total_;
  LogLine(Log::Level::kWarning, Format("refused user %u (pid %llu): %s", peer.uid, Ull(peer.pid),
                                       Printable(error.message).c_str()));
  Note(wire::EventKind::kRefusal, nullptr, &peer, error.message, asked_ns_);
}

void NodeState::LogLine(Log::Level level, std::string text) {
  actions_.emplace_back(Log{level, std::move(text)});
}

void NodeState::Note(wire::EventKind kind, const State* about, const Peer* by, std::string text,
                     std::int64_t now_ns) {
  Journal::Entry entry;
  entry.event.time_ms = wall_offset_ms_ + now_ns / 1'000'000;
  entry.event.kind = kind;
  entry.event.text = std::move(text);
  entry.event.uid = facts_.uid;
  if (by != nullptr) {
    entry.event.uid = by->uid;
    entry.event.pid = by->pid;
  }
  entry.about.uid = entry.event.uid;
  if (about != nullptr) {
    entry.event.state = about->name;
    entry.event.epoch = about->epoch;
    entry.about = about->ownership();
  }
  journal_.Add(std::move(entry));
}

void NodeState::Show(ConnectionId connection, std::uint32_t request_id,
                     const wire::ShowRequest& request, std::int64_t now_ns) {
  const State* const state = FindToAttach(request.state);
  if (state == nullptr) {
    return Refuse(connection, request_id,
                  Error{Code::kNotFound, "show '" + request.state +
                                             "': no such state on this node; `stickyctl ls` "
                                             "shows those there are"});
  }
  if (const Peer& peer = PeerOf(connection); !MayUse(peer, *state)) {
    return Refuse(connection, request_id,
                  Error{Code::kPermissionDenied,
                        Format("show '%s' as user %u: ", request.state.c_str(), peer.uid) +
                            RuleText(state->ownership())});
  }
  Send send{connection, {request_id, wire::ShowReply{Info(*state, now_ns)}}};
  if (state->phase == StatePhase::kReady || state->phase == StatePhase::kDraining) {
    send.attachment = Attachment::kManifest;
    send.state = state->id;
  }
  actions_.emplace_back(std::move(send));
}

void NodeState::Events(ConnectionId connection, std::uint32_t request_id,
                       const wire::EventsRequest& request, std::int64_t now_ns) {
  wire::EventsReply reply = EventsFor(PeerOf(connection), request.after);
  if (!reply.events.empty() || request.wait_ms == 0) {
    return Reply(connection, request_id, std::move(reply));
  }
  AddWaiter(Waiter{.connection = connection,
                   .request_id = request_id,
                   .wish = Wish::kEvents,
                   .state = std::nullopt,
                   .deadline_ns = now_ns + MsToNs(request.wait_ms),
                   .after = request.after});
}

// What one did oneself, and what happened to states that one may use.
wire::EventsReply NodeState::EventsFor(const Peer& peer, std::uint64_t after) const {
  return journal_.Since(after, [&](const Journal::Entry& entry) {
    return entry.event.uid == peer.uid || daemon::MayUse(peer, entry.about, facts_.uid);
  });
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
  info.pinned = state.policy.pin;
  info.hold_count = leases_.HoldCountOn(state.id);
  info.bytes_done = state.bytes_done;
  info.age_ms = NsToMs(now_ns - state.asked_ns);
  const std::int64_t queued_now_ns =
      state.queued_since_ns != 0 ? now_ns - state.queued_since_ns : 0;
  info.queued_ms = NsToMs(state.queued_ns + queued_now_ns);
  info.load_ms = NsToMs(LoadNs(state));
  info.source = state.source;
  info.huge_pages = state.huge_pages;
  info.dtype = state.dtype;
  info.failure = state.failure;
  info.cancelled = state.cancelled;
  info.uid = state.uid;
  info.policy = state.policy;
  const bool idle = state.phase == StatePhase::kReady && info.lease_count == 0;
  info.idle_ms = idle ? NsToMs(now_ns - state.used_ns) : 0;
  info.queue_place = QueuePlace(state.id);
  info.wanted_bytes = state.wanted_bytes;
  info.closed = state.closed;
  info.base = state.base_name;
  info.builder = state.built_by;
  info.kept = state.is_kept;
  return info;
}

std::vector<wire::StateInfo> NodeState::StatesFor(const Peer& peer, std::int64_t now_ns) const {
  std::vector<wire::StateInfo> list;
  list.reserve(states_.size());
  for (const auto& [id, state] : states_) {
    if (MayUse(peer, state)) list.push_back(Info(state, now_ns));
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const auto& a, const auto& b) { return a.name < b.name; });
  return list;
}

std::vector<wire::StateInfo> NodeState::ListStates(std::int64_t now_ns) const {
  Peer owner;
  owner.uid = facts_.uid;
  return StatesFor(owner, now_ns);
}

std::vector<wire::LeaseInfo> NodeState::LeasesOn(std::optional<StateId> only, const Peer& peer,
                                                 std::int64_t now_ns) const {
  std::vector<wire::LeaseInfo> list;
  for (const auto& [id, lease] : leases_.leases()) {
    if (only && lease.state != *only) continue;
    const State* const state = FindById(lease.state);
    if (state == nullptr || !MayUse(peer, *state)) continue;
    wire::LeaseInfo info;
    info.lease_id = id.value;
    info.age_ms = NsToMs(now_ns - lease.granted_ns);
    info.hold = lease.hold;
    info.state = state->name;
    info.epoch = state->epoch;
    info.uid = lease.uid;
    info.job = lease.job;
    const Peer& holder = PeerOf(lease.connection);
    info.pid = holder.pid;
    info.command = holder.command;
    list.push_back(std::move(info));
  }
  return list;
}

std::uint64_t NodeState::BytesOf(std::uint32_t uid) const {
  std::uint64_t sum = 0;
  for (const auto& [id, state] : states_) {
    if (state.uid == uid) sum += state.arena_bytes;
  }
  return sum;
}

wire::StatusReply NodeState::StatusFor(const Peer& peer, std::int64_t now_ns) const {
  wire::StatusReply status = facts_;
  status.uptime_ms = NsToMs(now_ns - started_ns_);
  status.budget_bytes = budget_bytes_;
  status.used_bytes = used_bytes();
  status.state_count = state_count();
  status.lease_count = leases_.count();
  status.connection_count = static_cast<std::uint32_t>(peers_.size());
  status.draining = draining_ || shutting_down_;
  status.queue_count = static_cast<std::uint32_t>(queue_.size());
  status.load_count = RunningLoads();
  status.attach_total = attach_total_;
  status.evict_total = evict_total_;
  status.refusal_total = refusal_total_;
  status.keeper_lost = keeper_lost_;
  status.foreign_count = foreign_count_;
  status.foreign_bytes = foreign_bytes_;
  status.own_bytes = BytesOf(peer.uid);
  status.own_bytes_max = IsNodeOwner(peer) ? 0 : limits_.user.memory_bytes;
  return status;
}

}  // namespace sticky::daemon
