// Restarts: whether a daemon that has ended is started again, and when.
//
// Thread: any thread (plain values).
// Source: docs/reliability.md, "The keeper".

#ifndef STICKY_DAEMON_KEEPER_RESTARTS_H_
#define STICKY_DAEMON_KEEPER_RESTARTS_H_

#include <algorithm>
#include <cstdint>

#include "base/exit_codes.h"

namespace sticky::keeper {

// How a daemon has ended.
struct End {
  bool was_killed = false;  // by a signal
  int code = 0;             // of its exit, or the signal's number
  bool was_ready = false;   // it had told that it was ready
  std::int64_t lived_ms = 0;
};

class Restarts {
 public:
  // A daemon that lived so long ended by itself, whatever happened before.
  static constexpr std::int64_t kForgivenMs = 60'000;
  static constexpr std::int64_t kFirstDelayMs = 50;  // doubled each time

  Restarts(std::uint32_t count_max, std::int64_t delay_ms_max)
      : count_max_(count_max), delay_ms_max_(delay_ms_max) {}

  // Milliseconds until the next daemon is to be started; -1: there is none, and the keeper ends as
  // the daemon did. It was told to end (exit 0), it cannot serve at all (an exit before it was ever
  // ready), or the most restarts in a row have been made.
  std::int64_t DelayAfter(const End& end) {
    if (!end.was_killed && end.code == kExitOk) return -1;
    if (!end.was_killed && end.code == kExitStartAgain) return 0;
    if (!end.was_killed && !ever_ready_ && !end.was_ready) return -1;
    ever_ready_ = ever_ready_ || end.was_ready;
    if (end.lived_ms >= kForgivenMs) count_ = 0;
    if (count_ >= count_max_) return -1;
    const std::uint32_t doublings = std::min(count_++, 30u);
    return std::min(kFirstDelayMs << doublings, delay_ms_max_);
  }
  std::uint32_t count() const { return count_; }

 private:
  const std::uint32_t count_max_;
  const std::int64_t delay_ms_max_;
  std::uint32_t count_ = 0;  // in a row
  bool ever_ready_ = false;
};

}  // namespace sticky::keeper

#endif  // STICKY_DAEMON_KEEPER_RESTARTS_H_
