// Small helpers that the files of daemon/core share.
//
// Thread: any thread.

#ifndef STICKY_DAEMON_CORE_CORE_TEXT_H_
#define STICKY_DAEMON_CORE_CORE_TEXT_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "daemon/core/state.h"

namespace sticky::daemon {

inline std::int64_t MsToNs(std::uint64_t ms) { return static_cast<std::int64_t>(ms) * 1'000'000; }

inline std::uint64_t NsToMs(std::int64_t ns) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(ns, 0)) / 1'000'000;
}

// For printf's %llu.
inline unsigned long long Ull(std::uint64_t value) { return value; }

// "load 'm': " or "build 'm': ": how a message about what becomes of a state begins.
inline std::string Doing(const State& state) {
  return (state.builder ? "build '" : "load '") + state.name + "': ";
}

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_CORE_CORE_TEXT_H_
