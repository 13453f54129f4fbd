// Small helpers that the files of daemon/core share.
//
// Thread: any thread.

#ifndef STICKY_DAEMON_CORE_CORE_TEXT_H_
#define STICKY_DAEMON_CORE_CORE_TEXT_H_

#include <cstdint>

#include "flatbuffers/wire_codec.h"

namespace sticky::daemon {

inline bool IsLoading(wire::StatePhase phase) {
  return phase == wire::StatePhase::kPlanning || phase == wire::StatePhase::kFilling;
}

inline std::int64_t MsToNs(std::uint32_t ms) { return static_cast<std::int64_t>(ms) * 1'000'000; }

// For printf's %llu.
inline unsigned long long Ull(std::uint64_t value) { return value; }

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_CORE_CORE_TEXT_H_
