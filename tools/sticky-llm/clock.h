// The three clocks of an invocation: how long until it was attached, until its first token (or
// verdict), and in all.
//
// Time counts from exec when the launcher says when that was: STICKYINVOC_EXEC_NS, in nanoseconds
// of CLOCK_MONOTONIC. Without it, it counts from main, and says so: what the dynamic linker did
// before is then missing.
//
// Thread: one thread at a time.

#ifndef STICKY_TOOLS_STICKY_LLM_CLOCK_H_
#define STICKY_TOOLS_STICKY_LLM_CLOCK_H_

#include <cstdint>
#include <optional>

#include <nlohmann/json.hpp>

namespace sticky::llm {

class Clock {
 public:
  Clock();
  void Attached();    // the first call counts
  void FirstToken();  // the first call counts

  // {"counted_from", "attached_ms", "first_token_ms", "total_ms"}; null for what did not happen.
  nlohmann::ordered_json ToJson() const;

 private:
  std::int64_t started_ns_;
  bool from_exec_ = false;
  std::optional<std::int64_t> attached_ns_;
  std::optional<std::int64_t> first_token_ns_;
};

}  // namespace sticky::llm

#endif  // STICKY_TOOLS_STICKY_LLM_CLOCK_H_
