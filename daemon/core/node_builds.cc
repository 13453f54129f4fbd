// States that a builder makes: it asks for arenas, fills them, and commits. The daemon runs none of
// its code and takes none of its words: it seals the memory and has it digested by a child of its
// own.

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "daemon/core/core_text.h"
#include "daemon/core/node_state.h"
#include "flatbuffers/wire_manifest.h"

namespace sticky::daemon {

using wire::Placement;
using wire::StatePhase;

State* NodeState::FindBuild(ConnectionId connection) {
  for (auto& [id, state] : states_) {
    if (state.builder == connection && state.IsLoading()) return &state;
  }
  return nullptr;
}

bool NodeState::HasDerived(StateId id) const {
  return std::any_of(states_.begin(), states_.end(),
                     [id](const auto& entry) { return entry.second.base == id; });
}

std::string NodeState::DerivedText(StateId id, const Peer& peer) const {
  constexpr int kStatesTold = 8;
  std::string text;
  int told = 0;
  int untold = 0;
  for (const auto& [other, state] : states_) {
    if (state.base != id) continue;
    if (told == kStatesTold || !MayUse(peer, state)) {
      ++untold;
      continue;
    }
    ++told;
    text += (text.empty() ? "'" : ", '") + state.name + "'";
  }
  if (untold == 0) return text;
  return text + Format("%s%d %s", text.empty() ? "" : " and ", untold,
                       told == kStatesTold ? "more" : "of other users");
}

// Null when no base was named. Errors: kNotFound, kPermissionDenied, kUnavailable: not ready.
Result<const State*> NodeState::FindBase(const Peer& peer, const wire::BuildRequest& request) {
  if (!request.base) return nullptr;
  const std::string doing = "build '" + request.state + "' from '" + *request.base + "': ";
  const State* const base = FindToAttach(*request.base);
  if (base == nullptr) return Error{Code::kNotFound, doing + "there is no such state"};
  if (!MayUse(peer, *base)) {
    return Error{Code::kPermissionDenied, doing + RuleText(base->ownership())};
  }
  if (base->phase == StatePhase::kReady) return base;
  return Error{Code::kUnavailable, doing + "it is " + wire::Name(base->phase)};
}

// Why a build may not take its name, when a state has it.
Status NodeState::MayTakeName(const wire::BuildRequest& request, const State& earlier) const {
  const std::string doing = "build '" + request.state + "': a state of that name is ";
  if (earlier.IsLoading()) {
    return Error{Code::kUnavailable, doing + "being built; wait until it is ready"};
  }
  const bool is_free = earlier.phase == StatePhase::kDraining;
  if (is_free || request.placement != Placement::kJoin) return Ok{};
  return Error{
      Code::kInvalidArgument,
      doing + "there, of another recipe; use another name, or replace it with " + kReplaceWords};
}

void NodeState::Build(ConnectionId connection, std::uint32_t request_id,
                      const wire::BuildRequest& request, std::int64_t now_ns) {
  const Peer& peer = PeerOf(connection);
  const std::string doing = "build '" + request.state + "'";
  wire::LoadRequest as_load;
  as_load.state = request.state;
  as_load.policy = request.policy;
  as_load.placement = request.placement;
  if (const std::optional<Error> refusal = RefusalOfLoad(connection, as_load)) {
    return Refuse(connection, request_id, *refusal);
  }
  State* const earlier = FindToLoad(request.state);
  const bool is_there = earlier != nullptr && earlier->phase == StatePhase::kReady &&
                        request.template_digest == earlier->template_digest;
  if (is_there && request.placement == Placement::kJoin) {
    return Reply(connection, request_id,
                 wire::BuildReply{Info(*earlier, now_ns), earlier->base_digest});
  }
  Status may = MayAddState(peer, doing);
  if (may.ok() && request.placement == Placement::kInPlace && request.base == request.state) {
    may = Error{Code::kInvalidArgument,
                doing +
                    ": it cannot be replaced in its place by a state that is derived from it; "
                    "use " +
                    kReplaceWords};
  }
  if (may.ok()) may = MayMake(peer, request.state, doing + ": ");
  if (may.ok() && earlier != nullptr) may = MayTakeName(request, *earlier);
  if (may.ok() && FindBuild(connection) != nullptr) {
    may = Error{Code::kInvalidArgument, doing + ": a build is under way on this connection"};
  }
  if (!may.ok()) return Refuse(connection, request_id, may.error());
  const Result<const State*> base = FindBase(peer, request);
  if (!base.ok()) return Refuse(connection, request_id, base.error());

  State& state = AddState(peer, request.state, request.policy, now_ns);
  state.phase = StatePhase::kFilling;
  state.builder = connection;
  state.built_by = request.builder;
  state.source = request.source;
  state.template_digest = request.template_digest.value_or(Digest{});
  const std::int64_t asked_ns = MsToNs(request.deadline_ms);
  state.build_deadline_ns =
      now_ns + (asked_ns > 0 ? std::min(asked_ns, limits_.build_ns) : limits_.build_ns);
  if (base.value() != nullptr) {
    state.base = base.value()->id;
    state.base_name = base.value()->name;
    state.base_digest = base.value()->content_digest;
  }
  LogLine(Log::Level::kInfo, Format("build '%s' (epoch %llu) by pid %llu of user %u",
                                    state.name.c_str(), Ull(state.epoch), Ull(peer.pid), peer.uid));
  Note(wire::EventKind::kLoad, &state, &peer, "by a builder: " + state.built_by, now_ns);
  Succeed(state, earlier, request.placement, peer, now_ns);
  Reply(connection, request_id, wire::BuildReply{Info(state, now_ns), state.base_digest});
}

Status NodeState::MayHaveArena(const State& state, std::uint64_t size_bytes) const {
  const std::string doing = "ask for an arena of '" + state.name + "': ";
  if (state.is_helped || state.phase == StatePhase::kQueued) {
    return Error{Code::kInvalidArgument, doing + "another is on its way, or it is committed"};
  }
  if (size_bytes == 0) return Error{Code::kInvalidArgument, doing + "0 bytes are none"};
  if (state.build_arenas.size() < wire::kArenaCountMax) return Ok{};
  return Error{Code::kInvalidArgument,
               doing + Format("it has %u, the most that a state can have", wire::kArenaCountMax)};
}

void NodeState::ArenaAsked(ConnectionId connection, std::uint32_t request_id,
                           const wire::BuildArenaRequest& request, std::int64_t now_ns) {
  State* const state = FindBuild(connection);
  if (state == nullptr) {
    return Refuse(connection, request_id,
                  Error{Code::kInvalidArgument,
                        "ask for an arena: no build is under way on this connection"});
  }
  Status may = MayHaveArena(*state, request.size_bytes);
  if (may.ok()) {
    state->wanted_bytes = request.size_bytes;
    may = MayEverFit(*state);
  }
  const Waiter waiter{.connection = connection,
                      .request_id = request_id,
                      .wish = Wish::kArena,
                      .state = state->id,
                      .deadline_ns = now_ns + MsToNs(request.wait_ms)};
  if (!may.ok()) Refuse(connection, request_id, may.error());
  if (!may.ok() || !AddWaiter(waiter)) {
    if (state->phase == StatePhase::kFilling) state->wanted_bytes = 0;
    return;
  }
  state->phase = StatePhase::kQueued;
  EnterQueue(*state, now_ns);
  ServeQueue(now_ns);
  // Memory that is on its way is waited for even by those who do not want to wait.
  if (state->phase == StatePhase::kFilling || RoomIsComing(*state)) {
    waiters_.back().deadline_ns = std::max(waiter.deadline_ns, now_ns + limits_.room_ns);
  }
  ExpireWaiters(now_ns);
}

void NodeState::RefuseArena(State& state, const Error& error, std::int64_t now_ns) {
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    if (waiter.state != state.id || waiter.wish != Wish::kArena) return false;
    Refuse(waiter.connection, waiter.request_id, error);
    return true;
  });
  GiveUpArena(state, now_ns);
}

