// What outlives the daemon: the records of published states that a keeper keeps, taking over those
// of an earlier daemon, and the end of this one.

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "daemon/core/core_text.h"
#include "daemon/core/node_state.h"

namespace sticky::daemon {

using wire::StatePhase;

// --- keeping ------------------------------------------------------------------------------------

wire::StateRecord NodeState::RecordOf(const State& state) const {
  wire::StateRecord record;
  record.state = state.name;
  record.epoch = state.epoch;
  if (state.content_digest) record.content_digest = *state.content_digest;
  record.template_digest = state.template_digest;
  record.arena_bytes = state.arena_bytes;
  record.tensor_count = state.tensor_count;
  record.uid = state.uid;
  record.gid = state.gid;
  record.policy = state.policy;
  record.source = state.source;
  record.dtype = state.dtype;
  record.huge_pages = state.huge_pages;
  record.asked_ns = state.asked_ns;
  record.ready_ns = state.ended_ns;
  record.kept_by_holds = state.kept_by_holds;
  record.closed = state.closed;
  record.ending = state.phase == StatePhase::kDraining || state.phase == StatePhase::kClosing;
  record.built_by = state.built_by;
  record.base = state.base_name;
  record.base_digest = state.base_digest;
  if (const State* const base = state.base ? FindById(*state.base) : nullptr) {
    record.base_epoch = base->epoch;
  }
  return record;
}

void NodeState::RecordChanged(State& state) {
  state.is_record_stale = !state.is_kept;  // told when it is published
  if (state.is_kept) actions_.emplace_back(KeepRecord{state.id, RecordOf(state)});
}

wire::NodeRecord NodeState::RecordOfNode() const {
  const bool is_default = budget_bytes_ == limits_.budget_bytes;
  return {draining_, is_default ? 0 : budget_bytes_};
}

void NodeState::NodeRecordChanged() { actions_.emplace_back(KeepNode{RecordOfNode()}); }

NodeState::Actions NodeState::KeeperLost(std::int64_t now_ns) {
  if (std::exchange(keeper_lost_, true)) return Settle(now_ns);
  for (auto& [id, state] : states_) state.is_kept = false;
  LogLine(Log::Level::kError,
          "the keeper has gone: states stay as long as this daemon, but not longer; start both "
          "again when no state is needed (`stickyctl doctor`)");
  return Settle(now_ns);
}

// --- taking over --------------------------------------------------------------------------------

StateId NodeState::Adopt(const wire::StateRecord& record, std::int64_t now_ns) {
  const StateId id{next_state_++};
  State& state = states_[id];
  state.id = id;
  state.name = record.state;
  state.epoch = record.epoch;
  state.phase = record.ending ? StatePhase::kDraining : StatePhase::kReady;
  state.uid = record.uid;
  state.gid = record.gid;
  state.policy = record.policy;
  state.template_digest = record.template_digest;
  state.content_digest = record.content_digest;
  state.source = record.source;
  state.dtype = record.dtype;
  state.huge_pages = record.huge_pages;
  state.arena_bytes = state.bytes_done = state.bytes_present = record.arena_bytes;
  state.tensor_count = record.tensor_count;
  state.kept_by_holds = record.kept_by_holds;
  state.closed = record.closed;
  state.built_by = record.built_by;
  state.base_name = record.base;
  state.base_digest = record.base_digest;
  for (const auto& [other_id, other] : states_) {
    const bool is_base = !record.base.empty() && other.epoch == record.base_epoch;
    if (is_base && other_id != id) state.base = other_id;
  }
  state.asked_ns = record.asked_ns;
  state.moved_ns = state.used_ns = now_ns;
  state.ended_ns = record.ready_ns;
  state.is_kept = true;
  if (state.kept_by_holds) state.awaited_until_ns = now_ns + limits_.hold_again_ns;
  next_epoch_ = std::max(next_epoch_, state.epoch + 1);
  const std::string text =
      ByteCount(state.arena_bytes) + ", digest " + ToHex(*state.content_digest);
  LogLine(Log::Level::kInfo, Format("state '%s' (epoch %llu) is taken over: %s", state.name.c_str(),
                                    Ull(state.epoch), text.c_str()));
  Note(wire::EventKind::kAdopt, &state, nullptr, text, now_ns);
  return id;
}

NodeState::Actions NodeState::Adopted(const Adoption& adoption, std::int64_t now_ns) {
  draining_ = adoption.node.draining;
  if (adoption.node.budget_bytes != 0) budget_bytes_ = adoption.node.budget_bytes;
  foreign_count_ = adoption.foreign_count;
  foreign_bytes_ = adoption.foreign_bytes;
  next_epoch_ = std::max(next_epoch_, adoption.epoch_max + 1);
  std::vector<StateId> ids;
  for (const auto& [id, state] : states_) ids.push_back(id);
  for (const StateId id : ids) Release(id, now_ns);  // nobody leases those that were ending
  return Settle(now_ns);
}

// --- the end ------------------------------------------------------------------------------------

void NodeState::ShutdownAsked(ConnectionId connection, std::uint32_t request_id,
                              const wire::ShutdownRequest& request, std::int64_t now_ns) {
  const Peer& peer = PeerOf(connection);
  if (!IsNodeOwner(peer)) {
    return Refuse(
        connection, request_id,
        Error{Code::kPermissionDenied,
              Format("shut the daemon down as user %u: that is for the node's owner", peer.uid)});
  }
  if (request.keep_states && (facts_.keeper.empty() || keeper_lost_)) {
    return Refuse(
        connection, request_id,
        Error{Code::kUnavailable, std::string("shut the daemon down and keep its states: ") +
                                      (keeper_lost_ ? "their keeper has gone"
                                                    : "nothing keeps them: it was not started by "
                                                      "sticky-keeper or a service manager") +
                                      "; --drop-states gives them up"});
  }
  std::uint32_t count = 0;
  for (const auto& [id, state] : states_) {
    count += state.arena_bytes > 0 && (!request.keep_states || state.is_kept) ? 1 : 0;
  }
  LogLine(Log::Level::kInfo, Format("user %u shuts the daemon down, %u states are %s", peer.uid,
                                    count, request.keep_states ? "kept" : "dropped"));
  Note(wire::EventKind::kShutdown, nullptr, &peer, request.keep_states ? "keeps" : "drops", now_ns);
  Reply(connection, request_id, wire::ShutdownReply{count, leases_.count()});
  actions_.emplace_back(Stop{request.keep_states});
}

}  // namespace sticky::daemon
