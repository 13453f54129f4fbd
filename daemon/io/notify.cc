#include "daemon/io/notify.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace sticky::daemon {
namespace {

bool ForThisProcess(const char* pid_variable) {
  const char* const pid = std::getenv(pid_variable);
  return pid == nullptr || std::strtol(pid, nullptr, 10) == ::getpid();
}

}  // namespace

void Notify(const std::string& lines) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  if (path == nullptr || path[0] == '\0' || std::strlen(path) >= sizeof address.sun_path) return;
  const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return;
  address.sun_family = AF_UNIX;
  const std::size_t length = std::strlen(path);
  std::memcpy(address.sun_path, path, length);
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // an abstract socket
  // Whoever does not listen is not told; there is nothing to be done about it.
  static_cast<void>(::sendto(fd.get(), lines.data(), lines.size(), MSG_NOSIGNAL,
                             reinterpret_cast<const sockaddr*>(&address),
                             static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length)));
}

std::uint64_t WatchdogMs() {
  const char* const usec = std::getenv("WATCHDOG_USEC");
  if (usec == nullptr || !ForThisProcess("WATCHDOG_PID")) return 0;
  const std::uint64_t ms = std::strtoull(usec, nullptr, 10) / 1000;
  return ms == 0 ? 0 : std::max<std::uint64_t>(ms / 3, 1);  // three chances before it is too late
}

int ListenFdCount() {
  const char* const count = std::getenv("LISTEN_FDS");
  if (count == nullptr || std::getenv("LISTEN_PID") == nullptr || !ForThisProcess("LISTEN_PID")) {
    return 0;
  }
  constexpr long kMost = 16;
  return static_cast<int>(std::clamp(std::strtol(count, nullptr, 10), 0L, kMost));
}

}  // namespace sticky::daemon
