// Memory: what is used, which load gets room next, and which states make room for it.

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "daemon/core/core_text.h"
#include "daemon/core/eviction.h"
#include "daemon/core/node_state.h"

namespace sticky::daemon {
namespace {

std::string Bytes(std::uint64_t bytes) {
  return Format("%llu bytes (%s)", Ull(bytes), ByteCount(bytes).c_str());
}

}  // namespace

using wire::StatePhase;

std::uint64_t NodeState::used_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [id, state] : states_) sum += state.arena_bytes;
  for (const auto& [id, bytes] : dying_bytes_) sum += bytes;
  return sum + foreign_bytes_;
}

std::uint64_t NodeState::FreeBytes() const {
  return budget_bytes_ - std::min(used_bytes(), budget_bytes_);
}

std::uint64_t NodeState::ComingBytes() const {
  std::uint64_t sum = 0;
  for (const auto& [id, state] : states_) {
    if (state.phase == StatePhase::kClosing) sum += state.arena_bytes;
  }
  for (const auto& [id, bytes] : dying_bytes_) sum += bytes;
  return sum;
}

bool NodeState::WaitsForEarlier(const State& state) const {
  return state.follows && FindById(*state.follows) != nullptr;
}

bool NodeState::WaitsForTurn(const State& state) const {
  if (state.bundle) return true;
  const bool is_planned = queue_.contains(state.id) && !state.builder;
  return is_planned && !WaitsForEarlier(state) && state.wanted_bytes <= FreeBytes() &&
         RunningLoads() >= limits_.load_count_max;
}

bool NodeState::RoomIsComing(const State& state) const {
  if (WaitsForEarlier(state) || WaitsForTurn(state)) return true;
  const std::uint64_t free = FreeBytes();
  return QueuePlace(state.id) == 1 && free + ComingBytes() >= state.wanted_bytes;
}

// What no waiting will change.
Status NodeState::MayEverFit(const State& state) const {
  // A builder asks for one arena after the other.
  const std::string doing = Doing(state) + "needs " + Bytes(state.wanted_bytes) +
                            (state.arena_bytes > 0 ? " beside " + Bytes(state.arena_bytes) : "");
  if (state.wanted_bytes + state.arena_bytes > budget_bytes_) {
    return Error{Code::kOutOfMemory, doing + ", more than the node's whole budget of " +
                                         Bytes(budget_bytes_) +
                                         " (memory.host of the node config)"};
  }
  Peer owner;
  owner.uid = state.uid;
  if (limits_.user.memory_bytes == 0 || IsNodeOwner(owner)) return Ok{};
  std::uint64_t own_bytes = BytesOf(state.uid);
  for (const auto& [id, other] : states_) {
    // What is planned and waits for room will have it.
    if (other.uid == state.uid && id != state.id) own_bytes += other.wanted_bytes;
  }
  if (own_bytes + state.wanted_bytes <= limits_.user.memory_bytes) return Ok{};
  return Error{Code::kOutOfMemory,
               doing + Format("; states of user %u hold ", state.uid) + Bytes(own_bytes) + " of " +
                   Bytes(limits_.user.memory_bytes) +
                   ", the limit of one user (limits.per_user.memory); evict one of them"};
}

void NodeState::EnterQueue(State& state, std::int64_t now_ns) {
  queue_.insert(state.id);
  if (state.queued_since_ns == 0) state.queued_since_ns = now_ns;
}

void NodeState::LeaveQueue(State& state, std::int64_t now_ns) {
  queue_.erase(state.id);
  if (state.queued_since_ns != 0) state.queued_ns += now_ns - state.queued_since_ns;
  state.queued_since_ns = 0;
}

// In order: a small load does not overtake a large one, which would never get its room. One that
// waits for the earlier epoch to go, and not for memory, holds up nobody. What is planned comes
// before what is not: it has a loader already, and runs again once it has room.
void NodeState::ServeQueue(std::int64_t now_ns) {
  const std::set<StateId> waiting = queue_;
  bool has_room = true;
  for (const StateId id : waiting) {
    State* const state = FindById(id);
    if (state->bundle || !has_room || WaitsForEarlier(*state) || WaitsForTurn(*state)) continue;
    has_room = TryPlace(*state, now_ns);
  }
  for (const StateId id : waiting) {
    State* const state = FindById(id);
    if (state->bundle && RunningLoads() < limits_.load_count_max) Launch(*state, now_ns);
  }
}