void NodeState::GiveUpArena(State& state, std::int64_t now_ns) {
  LeaveQueue(state, now_ns);
  state.wanted_bytes = 0;
  state.phase = StatePhase::kFilling;
}

NodeState::Actions NodeState::BuildArenaMade(StateId id, std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state == nullptr || !state->builder || !state->IsLoading()) return Settle(now_ns);
  state->is_helped = false;
  state->moved_ns = now_ns;
  const auto index = static_cast<std::uint32_t>(state->build_arenas.size() - 1);
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    if (waiter.state != id || waiter.wish != Wish::kArena) return false;
    const wire::BuildArenaReply reply{index, state->build_arenas[index]};
    actions_.emplace_back(
        Send{waiter.connection, {waiter.request_id, reply}, Attachment::kBuildArena, id});
    return true;
  });
  return Settle(now_ns);
}

bool NodeState::MayCommit(const State& build) {
  return build.phase == StatePhase::kFilling && !build.is_helped && !build.build_arenas.empty();
}

NodeState::Actions NodeState::CommitAsked(ConnectionId connection, std::uint32_t request_id,
                                          const wire::BuildCommitRequest& request,
                                          std::uint32_t tensor_count, std::int64_t now_ns) {
  State* const state = FindBuild(connection);
  if (state == nullptr || !MayCommit(*state)) {
    Refuse(connection, request_id,
           Error{Code::kInvalidArgument,
                 "commit a build: none with an arena is under way on this connection, or it waits "
                 "for an arena, or it is committed already"});
    return Settle(now_ns);
  }
  state->tensor_count = tensor_count;
  state->is_helped = true;
  state->bytes_done = state->bytes_present = 0;
  state->moved_ns = now_ns;
  // A digest that moves is waited for; one that does not fails the build.
  AddWaiter(Waiter{.connection = connection,
                   .request_id = request_id,
                   .wish = Wish::kCommit,
                   .state = state->id,
                   .deadline_ns = now_ns + std::max(MsToNs(request.wait_ms), limits_.build_ns)});
  actions_.emplace_back(CommitBuild{state->id});
  return Settle(now_ns);
}

NodeState::Actions NodeState::BuildNotSealed(StateId id, const Error& error, std::int64_t now_ns) {
  State* const state = FindById(id);
  if (state == nullptr || !state->builder || !state->IsLoading()) return Settle(now_ns);
  state->is_helped = false;
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    if (waiter.state != id || waiter.wish != Wish::kCommit) return false;
    Refuse(waiter.connection, waiter.request_id,
           Error{error.code, "commit '" + state->name + "': " + error.message, error.os_code});
    return true;
  });
  return Settle(now_ns);
}

}  // namespace sticky::daemon
