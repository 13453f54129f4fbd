// Which states go when memory is short: lowest priority first, then the one that was not used for
// longest, then the largest. States in use, pinned or awaited are no candidates in the first place.
//
// Thread: any thread (pure functions).

#ifndef STICKY_DAEMON_CORE_EVICTION_H_
#define STICKY_DAEMON_CORE_EVICTION_H_

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace sticky::daemon {

struct Candidate {
  StateId id{0};
  std::int32_t priority = 0;
  std::int64_t used_ns = 0;  // when it was used last
  std::uint64_t arena_bytes = 0;
};

// The fewest of `candidates`, in the order above, that free `need_bytes` together: one that turns
// out not to be needed is left alone. Empty when all of them together do not, or none is needed.
std::vector<StateId> ChooseVictims(std::vector<Candidate> candidates, std::uint64_t need_bytes);

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_CORE_EVICTION_H_
