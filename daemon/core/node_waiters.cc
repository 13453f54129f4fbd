// Requests that wait: for a load, for a state to attach to, for an eviction, for leases to end, for
// events.

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.h"
#include "daemon/core/core_text.h"
#include "daemon/core/node_state.h"

namespace sticky::daemon {

using wire::StatePhase;

bool NodeState::AddWaiter(const Waiter& waiter) {
  const auto own = std::count_if(waiters_.begin(), waiters_.end(), [&](const Waiter& other) {
    return other.connection == waiter.connection;
  });
  const bool too_many = waiters_.size() >= limits_.waiter_count_max;
  if (too_many || own >= limits_.connection_waiter_count_max) {
    Refuse(waiter.connection, waiter.request_id,
           Error{Code::kUnavailable,
                 Format("wait: %u requests wait already, the limit of %s",
                        too_many ? limits_.waiter_count_max : limits_.connection_waiter_count_max,
                        too_many ? "the node" : "one connection")});
    return false;
  }
  waiters_.push_back(waiter);
  return true;
}

bool NodeState::IsAwaited(StateId id) const {
  return std::any_of(waiters_.begin(), waiters_.end(),
                     [id](const Waiter& waiter) { return waiter.state == id; });
}

// The state is ready, failed or gone: everyone who waits for that gets an answer.
void NodeState::AnswerWaiters(StateId id, std::int64_t now_ns) {
  std::vector<Waiter> ripe;
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    const State* const state = FindById(id);
    const bool evicted = state != nullptr && state->phase == StatePhase::kClosing;
    if (waiter.state != id || waiter.wish == Wish::kDrain) return false;
    if ((waiter.wish == Wish::kEvict) != evicted) return false;
    ripe.push_back(waiter);
    return true;
  });
  for (const Waiter& waiter : ripe) {
    State* const state = FindById(id);
    if (waiter.wish == Wish::kEvict) {
      Reply(waiter.connection, waiter.request_id,
            wire::EvictReply{Info(*state, now_ns), /*freed=*/true, {}});
    } else if (state->phase == StatePhase::kFailed) {
      Refuse(waiter.connection, waiter.request_id,
             Error{state->failure->code, state->failure->message, state->failure->os_code});
    } else if (waiter.wish == Wish::kCommit) {
      Reply(waiter.connection, waiter.request_id,
            wire::BuildReply{Info(*state, now_ns), state->base_digest});
    } else if (waiter.wish == Wish::kLoad) {
      Reply(waiter.connection, waiter.request_id,
            wire::LoadReply{Info(*state, now_ns), waiter.joined});
    } else if (const Peer& peer = PeerOf(waiter.connection); !MayUse(peer, *state)) {
      // It was made with another access than was known when this wait began.
      Refuse(waiter.connection, waiter.request_id,
             Error{Code::kPermissionDenied,
                   Format("attach '%s' as user %u: ", state->name.c_str(), peer.uid) +
                       RuleText(state->ownership())});
    } else {
      GrantAttach(waiter.connection, waiter.request_id, *state, waiter.attach, now_ns);
    }
  }
}

// Whoever waits until a state, or the node, has no lease.
void NodeState::AnswerDrains() {
  std::vector<Waiter> ripe;
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    if (waiter.wish != Wish::kDrain) return false;
    const std::uint32_t left = waiter.state ? leases_.CountOn(*waiter.state) : leases_.count();
    if (left > 0) return false;
    ripe.push_back(waiter);
    return true;
  });
  for (const Waiter& waiter : ripe) {
    Reply(waiter.connection, waiter.request_id, wire::DrainReply{/*empty=*/true, {}});
  }
}

void NodeState::AnswerEvents() {
  if (events_told_ == journal_.last()) return;
  events_told_ = journal_.last();
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    if (waiter.wish != Wish::kEvents) return false;
    wire::EventsReply reply = EventsFor(PeerOf(waiter.connection), waiter.after);
    if (reply.events.empty()) return false;
    Reply(waiter.connection, waiter.request_id, std::move(reply));
    return true;
  });
}

void NodeState::ExpireWaiters(std::int64_t now_ns) {
  std::vector<Waiter> late;
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    if (now_ns < waiter.deadline_ns) return false;
    late.push_back(waiter);
    return true;
  });
  for (const Waiter& waiter : late) Expire(waiter, now_ns);
  // A place in the queue is for those who wait.
  for (const Waiter& waiter : late) {
    if (waiter.state && queue_.contains(*waiter.state)) CancelIfUnwanted(*waiter.state, now_ns);
  }
}

