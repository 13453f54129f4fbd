#include "flatbuffers/wire_socket.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/text.h"
#include "flatbuffers/wire_codec.h"

namespace sticky::wire {
namespace {

static_assert(kSocketPathBytesMax + 1 == sizeof(sockaddr_un::sun_path));

constexpr std::size_t kControlBytes = CMSG_SPACE(kFdsPerFrameMax * sizeof(int));

Error PeerClosed(const char* what) {
  return Error{Code::kUnavailable, std::string(what) + ": the peer has closed the connection",
               EPIPE};
}

Error DeadlinePassed(const char* what) {
  return Error{Code::kUnavailable, std::string(what) + ": no answer before the deadline",
               ETIMEDOUT};
}

// Waits until `events` or a hang-up; the socket call that follows says which.
Status Wait(int socket, short events, Deadline deadline, const char* what) {
  for (;;) {
    pollfd entry{socket, events, 0};
    const int ready = ::poll(&entry, 1, deadline.left_ms());
    if (ready > 0) return Ok{};
    if (ready == 0) return DeadlinePassed(what);
    if (errno != EINTR) return ErrnoError(std::string(what) + ": poll", errno);
    if (deadline.passed()) return DeadlinePassed(what);
  }
}

Error ConnectError(const std::string& path, int errno_value) {
  const std::string what = "connect to stickyd at '" + Escape(path) + "'";
  switch (errno_value) {
    case ENOENT:
    case ENOTDIR:
      return Error{Code::kUnavailable,
                   what +
                       ": nothing is there; start stickyd, or set STICKYINVOC_SOCKET to its "
                       "socket (a job with a private /tmp or /run does not see the node's)",
                   errno_value};
    case ECONNREFUSED:
      return Error{Code::kUnavailable, what + ": no daemon is listening; start stickyd",
                   errno_value};
    case EAGAIN:
      return Error{Code::kUnavailable,
                   what + ": it did not accept the connection before the deadline", ETIMEDOUT};
    case EPROTOTYPE:
      return Error{Code::kUnavailable, what + ": the socket there is not stickyd's", errno_value};
    default:
      return ErrnoError(what, errno_value);
  }
}

// connect(2) on a Unix socket cannot be polled for: while the backlog is full, a non-blocking one
// fails and a blocking one waits for as long as SO_SNDTIMEO says.
int ConnectWaiting(int socket, const sockaddr_un& address, Deadline deadline) {
  const int flags = ::fcntl(socket, F_GETFL);
  if (flags < 0 || ::fcntl(socket, F_SETFL, flags & ~O_NONBLOCK) != 0) return errno;
  int failure = EAGAIN;
  while (failure == EAGAIN || failure == EINTR) {
    const int left_ms = deadline.left_ms();
    if (left_ms == 0) return EAGAIN;
    const timeval timeout{left_ms / 1000, (left_ms % 1000) * suseconds_t{1000}};
    if (::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) != 0) return errno;
    const auto* raw = reinterpret_cast<const sockaddr*>(&address);
    failure = ::connect(socket, raw, sizeof address) == 0 ? 0 : errno;
  }
  if (failure == 0 && ::fcntl(socket, F_SETFL, flags) != 0) failure = errno;
  return failure;
}

// Whether the kernel's answer only means "not now".
bool WouldBlock(int errno_value) { return errno_value == EAGAIN || errno_value == EWOULDBLOCK; }

bool PeerIsGone(int errno_value) {
  return errno_value == EPIPE || errno_value == ECONNRESET || errno_value == ENOTCONN;
}

// Takes every descriptor out of `header`, so that none is leaked whatever else is wrong.
std::vector<UniqueFd> TakeFds(msghdr& header) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    fds.reserve(fds.size() + count);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

Status CheckSocketPath(const std::string& path) {
  if (!path.empty() && path.size() <= kSocketPathBytesMax) return Ok{};
  return Error{Code::kInvalidArgument,
               "use socket path '" + Escape(path) +
                   Format("': it has %zu bytes, want 1 to %zu; set STICKYINVOC_SOCKET to a shorter "
                          "one",
                          path.size(), kSocketPathBytesMax)};
}

Result<std::string> DefaultSocketPath() {
  const auto read = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  std::string path = read("STICKYINVOC_SOCKET");
  if (path.empty()) {
    const std::string runtime = read("XDG_RUNTIME_DIR");
    path = (runtime.empty() ? "/run" : runtime) + "/stickyinvoc/stickyd.sock";
  }
  STICKY_TRY(CheckSocketPath(path));
  return path;
}

Result<UniqueFd> Connect(const std::string& path, Deadline deadline) {
  STICKY_TRY(CheckSocketPath(path));
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoError("make a socket", errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const auto* raw = reinterpret_cast<const sockaddr*>(&address);
  if (::connect(fd.get(), raw, sizeof address) == 0) return fd;
  int failure = errno;
  if (WouldBlock(failure) || failure == EINTR) {
    failure = ConnectWaiting(fd.get(), address, deadline);
  }
  if (failure != 0) return ConnectError(path, failure);
  return fd;
}

Result<bool> TrySend(int socket, std::span<const std::uint8_t> bytes, std::span<const int> fds) {
  if (bytes.empty() || bytes.size() > kFrameBytesMax || fds.size() > kFdsPerFrameMax) {
    return Error{Code::kInvalidArgument,
                 Format("send frame: %zu bytes with %zu descriptors, want 1 to %u bytes with at "
                        "most %u",
                        bytes.size(), fds.size(), kFrameBytesMax, kFdsPerFrameMax)};
  }
  iovec part{const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[kControlBytes];
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    std::memset(control, 0, header.msg_controllen);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  for (;;) {
    if (::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
    if (WouldBlock(errno)) return false;
    if (PeerIsGone(errno)) return PeerClosed("send frame");
    // Too many descriptors of this user are on their way to receivers that do not read.
    if (errno == ETOOMANYREFS) {
      return Error{Code::kUnavailable, "send frame: too many descriptors in flight", errno};
    }
    if (errno != EINTR) return ErrnoError("send frame", errno);
  }
}

Status SendFrame(int socket, std::span<const std::uint8_t> bytes, std::span<const int> fds,
                 Deadline deadline) {
  for (;;) {
    STICKY_ASSIGN(const bool sent, TrySend(socket, bytes, fds));
    if (sent) return Ok{};
    STICKY_TRY(Wait(socket, POLLOUT, deadline, "send frame"));
  }
}

Result<bool> TryReceiveInto(int socket, Rights rights, Frame& frame) {
  // Not cleared first: a small frame should cost what a small frame costs.
  const auto buffer = std::make_unique_for_overwrite<std::uint8_t[]>(kFrameBytesMax);
  alignas(cmsghdr) char control[kControlBytes];
  iovec part{buffer.get(), kFrameBytesMax};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (rights == Rights::kTake) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
  ssize_t size = -1;
  do {
    size = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && WouldBlock(errno)) return false;
  if (size < 0 && PeerIsGone(errno)) return PeerClosed("receive frame");
  if (size < 0) return ErrnoError("receive frame", errno);

  frame.fds = TakeFds(header);
  const bool are_fewer = (header.msg_flags & MSG_CTRUNC) != 0;
  frame.rights_refused = are_fewer && rights == Rights::kRefuse;
  if ((header.msg_flags & MSG_TRUNC) != 0) {
    return Error{Code::kCorrupt,
                 Format("receive frame: it is longer than %u bytes", kFrameBytesMax)};
  }
  if (are_fewer && rights == Rights::kTake) {
    return Error{Code::kCorrupt,
                 "receive frame: not all of its descriptors arrived; is this process at its limit "
                 "of open files (ulimit -n)?"};
  }
  // Also what a frame of no bytes looks like: both end the conversation.
  if (size == 0) return PeerClosed("receive frame");
  frame.bytes.assign(buffer.get(), buffer.get() + size);
  return true;
}

Result<std::optional<Frame>> TryReceive(int socket) {
  Frame frame;
  STICKY_ASSIGN(const bool is_there, TryReceiveInto(socket, Rights::kTake, frame));
  if (!is_there) return std::optional<Frame>();
  return std::optional<Frame>(std::move(frame));
}

Result<Frame> ReceiveFrame(int socket, Deadline deadline) {
  for (;;) {
    // The answer is hardly ever there yet, so waiting comes first.
    STICKY_TRY(Wait(socket, POLLIN, deadline, "receive frame"));
    STICKY_ASSIGN(std::optional<Frame> frame, TryReceive(socket));
    if (frame.has_value()) return std::move(*frame);
  }
}

}  // namespace sticky::wire
