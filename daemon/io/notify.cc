#include "daemon/io/notify.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text.h"

namespace sticky::daemon {

bool IsForUs(const char* pid_variable) {
  const char* const pid = std::getenv(pid_variable);
  return pid == nullptr || std::strtol(pid, nullptr, 10) == ::getpid();
}

Result<UniqueFd> ConnectToManager() {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || path[0] == '\0') {
    return Error{Code::kNotFound, "tell the service manager: there is none ($NOTIFY_SOCKET)"};
  }
  const std::string doing = "tell the service manager at '" + Escape(path) + "'";
  sockaddr_un address{};
  const std::size_t length = std::strlen(path);
  if (length >= sizeof address.sun_path) {
    return Error{Code::kInvalidArgument, doing + ": the path is too long"};
  }
  UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoError(doing, errno);
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path, length);
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // an abstract socket
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length)) != 0) {
    return ErrnoError(doing, errno);
  }
  return fd;
}

void Notify(const std::string& lines) {
  const Result<UniqueFd> manager = ConnectToManager();
  if (!manager.ok()) return;
  // Whoever does not listen is not told; there is nothing to be done about it.
  static_cast<void>(::send(manager.value().get(), lines.data(), lines.size(), MSG_NOSIGNAL));
}

std::uint64_t WatchdogMs() {
  const char* const usec = std::getenv("WATCHDOG_USEC");
  if (usec == nullptr || !IsForUs("WATCHDOG_PID")) return 0;
  const std::uint64_t ms = std::strtoull(usec, nullptr, 10) / 1000;
  return ms == 0 ? 0 : std::max<std::uint64_t>(ms / 3, 1);  // three chances before it is too late
}

}  // namespace sticky::daemon