// Takes the memory of a planned load from the budget, or sees to it that there will be some.
bool NodeState::TryPlace(State& state, std::int64_t now_ns) {
  const std::uint64_t free = FreeBytes();
  if (state.wanted_bytes > free) {
    const std::uint64_t coming = free + ComingBytes();
    if (state.wanted_bytes <= coming) return false;
    for (const StateId victim : VictimsFor(state, state.wanted_bytes - coming)) {
      ++evict_total_;
      Drain(*FindById(victim), "evicted to make room for '" + state.name + "'", nullptr, now_ns);
    }
    return false;
  }
  LeaveQueue(state, now_ns);
  const std::uint64_t arena_bytes = std::exchange(state.wanted_bytes, 0);
  state.arena_bytes += arena_bytes;
  state.phase = StatePhase::kFilling;
  state.moved_ns = now_ns;
  if (state.builder) {
    state.build_arenas.push_back(arena_bytes);
    state.is_helped = true;
    state.bytes_done = state.bytes_present = 0;
    loaders_.insert(state.id);  // a child that helps, until it is reaped
    actions_.emplace_back(MakeBuildArena{state.id, arena_bytes});
    return true;
  }
  actions_.emplace_back(
      AllocateArena{state.id, state.arena_bytes, state.huge_pages_wanted, state.prefault});
  return true;
}

// Whether nobody would miss the state now.
bool NodeState::IsFreeToGo(const State& state) const {
  const bool in_use =
      leases_.CountOn(state.id) > 0 || !state.holders_to_be.empty() || HasDerived(state.id);
  return state.phase == StatePhase::kReady && !in_use && !state.policy.pin;
}

std::vector<StateId> NodeState::VictimsFor(const State& state, std::uint64_t need_bytes) const {
  std::vector<Candidate> candidates;
  for (const auto& [id, other] : states_) {
    if (!IsFreeToGo(other)) continue;
    if (state.replaces == id || other.policy.priority > state.policy.priority) continue;
    candidates.push_back({id, other.policy.priority, other.used_ns, other.arena_bytes});
  }
  return ChooseVictims(std::move(candidates), need_bytes);
}

// --- another budget -----------------------------------------------------------------------------

void NodeState::SetBudget(ConnectionId connection, std::uint32_t request_id,
                          const wire::BudgetRequest& request, std::int64_t now_ns) {
  const Peer& peer = PeerOf(connection);
  if (!IsNodeOwner(peer)) {
    return Refuse(
        connection, request_id,
        Error{Code::kPermissionDenied,
              Format("set the budget as user %u: that is for the node's owner", peer.uid)});
  }
  const std::string change =
      "budget " + Bytes(budget_bytes_) + " -> " + Bytes(request.budget_bytes);
  budget_bytes_ = request.budget_bytes;
  NodeRecordChanged();
  LogLine(Log::Level::kInfo, Format("user %u: %s", peer.uid, change.c_str()));
  Note(wire::EventKind::kBudget, nullptr, &peer, change, now_ns);
  FailWhatNeverFits(now_ns);
  ShrinkToBudget(now_ns);
  Reply(connection, request_id, StatusFor(peer, now_ns));
}

// Loads that wait for room which the new budget does not have.
void NodeState::FailWhatNeverFits(std::int64_t now_ns) {
  const std::set<StateId> waiting = queue_;
  for (const StateId id : waiting) {
    State* const state = FindById(id);
    if (state == nullptr) continue;
    const Status may = MayEverFit(*state);
    if (may.ok()) continue;
    if (!state->builder) {
      FailLoad(*state, may.error(), now_ns);
    } else {
      RefuseArena(*state, may.error(), now_ns);
    }
  }
}

// Evicts what nobody uses, until the rest fits; what is in use or pinned stays, over the budget.
void NodeState::ShrinkToBudget(std::int64_t now_ns) {
  const std::uint64_t stays = used_bytes() - std::min(used_bytes(), ComingBytes());
  if (stays <= budget_bytes_) return;
  std::vector<Candidate> candidates;
  std::uint64_t free_bytes = 0;
  for (const auto& [id, state] : states_) {
    if (!IsFreeToGo(state)) continue;
    candidates.push_back({id, state.policy.priority, state.used_ns, state.arena_bytes});
    free_bytes += state.arena_bytes;
  }
  const std::uint64_t need_bytes = std::min(stays - budget_bytes_, free_bytes);
  for (const StateId victim : ChooseVictims(std::move(candidates), need_bytes)) {
    ++evict_total_;
    Drain(*FindById(victim), "evicted, for the budget was lowered", nullptr, now_ns);
  }
}

// "pinned", "held by pid 7 of user 1000 for 12 s", ...
std::string NodeState::WhyItStays(const State& state, const State& wanted,
                                  std::int64_t now_ns) const {
  const std::uint32_t count = leases_.CountOn(state.id);
  if (count > 0) {
    for (const auto& [id, lease] : leases_.leases()) {
      if (lease.state != state.id) continue;
      const std::string others = count > 1 ? Format(" and %u more", count - 1) : "";
      return Format("%s by pid %llu of user %u for %.0f s%s", lease.hold ? "held" : "leased",
                    Ull(PeerOf(lease.connection).pid), lease.uid,
                    static_cast<double>(now_ns - lease.granted_ns) / 1e9, others.c_str());
    }
  }
  if (state.IsLoading()) return "being loaded";
  if (state.phase == StatePhase::kClosing) return "evicted, but still mapped by somebody";
  if (HasDerived(state.id)) {
    Peer owner;
    owner.uid = wanted.uid;
    owner.gid = wanted.gid;
    return "kept by what is derived from it: " + DerivedText(state.id, owner);
  }
  if (state.policy.pin) return "pinned";
  if (wanted.replaces == state.id) return "what this load replaces";
  if (state.policy.priority > wanted.policy.priority) {
    return Format("of priority %d", state.policy.priority);
  }
  return "free to go";
}

