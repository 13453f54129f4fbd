// LineBudget: how many lines clients can make a daemon log. A flood of bad clients must not fill a
// node's disk; what was left out is counted and told.
//
// Thread: loop thread only.

#ifndef STICKY_DAEMON_CORE_LINE_BUDGET_H_
#define STICKY_DAEMON_CORE_LINE_BUDGET_H_

#include <cstdint>

namespace sticky::daemon {

class LineBudget {
 public:
  static constexpr std::int64_t kWindowNs = 10'000'000'000;
  static constexpr std::uint32_t kLinesMax = 100;  // in one window

  struct Verdict {
    bool allowed = false;
    std::uint64_t left_out = 0;  // to be told first: lines that were not allowed in the last window
  };

  Verdict Ask(std::int64_t now_ns) {
    Verdict verdict;
    if (now_ns - window_ns_ >= kWindowNs) {
      verdict.left_out = left_out_;
      left_out_ = 0;
      count_ = 0;
      window_ns_ = now_ns;
    }
    verdict.allowed = count_ < kLinesMax;
    if (verdict.allowed) ++count_;
    if (!verdict.allowed) ++left_out_;
    return verdict;
  }

 private:
  std::int64_t window_ns_ = 0;  // when the window began
  std::uint32_t count_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_CORE_LINE_BUDGET_H_
