#include "daemon/io/listener.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/socket.h>

namespace sticky::daemon {
namespace {

constexpr int kAcceptsPerTurn = 64;

UniqueFd OpenReserve() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

// The supplementary groups that the peer had when it connected; at most the kernel's NGROUPS_MAX.
// Empty where the kernel does not tell them (before Linux 4.13): access by them is then refused.
std::vector<std::uint32_t> GroupsOf(int socket) {
  std::vector<gid_t> groups(32);
  for (;;) {
    socklen_t size_bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    const int failure = ::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size_bytes);
    const std::size_t count = size_bytes / sizeof(gid_t);
    if (failure != 0 && (errno != ERANGE || count <= groups.size())) return {};
    groups.resize(count);
    if (failure == 0) return {groups.begin(), groups.end()};
  }
}

}  // namespace

Listener::Listener(Loop&, int fd, Callback on_connection)
    : fd_(fd), on_connection_(std::move(on_connection)), reserve_(OpenReserve()) {}

Result<std::unique_ptr<Listener>> Listener::Create(Loop& loop, int fd, Callback on_connection) {
  std::unique_ptr<Listener> made(new Listener(loop, fd, std::move(on_connection)));
  Listener* const raw = made.get();
  STICKY_ASSIGN(made->poller_, Poller::Create(loop, fd, [raw](bool, bool) { raw->Accept(); }));
  return made;
}

void Listener::Accept() {
  for (int count = 0; count < kAcceptsPerTurn; ++count) {
    UniqueFd socket(::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (errno == EMFILE || errno == ENFILE) TurnOneAway();
      return;
    }
    ucred who{};
    socklen_t length = sizeof who;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &who, &length) != 0) continue;
    Peer peer;
    peer.pid = static_cast<std::uint64_t>(who.pid);
    peer.uid = who.uid;
    peer.gid = who.gid;
    peer.groups = GroupsOf(socket.get());
    on_connection_(std::move(socket), peer);
  }
}

// Without this, a connection that cannot be taken stays readable for ever and the loop spins. The
// peer sees EOF at once and can try again.
void Listener::TurnOneAway() {
  reserve_.Reset();
  UniqueFd(::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)).Reset();
  reserve_ = OpenReserve();  // after the peer is closed: it needs the same slot
}

}  // namespace sticky::daemon
