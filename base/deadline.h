// Deadline: a moment on the monotonic clock after which a wait gives up.
//
// Thread: any thread.

#ifndef STICKY_BASE_DEADLINE_H_
#define STICKY_BASE_DEADLINE_H_

#include <cstdint>
#include <limits>

#include <time.h>

namespace sticky {

// Nanoseconds on CLOCK_MONOTONIC.
inline std::int64_t MonotonicNs() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// Milliseconds since the epoch, for dates that people read.
inline std::int64_t WallMs() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

class Deadline {
 public:
  static Deadline AfterMs(std::int64_t ms) { return Deadline(MonotonicNs() + ms * 1'000'000); }

  bool passed() const { return MonotonicNs() >= at_ns_; }
  std::int64_t at_ns() const { return at_ns_; }

  // Whole milliseconds left, rounded up, for poll(2); 0 when passed.
  int left_ms() const {
    const std::int64_t left_ns = at_ns_ - MonotonicNs();
    if (left_ns <= 0) return 0;
    const std::int64_t ms = (left_ns + 999'999) / 1'000'000;
    constexpr std::int64_t kMax = std::numeric_limits<int>::max();
    return static_cast<int>(ms < kMax ? ms : kMax);
  }

 private:
  explicit Deadline(std::int64_t at_ns) : at_ns_(at_ns) {}
  std::int64_t at_ns_;
};

}  // namespace sticky

#endif  // STICKY_BASE_DEADLINE_H_
