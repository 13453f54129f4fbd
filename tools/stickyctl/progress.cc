#include "tools/stickyctl/progress.h"

#include <algorithm>
#include <cstdio>

#include <unistd.h>

#include "base/deadline.h"
#include "base/text.h"

namespace sticky::tools {
namespace {

constexpr int kBarWidth = 30;
constexpr std::int64_t kLineNs = 1'000'000'000;  // a log gets at most one line a second

}  // namespace

Progress::Progress() : terminal_(::isatty(STDERR_FILENO) == 1), started_ns_(MonotonicNs()) {}

Progress::~Progress() {
  if (bar_shown_) std::fputc('\n', stderr);
}

void Progress::Show(const wire::StateInfo& state) {
  if (state.arena_bytes == 0) return;
  const std::int64_t now_ns = MonotonicNs();
  const double share =
      static_cast<double>(state.bytes_done) / static_cast<double>(state.arena_bytes);
  const double seconds = static_cast<double>(now_ns - started_ns_) / 1e9;
  const double rate = seconds > 0 ? static_cast<double>(state.bytes_done) / seconds : 0;
  const double left =
      rate > 0 ? static_cast<double>(state.arena_bytes - state.bytes_done) / rate : 0;
  const std::string facts =
      Format("%3.0f%% %s of %s, %s/s, %.0f s left", 100 * share,
             ByteCount(state.bytes_done).c_str(), ByteCount(state.arena_bytes).c_str(),
             ByteCount(static_cast<std::uint64_t>(rate)).c_str(), left);
  if (terminal_) {
    const auto full = static_cast<std::size_t>(share * kBarWidth);
    const std::string bar = std::string(full, '#') + std::string(kBarWidth - full, '.');
    std::fprintf(stderr, "\r%s [%s] %s\033[K", Escape(state.name).c_str(), bar.c_str(),
                 facts.c_str());
    std::fflush(stderr);
    bar_shown_ = true;
    return;
  }
  const int tenth = static_cast<int>(share * 10);
  if (shown_tenth_ == tenth || (shown_ns_ != 0 && now_ns - shown_ns_ < kLineNs)) return;
  shown_tenth_ = tenth;
  shown_ns_ = now_ns;
  std::fprintf(stderr, "load %s: %s\n", Escape(state.name).c_str(), facts.c_str());
}

}  // namespace sticky::tools
