#include "daemon/io/log.h"

#include <cstdlib>

#include <time.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/text.h"

namespace sticky::daemon {

Logger::Logger(Log::Level most) : most_(most), journal_(std::getenv("JOURNAL_STREAM") != nullptr) {}

void Logger::Line(Log::Level level, const std::string& text) {
  if (level > most_) return;
  if (level == Log::Level::kWarning) {
    const LineBudget::Verdict verdict = warnings_.Ask(MonotonicNs());
    if (verdict.left_out > 0) {
      Write(level, Format("%llu more warnings were left out",
                          static_cast<unsigned long long>(verdict.left_out)));
    }
    if (!verdict.allowed) return;
  }
  Write(level, text);
}

void Logger::Write(Log::Level level, const std::string& text) const {
  static constexpr const char* kNames[] = {"error", "warning", "info", "debug"};
  static constexpr int kPriorities[] = {3, 4, 6, 7};  // syslog(3)
  const auto index = static_cast<std::size_t>(level);
  std::string line;
  if (journal_) {
    line = Format("<%d>%s\n", kPriorities[index], text.c_str());
  } else {
    char stamp[32];
    const time_t now = ::time(nullptr);
    struct tm parts {};
    ::gmtime_r(&now, &parts);
    ::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &parts);
    line = Format("%s stickyd %s: %s\n", stamp, kNames[index], text.c_str());
  }
  // A log that cannot be written must not stop the daemon.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace sticky::daemon
