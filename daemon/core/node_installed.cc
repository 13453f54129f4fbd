// Installed templates: states that the daemon has built by itself, when it starts or when somebody
// attaches. It asks for their loads as any user would, through a requester of its own uid, since it
// opens no model files itself. From then until the load comes the state is expected: it has its
// name, its place and those who wait for it, and no files yet.

#include <utility>

#include "base/text.h"
#include "daemon/core/core_text.h"
#include "daemon/core/node_state.h"

namespace sticky::daemon {

using wire::StatePhase;

NodeState::Actions NodeState::Install(std::vector<Installed> installed, std::uint32_t gid,
                                      std::int64_t now_ns) {
  installed_ = std::move(installed);
  self_.uid = facts_.uid;
  self_.gid = gid;
  for (const Installed& one : installed_) {
    if (!one.problem.empty()) {
      LogLine(Log::Level::kError, "pass over an installed template: " + Printable(one.problem));
    } else if (one.build == BuildWhen::kAtStart) {
      if (const Status may = MayAddState(self_, "load '" + one.name + "'"); may.ok()) {
        Expect(one, now_ns);
      } else {
        LogLine(Log::Level::kError, may.error().message);
      }
    }
  }
  return Settle(now_ns);
}

const Installed* NodeState::FindInstalled(const Peer& peer, std::string_view name) const {
  for (const Installed& one : installed_) {
    if (one.name != name || !one.problem.empty()) continue;
    const Ownership owned{self_.uid, self_.gid, one.access};
    return daemon::MayUse(peer, owned, facts_.uid) ? &one : nullptr;
  }
  return nullptr;
}

Status NodeState::MayMake(const Peer& peer, const std::string& name,
                          const std::string& doing) const {
  if (IsNodeOwner(peer)) return Ok{};
  for (const Installed& one : installed_) {
    if (one.name != name || !one.problem.empty()) continue;
    return Error{Code::kPermissionDenied,
                 doing +
                     "the name is an installed template's (`stickyctl template ls`), whose "
                     "state the node's owner makes; use another name"};
  }
  return Ok{};
}

State& NodeState::Expect(const Installed& installed, std::int64_t now_ns) {
  Policy policy;
  policy.access = installed.access;
  State& state = AddState(self_, installed.name, policy, now_ns);
  state.template_digest = installed.template_digest;
  state.source = installed.path;
  state.is_expected = true;
  LogLine(Log::Level::kInfo,
          Format("load '%s' (epoch %llu) from the installed template '%s'", state.name.c_str(),
                 Ull(state.epoch), Escape(installed.path).c_str()));
  to_request_.push_back(state.id);
  return state;
}

void NodeState::StartRequesters(std::int64_t now_ns) {
  constexpr std::size_t kRequestersMax = 4;  // at once: a node that starts may have many templates
  while (!to_request_.empty() && requesters_.size() < kRequestersMax) {
    State* const state = FindById(to_request_.front());
    to_request_.pop_front();
    if (state == nullptr || !state->is_expected || !state->IsLoading()) continue;
    state->moved_ns = now_ns;
    requesters_.insert(state->id);
    actions_.emplace_back(StartRequester{state->id, state->source});
  }
}

Result<State*> NodeState::FindOrExpect(const Peer& peer, const std::string& name,
                                       std::int64_t now_ns) {
  State* const found = FindToAttach(name);
  const bool ends = found != nullptr &&
                    (found->phase == StatePhase::kDraining || found->phase == StatePhase::kClosing);
  if (found != nullptr && !ends && !MayBeTriedAgain(*found, now_ns)) return found;
  const Installed* const installed = FindInstalled(peer, name);
  if (installed == nullptr || installed->build == BuildWhen::kManual) return found;
  const std::string doing = "attach '" + name + "'";
  if (draining_) {
    return Error{Code::kUnavailable,
                 doing + ": the node is being drained, its template is not built now"};
  }
  STICKY_TRY(MayAddState(self_, doing));
  return &Expect(*installed, now_ns);
}

NodeState::Actions NodeState::RequesterEnded(StateId id, const Error& error, std::int64_t now_ns) {
  requesters_.erase(id);
  State* const state = FindById(id);
  if (state == nullptr || !state->IsLoading() || !state->is_expected) return Settle(now_ns);
  FailLoad(*state,
           Error{error.code, "load '" + state->name + "' from the installed template '" +
                                 Escape(state->source) + "': " + error.message},
           now_ns);
  return Settle(now_ns);
}

// A passing hitch (no memory, a drained node, a killed process) is not remembered for long: who
// comes later has a new try, though not everyone who comes.
bool NodeState::MayBeTriedAgain(const State& state, std::int64_t now_ns) {
  constexpr std::int64_t kRetryNs = 2'000'000'000;
  if (state.phase != StatePhase::kFailed || now_ns - state.ended_ns < kRetryNs) return false;
  return state.failure->code == Code::kUnavailable || state.failure->code == Code::kOutOfMemory;
}

wire::TemplatesReply NodeState::TemplatesFor(const Peer& peer) const {
  wire::TemplatesReply reply;
  for (const Installed& one : installed_) {
    const bool is_told =
        one.problem.empty() ? FindInstalled(peer, one.name) == &one : IsNodeOwner(peer);
    if (is_told) reply.templates.push_back({one.name, one.path, one.build, one.problem});
  }
  return reply;
}

}  // namespace sticky::daemon
