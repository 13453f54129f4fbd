#include "tools/stickyctl/progress.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "tools/stickyctl/render_text.h"

namespace sticky::stickyctl {
namespace {

constexpr std::int64_t kSecondNs = 1'000'000'000;
constexpr std::int64_t kLineEveryNs = 10 * kSecondNs;
constexpr std::size_t kBarCells = 24;

// A builder does not tell how far it is; what is counted comes at its commit.
bool IsBeingWritten(const wire::StateInfo& state) {
  return !state.builder.empty() && state.bytes_done == 0;
}

}  // namespace

Progress::Progress(Look look, std::function<void(const std::string&)> write)
    : look_(look), write_(std::move(write)) {}

// "1.20 GiB of 4.00 GiB, 812.00 MiB/s, 3.4 s left"
std::string Progress::Facts(const wire::StateInfo& state, std::int64_t now_ns) {
  if (state.queue_place > 0) return QueueText(state);
  if (state.phase != wire::StatePhase::kFilling) return wire::Name(state.phase);
  if (IsBeingWritten(state)) return ByteCount(state.arena_bytes) + " of memory, being filled";
  if (filling_since_ns_ < 0) {
    filling_since_ns_ = now_ns;
    bytes_then_ = state.bytes_done;
  }
  std::string facts = ByteCount(state.bytes_done) + " of " + ByteCount(state.arena_bytes);
  const double seconds = static_cast<double>(now_ns - filling_since_ns_) / kSecondNs;
  if (seconds <= 0 || state.bytes_done <= bytes_then_) return facts;
  const double rate = static_cast<double>(state.bytes_done - bytes_then_) / seconds;
  const std::uint64_t left = state.arena_bytes - std::min(state.bytes_done, state.arena_bytes);
  const double left_ms = static_cast<double>(left) / rate * 1000;
  return facts + ", " + ByteCount(static_cast<std::uint64_t>(rate)) + "/s, " +
         Duration(static_cast<std::uint64_t>(left_ms)) + " left";
}

std::string Progress::Bar(const wire::StateInfo& state, const std::string& facts) const {
  const double done = state.arena_bytes == 0 ? 0.0
                                             : static_cast<double>(state.bytes_done) /
                                                   static_cast<double>(state.arena_bytes);
  const auto cells = std::min(kBarCells, static_cast<std::size_t>(done * kBarCells));
  std::string line = Printable(state.name) + " [" + std::string(cells, '#') +
                     std::string(kBarCells - cells, '.') + "] " +
                     Format("%3.0f%% ", std::min(done, 1.0) * 100) + facts;
  // A line that wraps cannot be written over.
  const auto most = static_cast<std::size_t>(std::max(look_.columns - 1, 1));
  return std::string(FirstColumns(line, most));
}

void Progress::Show(const wire::StateInfo& state, std::int64_t now_ns) {
  const std::string facts = Facts(state, now_ns);
  if (look_.bar) {
    write_("\r" + Bar(state, facts) + "\x1b[K");  // and clear to the line's end
    bar_is_up_ = true;
    return;
  }
  const std::uint64_t tenth =
      state.arena_bytes == 0
          ? 0
          : static_cast<std::uint64_t>(10.0 * static_cast<double>(state.bytes_done) /
                                       static_cast<double>(state.arena_bytes));
  const int phase = static_cast<int>(state.phase);
  const bool is_first = line_ns_ < 0;
  const bool has_moved_up = state.queue_place > 0 && state.queue_place != place_;
  const bool has_news = is_first || has_moved_up || phase != phase_ || tenth > tenth_ ||
                        now_ns - line_ns_ >= kLineEveryNs;
  const bool is_too_soon = !is_first && !has_moved_up && now_ns - line_ns_ < kSecondNs;
  if (!has_news || is_too_soon) return;
  line_ns_ = now_ns;
  tenth_ = tenth;
  phase_ = phase;
  place_ = state.queue_place;
  is_whole_ = state.arena_bytes > 0 && state.bytes_done == state.arena_bytes;
  name_ = Printable(state.name);
  const std::string percent =
      state.phase == wire::StatePhase::kFilling && state.arena_bytes > 0 && !IsBeingWritten(state)
          ? Format("%.0f%%, ", 100.0 * static_cast<double>(state.bytes_done) /
                                   static_cast<double>(state.arena_bytes))
          : "";
  write_(std::string(look_.verb) + " '" + name_ + "': " + percent + facts + "\n");
}

void Progress::Done(std::uint64_t arena_bytes) {
  if (line_ns_ < 0 || is_whole_) return;
  is_whole_ = true;
  const std::string bytes = ByteCount(arena_bytes);
  write_(std::string(look_.verb) + " '" + name_ + "': 100%, " + bytes + " of " + bytes + "\n");
}

void Progress::End() {
  if (bar_is_up_) write_("\r\x1b[K");
  bar_is_up_ = false;
}

}  // namespace sticky::stickyctl
