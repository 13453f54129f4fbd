#include "tests/sim/model.h"

#include <algorithm>

namespace sticky::daemon::sim {

const char* Name(Invariant invariant) {
  switch (invariant) {
    case Invariant::kUsedBytes:
      return "used bytes are the sum of what the outside has";
    case Invariant::kNotInUse:
      return "nothing in use is freed";
    case Invariant::kWithinBudget:
      return "nothing is allocated past a budget";
    case Invariant::kOneAnswer:
      return "each request is answered exactly once, and a load fails once";
    case Invariant::kInTime:
      return "nothing is answered later than its deadline and a tick";
    case Invariant::kDeadPeer:
      return "a dead peer holds nothing and is told nothing";
    case Invariant::kPublishedOnly:
      return "only what is published is handed out, and never writable";
    case Invariant::kMayUse:
      return "nobody is handed what is not for him";
    case Invariant::kKeptRecord:
      return "the keeper has what the daemon would say";
    case Invariant::kToldIsKept:
      return "nobody is told what the keeper does not know yet";
    case Invariant::kTakenOver:
      return "the next daemon has every kept state as it was";
    case Invariant::kWithinLimits:
      return "no table grows past its limit";
    case Invariant::kNothingLeft:
      return "when everybody has gone, nothing is left";
  }
  return "?";
}

Counts& Counts::operator+=(const Counts& other) {
  events += other.events;
  published += other.published;
  attached += other.attached;
  freed += other.freed;
  restarts += other.restarts;
  taken_over += other.taken_over;
  builds += other.builds;
  return *this;
}

// So small that every limit is met again and again.
Limits TightLimits() {
  Limits limits;
  limits.budget_bytes = 1000;
  limits.lease_count_max = 20;
  limits.state_count_max = 7;
  limits.load_count_max = 3;
  limits.queue_count_max = 4;
  limits.waiter_count_max = 12;
  limits.connection_waiter_count_max = 4;
  limits.failed_count_max = 4;
  limits.event_count_max = 64;
  limits.user = {/*connection_count_max=*/4, /*load_count_max=*/3, /*memory_bytes=*/500,
                 /*lease_count_max=*/8};
  limits.plan_ns = limits.fill_stall_ns = 2000 * kMs;
  limits.failed_kept_ns = 5000 * kMs;
  limits.build_ns = 6000 * kMs;
  limits.room_ns = 1500 * kMs;
  limits.hold_again_ns = 3000 * kMs;
  return limits;
}

void Model::Fail(Invariant invariant, std::string text) {
  if (!violation) violation = Violation{invariant, std::move(text), counts.events};
}

std::uint64_t Model::UsedBytes() const {
  std::uint64_t sum = foreign_bytes;
  for (const auto& [id, one] : held) sum += one.bytes;
  for (const auto& [id, bytes] : dying) sum += bytes;
  return sum;
}

bool Model::IsMapped(MemoryId id, bool writable_only) const {
  return std::any_of(mappings.begin(), mappings.end(), [&](const Mapping& mapping) {
    return mapping.memory == id && (mapping.is_writable || !writable_only);
  });
}

const Held* Model::FindHeld(StateId id) const {
  const auto found = held.find(id);
  return found == held.end() ? nullptr : &found->second;
}

}  // namespace sticky::daemon::sim
