// Strong types for the numbers that must not be mixed up.
//
// Thread: any thread.

#ifndef STICKY_BASE_IDS_H_
#define STICKY_BASE_IDS_H_

#include <compare>
#include <cstdint>

namespace sticky {

struct LeaseId {
  std::uint64_t value;
  auto operator<=>(const LeaseId&) const = default;
};
struct StateId {
  std::uint64_t value;
  auto operator<=>(const StateId&) const = default;
};
struct ConnectionId {
  std::uint64_t value;
  auto operator<=>(const ConnectionId&) const = default;
};
struct LoadId {
  std::uint64_t value;
  auto operator<=>(const LoadId&) const = default;
};

}  // namespace sticky

#endif  // STICKY_BASE_IDS_H_
