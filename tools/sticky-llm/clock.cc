#include "tools/sticky-llm/clock.h"

#include <cmath>
#include <cstdlib>

#include "base/deadline.h"

namespace sticky::llm {
namespace {

// Microseconds are as fine as a process start can be told.
double Ms(std::int64_t ns) { return std::round(static_cast<double>(ns) / 1e3) / 1e3; }

}  // namespace

Clock::Clock() : started_ns_(MonotonicNs()) {
  const char* const text = std::getenv("STICKYINVOC_EXEC_NS");
  if (text == nullptr) return;
  const std::int64_t exec_ns = std::strtoll(text, nullptr, 10);
  if (exec_ns <= 0 || exec_ns > started_ns_) return;
  started_ns_ = exec_ns;
  from_exec_ = true;
}

void Clock::Attached() {
  if (!attached_ns_) attached_ns_ = MonotonicNs();
}

void Clock::FirstToken() {
  if (!first_token_ns_) first_token_ns_ = MonotonicNs();
}

nlohmann::ordered_json Clock::ToJson() const {
  const auto since = [&](const std::optional<std::int64_t>& at) -> nlohmann::ordered_json {
    if (!at) return nullptr;
    return Ms(*at - started_ns_);
  };
  return {{"counted_from", from_exec_ ? "exec" : "main"},
          {"attached_ms", since(attached_ns_)},
          {"first_token_ms", since(first_token_ns_)},
          {"total_ms", Ms(MonotonicNs() - started_ns_)}};
}

}  // namespace sticky::llm
