#include "tools/stickyctl/signals.h"

#include <cerrno>
#include <iterator>

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/text.h"

namespace sticky::stickyctl {

Result<UniqueFd> SignalsAsDescriptor(std::span<const int> numbers) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : numbers) {
    struct sigaction action {};
    const bool ignored = ::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
    if (!ignored) ::sigaddset(&set, number);
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): stickyctl has one thread.
  if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return ErrnoError("block signals", errno);
  UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return ErrnoError("wait for signals", errno);
  return fd;
}

std::optional<int> TakeSignal(const UniqueFd& signals) {
  signalfd_siginfo info{};
  if (::read(signals.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

bool SignalComesFirst(const UniqueFd& signals, int other, int timeout_ms) {
  pollfd ends[] = {{signals.get(), POLLIN, 0}, {other, POLLIN, 0}};
  while (::poll(ends, std::size(ends), timeout_ms) < 0 && errno == EINTR) {
  }
  return ends[0].revents != 0;
}

}  // namespace sticky::stickyctl
