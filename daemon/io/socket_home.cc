#include "daemon/io/socket_home.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text.h"
#include "flatbuffers/wire_socket.h"

namespace sticky::daemon {
namespace {

constexpr int kBacklog = 4096;         // the kernel cuts it to net.core.somaxconn
constexpr uid_t kOverflowUid = 65534;  // /proc/sys/kernel/overflowuid's default

Error Refuse(const std::string& what) { return Error{Code::kPermissionDenied, what}; }

std::string FolderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Whoever may rename a folder on the way can put another one there.
Status CheckAncestors(const std::string& folder) {
  char resolved[PATH_MAX];
  const std::string doing = "listen in '" + Escape(folder) + "'";
  if (::realpath(folder.c_str(), resolved) == nullptr) return ErrnoError(doing, errno);
  for (std::string at = FolderOf(resolved);; at = FolderOf(at)) {
    struct stat status {};
    if (::lstat(at.c_str(), &status) != 0) return ErrnoError(doing, errno);
    // In a user namespace, root outside of it has the overflow uid.
    const bool ours =
        status.st_uid == ::geteuid() || status.st_uid == 0 || status.st_uid == kOverflowUid;
    const bool open_to_others = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    if (!ours || (open_to_others && (status.st_mode & S_ISVTX) == 0)) {
      return Refuse(
          Format("%s: someone else could replace it, since '%s' belongs to uid %u with "
                 "mode %04o",
                 doing.c_str(), Escape(at).c_str(), status.st_uid, status.st_mode & 07777U));
    }
    if (at == "/") return Ok{};
  }
}

// Whether a daemon answers at `path`, one whose lock file someone removed; its pid, else 0.
pid_t LivePeer(const std::string& path) {
  // Connecting to a socket that someone listens on succeeds at once or, with a full backlog, fails
  // with EAGAIN; with nobody behind it, it is refused.
  constexpr std::int64_t kWaitMs = 200;
  const Result<UniqueFd> peer = wire::Connect(path, Deadline::AfterMs(kWaitMs));
  if (!peer.ok()) return peer.error().os_code == ETIMEDOUT ? -1 : 0;
  ucred who{};
  socklen_t length = sizeof who;
  if (::getsockopt(peer.value().get(), SOL_SOCKET, SO_PEERCRED, &who, &length) != 0) return -1;
  return who.pid;
}

Error AlreadyRunning(const std::string& path, const std::string& pid) {
  return Error{Code::kUnavailable, Format("listen at '%s': stickyd is already running, pid %s",
                                          Escape(path).c_str(), Escape(pid).c_str())};
}

Status CheckFolder(const std::string& folder) {
  const std::string doing = "listen in '" + Escape(folder) + "'";
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoError(doing + ": make the folder", errno);
  }
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0) return ErrnoError(doing, errno);
  if (!S_ISDIR(status.st_mode)) return Refuse(doing + ": it is a link or a file, not a folder");
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    return Refuse(Format("%s: it belongs to uid %u", doing.c_str(), status.st_uid));
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Refuse(
        Format("%s: others may write to it (mode %04o); use a folder of your own with "
               "mode 0700",
               doing.c_str(), status.st_mode & 07777U));
  }
  return CheckAncestors(folder);
}

}  // namespace

Result<std::unique_ptr<SocketHome>> SocketHome::Open(const std::string& path, mode_t mode,
                                                     Inherited& inherited) {
  std::unique_ptr<SocketHome> home(new SocketHome);
  home->path_ = path;
  home->mode_ = mode;
  if (inherited.socket.valid()) {
    STICKY_TRY(home->TakeInherited(std::move(inherited.socket)));
    return home;
  }
  STICKY_TRY(wire::CheckSocketPath(path));
  STICKY_TRY(CheckFolder(FolderOf(path)));
  STICKY_TRY(home->TakeLock());
  if (!home->TakeKept(inherited)) STICKY_TRY(home->Bind());
  return home;
}

Status SocketHome::TakeInherited(UniqueFd socket) {
  int kind = 0;
  socklen_t length = sizeof kind;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_TYPE, &kind, &length) != 0 ||
      kind != SOCK_SEQPACKET) {
    return Error{Code::kInvalidArgument,
                 "take over the service manager's socket: it is not a SOCK_SEQPACKET one "
                 "(ListenSequentialPacket=)"};
  }
  ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
  sockaddr_un address{};
  length = sizeof address;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
      address.sun_path[0] == '/') {
    path_ = address.sun_path;
  }
  listener_ = std::move(socket);
  inherited_ = true;
  return Ok{};
}