// Those in use first, then the largest: what is told is what may help.
std::vector<const State*> NodeState::HoldersOfMemory() const {
  std::vector<const State*> holders;
  for (const auto& [id, state] : states_) {
    if (state.arena_bytes > 0) holders.push_back(&state);
  }
  std::stable_sort(holders.begin(), holders.end(), [this](const State* a, const State* b) {
    const bool a_leased = leases_.CountOn(a->id) > 0;
    const bool b_leased = leases_.CountOn(b->id) > 0;
    if (a_leased != b_leased) return a_leased;
    return a->arena_bytes > b->arena_bytes;
  });
  return holders;
}

std::string NodeState::HoldersText(const State& wanted, std::int64_t now_ns) const {
  constexpr int kStatesTold = 8;
  Peer owner;
  owner.uid = wanted.uid;
  owner.gid = wanted.gid;
  std::string text;
  int told = 0;
  std::uint64_t untold_bytes = 0;
  for (const State* const state : HoldersOfMemory()) {
    if (told == kStatesTold || !MayUse(owner, *state)) {
      untold_bytes += state->arena_bytes;
      continue;
    }
    ++told;
    text +=
        Format("%s'%s' %s (%s)", text.empty() ? "" : ", ", state->name.c_str(),
               ByteCount(state->arena_bytes).c_str(), WhyItStays(*state, wanted, now_ns).c_str());
  }
  if (untold_bytes > 0) {
    text += (text.empty() ? "" : ", ") + ("others " + ByteCount(untold_bytes));
  }
  return text;
}

Error NodeState::NoRoomFor(const State& state, std::int64_t now_ns, bool has_waited) const {
  const std::string doing = Doing(state);
  if (WaitsForEarlier(state)) {
    const State& earlier = *FindById(*state.follows);
    return Error{Code::kUnavailable,
                 doing + Format("epoch %llu, which it is to replace in its place, has not gone: %s",
                                Ull(earlier.epoch), WhyItStays(earlier, state, now_ns).c_str())};
  }
  if (state.bundle) {
    return Error{Code::kUnavailable, doing + Format("its turn did not come, %u loads are running "
                                                    "(limits.loads); wait longer",
                                                    RunningLoads())};
  }
  std::string text = doing + "needs " + Bytes(state.wanted_bytes) + ", left are " +
                     Bytes(FreeBytes()) + " of the node's budget of " + Bytes(budget_bytes_);
  if (const std::string holders = HoldersText(state, now_ns); !holders.empty()) {
    text += "; held: " + holders;
  }
  if (const std::uint32_t place = QueuePlace(state.id); place > 1) {
    text += Format("; %u loads wait before it", place - 1);
  }
  const bool is_build = state.builder.has_value();  // of any program; loads are stickyctl's
  const std::string room =
      is_build ? std::string("wait for room with ") + kWaitWords : std::string("--wait for room");
  text += "; ";
  if (state.replaces) text += "both epochs do not fit beside each other: ";
  if (state.replaces && !HasDerived(*state.replaces)) {
    text += std::string(is_build ? kInPlaceWords : "--in-place") + " drains the old one first, or ";
  }
  const std::string wait = has_waited ? "wait longer" : room;
  return Error{Code::kOutOfMemory, text + wait + ", or evict one that is not needed"};
}

std::uint32_t NodeState::QueuePlace(StateId id) const {
  const auto found = queue_.find(id);
  return found == queue_.end()
             ? 0
             : static_cast<std::uint32_t>(std::distance(queue_.begin(), found)) + 1;
}

// States whose template says how long they stay. An idle one goes when nobody used it for so long;
// one whose time is up takes no new leases, and goes when the last is let go.
void NodeState::EndLifetimes(std::int64_t now_ns) {
  std::vector<StateId> awaited_in_vain;
  for (auto& [id, state] : states_) {
    if (state.phase != StatePhase::kReady) continue;
    const bool in_use = leases_.CountOn(id) > 0 || !state.holders_to_be.empty() || HasDerived(id);
    const std::int64_t idle_ns = MsToNs(state.policy.idle_ms);
    const std::int64_t ttl_ns = MsToNs(state.policy.ttl_ms);
    if (state.awaited_until_ns != 0 && now_ns >= state.awaited_until_ns) {
      state.awaited_until_ns = 0;
      awaited_in_vain.push_back(id);
    }
    if (ttl_ns > 0 && now_ns - state.ended_ns >= ttl_ns) {
      Drain(state, "its time is up (lifetime.ttl)", nullptr, now_ns);
    } else if (idle_ns > 0 && !in_use && !state.policy.pin && now_ns - state.used_ns >= idle_ns) {
      Drain(state, "nobody used it (lifetime.idle)", nullptr, now_ns);
    }
  }
  for (const StateId id : awaited_in_vain) Release(id, now_ns);
}

}  // namespace sticky::daemon
