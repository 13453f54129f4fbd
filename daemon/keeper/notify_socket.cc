#include "daemon/keeper/notify_socket.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace sticky::keeper {
namespace {

constexpr std::size_t kFdsPerMessageMax = 253;  // the kernel's SCM_MAX_FD

// What came beside a message.
struct Beside {
  pid_t sender = -1;
  std::array<int, kFdsPerMessageMax> fds{};
  std::size_t fd_count = 0;
};

Beside ReadBeside(msghdr& header) {
  Beside out;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET) continue;
    if (part->cmsg_type == SCM_CREDENTIALS) {
      ucred who{};
      std::memcpy(&who, CMSG_DATA(part), sizeof who);
      out.sender = who.pid;
    }
    if (part->cmsg_type == SCM_RIGHTS) {
      out.fd_count = std::min((part->cmsg_len - CMSG_LEN(0)) / sizeof(int), out.fds.size());
      std::memcpy(out.fds.data(), CMSG_DATA(part), out.fd_count * sizeof(int));
    }
  }
  return out;
}

void CloseAll(const Beside& beside) {
  for (std::size_t i = 0; i < beside.fd_count; ++i) ::close(beside.fds[i]);
}

}  // namespace

NotifySocket::~NotifySocket() {
  if (fd_ >= 0) ::close(fd_);
}

bool NotifySocket::Open() {
  fd_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd_ < 0) return false;
  const int yes = 1;
  if (::setsockopt(fd_, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) != 0) return false;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  socklen_t length = offsetof(sockaddr_un, sun_path);  // no path: the kernel chooses
  if (::bind(fd_, reinterpret_cast<const sockaddr*>(&name), length) != 0) return false;
  length = sizeof name;
  if (::getsockname(fd_, reinterpret_cast<sockaddr*>(&name), &length) != 0) return false;
  // The name begins with NUL and has only hexadecimal digits after it.
  const std::size_t bytes = length - offsetof(sockaddr_un, sun_path);
  if (bytes < 2 || bytes >= address_.size()) return false;
  address_[0] = '@';
  std::memcpy(&address_[1], &name.sun_path[1], bytes - 1);
  return true;
}

int NotifySocket::ReadOne(pid_t daemon, FdStore& store) {
  std::array<char, kMessageBytesMax> text{};
  alignas(cmsghdr)
      std::array<char, CMSG_SPACE(kFdsPerMessageMax * sizeof(int)) + CMSG_SPACE(sizeof(ucred))>
          control{};
  iovec part{text.data(), text.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t length = ::recvmsg(fd_, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (length < 0) return errno == EINTR ? 0 : -1;
  const Beside beside = ReadBeside(header);
  const bool is_whole = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  if (beside.sender != daemon || !is_whole) {
    CloseAll(beside);
    return 0;
  }
  const Message message = Parse({text.data(), static_cast<std::size_t>(length)});
  if (message.remove && !message.has_bad_name) store.Remove(message.name);
  if (message.store && !message.has_bad_name) {
    if (!store.Add(message.name, {beside.fds.data(), beside.fd_count})) {
      std::fprintf(
          stderr, "sticky-keeper: '%.*s' is not kept: %zu descriptors are, the most is %zu\n",
          static_cast<int>(message.name.size()), message.name.data(), store.size(), kKeptFdsMax);
    }
  } else {
    CloseAll(beside);  // of a barrier too: that is the answer
  }
  return message.ready ? 1 : 0;
}

bool NotifySocket::Read(pid_t daemon, FdStore& store) {
  bool is_ready = false;
  for (int found; (found = ReadOne(daemon, store)) >= 0;) is_ready = is_ready || found == 1;
  return is_ready;
}

}  // namespace sticky::keeper
