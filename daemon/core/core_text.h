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

// What to ask for, in the words of each who may read a message: the command line, Python and C.
inline constexpr const char* kReplaceWords =
    "--replace (placement=\"replace\" in Python, STI_REPLACE in C)";
inline constexpr const char* kInPlaceWords =
    "--in-place (placement=\"in_place\" in Python, STI_IN_PLACE in C)";
inline constexpr const char* kWaitWords = "--wait (wait= in Python, wait_ms in C)";

// From the request to the end of the load, without the time in the queue; 0 until it has ended.
inline std::int64_t LoadNs(const State& state) {
  return state.ended_ns != 0 ? state.ended_ns - state.asked_ns - state.queued_ns : 0;
}

// "load 'm': " or "build 'm': ": how a message about what becomes of a state begins.
inline std::string Doing(const State& state) {
  return (state.builder ? "build '" : "load '") + state.name + "': ";
}

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_CORE_CORE_TEXT_H_