std::string NodeState::EarlierText(const State& state) const {
  if (!WaitsForEarlier(state)) return "";
  const State& earlier = *FindById(*state.follows);
  const bool is_given_up =
      queue_.contains(state.id) && state.cancelled_when_unwanted && !IsAwaited(state.id);
  if (!is_given_up) {
    return Format(
        "; epoch %llu takes no new leases any more, and the replacement goes on waiting "
        "for it to go: wait again",
        Ull(earlier.epoch));
  }
  const std::string again = MayOpenAgain(earlier) ? "takes new leases again"
                            : earlier.gives_way   ? "is going, nobody has it any more"
                                                  : "takes no new leases, it was drained before";
  return Format("; the replacement is given up, and epoch %llu ", Ull(earlier.epoch)) + again +
         "; wait longer, or load it without --wait: then the replacement waits by itself, or "
         "--replace (builds it beside)";
}

void NodeState::Expire(const Waiter& waiter, std::int64_t now_ns) {
  const Peer& peer = PeerOf(waiter.connection);
  if (waiter.wish == Wish::kEvents) {
    return Reply(waiter.connection, waiter.request_id, EventsFor(peer, waiter.after));
  }
  if (waiter.wish == Wish::kDrain) {
    wire::DrainReply reply{/*empty=*/false, LeasesOn(waiter.state, peer, now_ns)};
    reply.empty = reply.leases.empty();
    return Reply(waiter.connection, waiter.request_id, std::move(reply));
  }
  State* const state = FindById(*waiter.state);
  if (state != nullptr && waiter.wish == Wish::kArena && state->phase == StatePhase::kQueued) {
    Refuse(waiter.connection, waiter.request_id, NoRoomFor(*state, now_ns, /*has_waited=*/true));
    return GiveUpArena(*state, now_ns);
  }
  if (state == nullptr) {
    return Refuse(waiter.connection, waiter.request_id,
                  Error{Code::kUnavailable, "wait for a state: it has gone meanwhile"});
  }
  if (waiter.wish == Wish::kEvict) {
    return Reply(
        waiter.connection, waiter.request_id,
        wire::EvictReply{Info(*state, now_ns), /*freed=*/false, LeasesOn(state->id, peer, now_ns)});
  }
  if (queue_.contains(state->id)) {
    Error late = NoRoomFor(*state, now_ns, /*has_waited=*/true);
    late.message =
        Format("wait for '%s': the deadline passed at place %u of the queue: ", state->name.c_str(),
               QueuePlace(state->id)) +
        late.message + EarlierText(*state);
    return Refuse(waiter.connection, waiter.request_id, late);
  }
  Refuse(waiter.connection, waiter.request_id,
         Error{Code::kUnavailable,
               Format("wait for '%s': the deadline passed while it was %s, %llu of %llu bytes "
                      "were done; the load goes on, wait longer",
                      state->name.c_str(), wire::Name(state->phase), Ull(state->bytes_done),
                      Ull(state->arena_bytes)) +
                   EarlierText(*state)});
  // Whoever waited in vain will ask again: the load goes on for them.
  state->cancelled_when_unwanted = false;
}

void NodeState::TellPlaces(std::int64_t now_ns) {
  std::set<StateId> moved;
  for (const Waiter& waiter : waiters_) {
    if (!waiter.state || waiter.told_ns == 0 || !queue_.contains(*waiter.state)) continue;
    if (waiter.told_place != QueuePlace(*waiter.state)) moved.insert(*waiter.state);
  }
  for (const StateId id : moved) TellProgress(*FindById(id), now_ns);
}

void NodeState::TellProgress(State& state, std::int64_t now_ns) {
  for (Waiter& waiter : waiters_) {
    const bool listens =
        waiter.wish == Wish::kLoad || (waiter.wish == Wish::kAttach && waiter.attach.progress);
    if (waiter.state != state.id || !listens) continue;
    if (waiter.told_ns != 0 && now_ns - waiter.told_ns < limits_.progress_ns) continue;
    waiter.told_ns = now_ns;
    waiter.told_place = QueuePlace(state.id);
    Reply(waiter.connection, waiter.request_id, wire::LoadProgress{Info(state, now_ns)});
  }
}

}  // namespace sticky::daemon
