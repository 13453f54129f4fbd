#include "daemon/core/eviction.h"

#include <algorithm>
#include <tuple>

namespace sticky::daemon {

std::vector<StateId> ChooseVictims(std::vector<Candidate> candidates, std::uint64_t need_bytes) {
  const auto order = [](const Candidate& a, const Candidate& b) {
    return std::tuple(a.priority, a.used_ns, b.arena_bytes, a.id) <
           std::tuple(b.priority, b.used_ns, a.arena_bytes, b.id);
  };
  std::sort(candidates.begin(), candidates.end(), order);
  std::uint64_t freed_bytes = 0;
  std::size_t count = 0;
  while (count < candidates.size() && freed_bytes < need_bytes) {
    freed_bytes += candidates[count++].arena_bytes;
  }
  if (freed_bytes < need_bytes) return {};
  candidates.resize(count);
  // Small ones were taken before a large one made up for them: the best of them may stay.
  std::vector<StateId> victims;
  for (auto it = candidates.rbegin(); it != candidates.rend(); ++it) {
    if (freed_bytes - it->arena_bytes >= need_bytes) {
      freed_bytes -= it->arena_bytes;
    } else {
      victims.push_back(it->id);
    }
  }
  std::reverse(victims.begin(), victims.end());
  return victims;
}

}  // namespace sticky::daemon