void SocketHome::Remember(const struct stat& file) {
  device_ = file.st_dev;
  inode_ = file.st_ino;
}

std::string SocketHome::kept_name() const {
  return Format("%sl%llx.%llx", kKeptPrefix, static_cast<unsigned long long>(device_),
                static_cast<unsigned long long>(inode_));
}

bool SocketHome::TakeKept(Inherited& inherited) {
  struct stat file {};
  if (::lstat(path_.c_str(), &file) != 0 || !S_ISSOCK(file.st_mode)) return false;
  Remember(file);
  const auto found = inherited.kept.find(kept_name());
  if (found == inherited.kept.end()) return false;
  listener_ = std::move(found->second.front());
  inherited.kept.erase(found);
  kept_ = true;
  return true;
}

Status SocketHome::TakeLock() {
  const std::string lock_path = path_ + ".lock";
  const std::string doing = "lock '" + Escape(lock_path) + "'";
  lock_.Reset(
      ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!lock_.valid()) return ErrnoError(doing, errno);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoError(doing, errno);
    char pid[32] = {};
    const ssize_t length = ::pread(lock_.get(), pid, sizeof pid - 1, 0);
    return AlreadyRunning(path_, length > 0 ? pid : "unknown");
  }
  const std::string pid = Format("%d", ::getpid());
  if (::ftruncate(lock_.get(), 0) != 0 ||
      ::pwrite(lock_.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return ErrnoError(doing + ": write our pid", errno);
  }
  return Ok{};
}

Status SocketHome::Bind() {
  const std::string doing = "listen at '" + Escape(path_) + "'";
  struct stat status {};
  if (::lstat(path_.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) {
      return Refuse(doing + ": something that is not a socket is there; move it away");
    }
    if (const pid_t live = LivePeer(path_); live != 0) {
      return AlreadyRunning(path_, live > 0 ? Format("%d", live) : "unknown");
    }
    // Under the lock and with nobody behind it, the socket file is what a dead daemon left.
    if (::unlink(path_.c_str()) != 0) return ErrnoError(doing + ": remove a stale socket", errno);
  }
  UniqueFd made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.valid()) return ErrnoError(doing, errno);
  STICKY_TRY(ListenAside(made.get()));
  if (::lstat(path_.c_str(), &status) != 0) return ErrnoError(doing, errno);
  listener_ = std::move(made);
  kept_ = false;
  Remember(status);
  return Ok{};
}

// Listens under another name and takes the right one then: whoever sees the file finds somebody who
// listens. By way of the folder's descriptor, so that the other name may be longer than ours.
Status SocketHome::ListenAside(int socket) const {
  const std::string doing = "listen at '" + Escape(path_) + "'";
  const UniqueFd folder(::open(FolderOf(path_).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return ErrnoError(doing, errno);
  const std::string name = Format(".stickyd-%d.new", ::getpid());
  const std::string aside = Format("/proc/self/fd/%d/", folder.get()) + name;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, aside.c_str(), aside.size());
  ::unlinkat(folder.get(), name.c_str(), 0);       // of a dead process with our pid
  const mode_t old_mask = ::umask(0777 & ~mode_);  // it has its mode from its first moment
  const int bound = ::bind(socket, reinterpret_cast<const sockaddr*>(&address),
                           static_cast<socklen_t>(sizeof address));
  const int bind_errno = errno;
  ::umask(old_mask);
  if (bound != 0) return ErrnoError(doing, bind_errno);
  if (::listen(socket, kBacklog) == 0 &&
      ::renameat(folder.get(), name.c_str(), AT_FDCWD, path_.c_str()) == 0) {
    return Ok{};
  }
  const Error error = ErrnoError(doing, errno);
  ::unlinkat(folder.get(), name.c_str(), 0);
  return error;
}

bool SocketHome::Vanished() const {
  if (inherited_) return false;
  struct stat status {};
  return ::lstat(path_.c_str(), &status) != 0 || status.st_dev != device_ ||
         status.st_ino != inode_;
}

Status SocketHome::Rebind() {
  STICKY_TRY(CheckFolder(FolderOf(path_)));
  STICKY_TRY(TakeLock());  // the lock file may have gone the same way
  return Bind();
}

SocketHome::~SocketHome() {
  if (!inherited_ && !left_ && listener_.valid() && !Vanished()) ::unlink(path_.c_str());
}

}  // namespace sticky::daemon
