// Requests that wait: for a load, for a state to attach to, for an eviction.

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "daemon/core/node_state.h"

namespace sticky::daemon {

using wire::StatePhase;

bool NodeState::AddWaiter(const Waiter& waiter) {
  if (waiters_.size() >= limits_.waiter_count_max) {
    Refuse(waiter.connection, waiter.request_id,
           Error{Code::kUnavailable, Format("wait for a state: %u requests wait already, the limit",
                                            limits_.waiter_count_max)});
    return false;
  }
  waiters_.push_back(waiter);
  return true;
}

// The state is ready, failed or gone: everyone who waits for that gets an answer.
void NodeState::AnswerWaiters(StateId id, std::int64_t now_ns) {
  std::vector<Waiter> ripe;
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    const State* const state = FindById(id);
    const bool evicted = state != nullptr && state->phase == StatePhase::kClosing;
    if (waiter.state != id || (waiter.wish == Wish::kEvict) != evicted) return false;
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
    } else if (waiter.wish == Wish::kLoad) {
      Reply(waiter.connection, waiter.request_id,
            wire::LoadReply{Info(*state, now_ns), waiter.joined});
    } else {
      GrantAttach(waiter.connection, waiter.request_id, *state, waiter.attach, now_ns);
    }
  }
}

void NodeState::ExpireWaiters(std::int64_t now_ns) {
  std::vector<Waiter> late;
  std::erase_if(waiters_, [&](const Waiter& waiter) {
    if (now_ns < waiter.deadline_ns) return false;
    late.push_back(waiter);
    return true;
  });
  for (const Waiter& waiter : late) {
    State* const state = FindById(waiter.state);
    if (state == nullptr) {
      Refuse(waiter.connection, waiter.request_id,
             Error{Code::kUnavailable, "wait for a state: it has gone meanwhile"});
      continue;
    }
    if (waiter.wish == Wish::kEvict) {
      Reply(
          waiter.connection, waiter.request_id,
          wire::EvictReply{Info(*state, now_ns), /*freed=*/false, LeasesOn(waiter.state, now_ns)});
      continue;
    }
    Refuse(waiter.connection, waiter.request_id,
           Error{Code::kUnavailable,
                 Format("wait for '%s': the deadline passed while it was %s, %llu of %llu bytes "
                        "were done; wait longer",
                        state->name.c_str(), wire::Name(state->phase),
                        static_cast<unsigned long long>(state->bytes_done),
                        static_cast<unsigned long long>(state->arena_bytes))});
    // Whoever waited in vain will ask again: the load goes on for them.
    state->cancelled_when_unwanted = false;
  }
}

void NodeState::TellProgress(State& state, std::int64_t now_ns) {
  for (Waiter& waiter : waiters_) {
    if (waiter.state != state.id || waiter.wish != Wish::kLoad) continue;
    if (waiter.told_ns != 0 && now_ns - waiter.told_ns < limits_.progress_ns) continue;
    waiter.told_ns = now_ns;
    Reply(waiter.connection, waiter.request_id, wire::LoadProgress{Info(state, now_ns)});
  }
}

}  // namespace sticky::daemon
