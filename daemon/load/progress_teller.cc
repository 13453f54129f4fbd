#include "daemon/load/progress_teller.h"

#include <algorithm>

#include "base/deadline.h"

namespace sticky::load {

void ProgressTeller::Present(std::uint64_t more_bytes) {
  const std::scoped_lock lock(mutex_);
  present_ += more_bytes;
  TellSometimes();
}

void ProgressTeller::Filled(std::uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  filled_ = bytes;
  present_ = std::max(present_, filled_);
  TellSometimes();
}

void ProgressTeller::Checked(std::uint64_t more_bytes) {
  const std::scoped_lock lock(mutex_);
  checked_ += more_bytes;
  TellSometimes();
}

void ProgressTeller::TellSometimes() {
  const std::int64_t now_ns = MonotonicNs();
  if (now_ns - told_ns_ < options_.interval_ns) return;
  told_ns_ = now_ns;
  const double work = static_cast<double>(options_.memory_bytes + options_.checked_bytes);
  const double share = static_cast<double>(filled_ + checked_) / work;
  const auto done = static_cast<std::uint64_t>(share * static_cast<double>(options_.memory_bytes));
  tell_(std::min(done, options_.memory_bytes), present_);
}

}  // namespace sticky::load
