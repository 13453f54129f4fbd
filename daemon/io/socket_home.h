// SocketHome: the place where the daemon listens, made safely and given back at the end.
//
// A lock file beside the socket decides who owns the path, for as long as the daemon lives; the
// socket file itself is only ever removed under that lock. So a live daemon is never robbed, and
// what a dead one left is cleaned up without asking.
//
// Thread: loop thread only.
// Source: docs/daemon.md, "Where it listens".

#ifndef STICKY_DAEMON_IO_SOCKET_HOME_H_
#define STICKY_DAEMON_IO_SOCKET_HOME_H_

#include <memory>
#include <string>

#include <sys/stat.h>
#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/io/inherited.h"

namespace sticky::daemon {

class SocketHome {
 public:
  // Takes over the socket that the service manager passed, or takes the lock and listens at `path`,
  // on the socket that an earlier daemon had kept when it is still the one that is there. The
  // folder is made (0700) when only it is missing. Errors: kUnavailable when a live daemon owns the
  // path ("already running, pid N");
  //   kPermissionDenied for a folder that is a link, or that someone else owns or may write to, and
  //   for a path where something other than a socket is; kInvalidArgument for a path that is too
  //   long; others as the kernel says.
  // mode: of the socket's file, 0600 to 0666; a socket of the service manager keeps its own.
  // inherited: loses what is taken over.
  static Result<std::unique_ptr<SocketHome>> Open(const std::string& path, mode_t mode,
                                                  Inherited& inherited);
  ~SocketHome();  // removes the socket file when it is still ours

  int fd() const { return listener_.get(); }
  // The service manager's socket, not our own.
  bool is_inherited() const { return inherited_; }
  // Our own, that a keeper has had since an earlier daemon.
  bool is_kept() const { return kept_; }
  // Under which a keeper keeps our own socket: says which file it belongs to.
  std::string kept_name() const;
  // The socket stays, with its file, for the next daemon.
  void LeaveToSuccessor() { left_ = true; }
  const std::string& path() const { return path_; }

  // Whether the socket file is no longer the one that this listens on (someone removed it).
  bool Vanished() const;
  // Listens at the path again. The old descriptor is closed: watch fd() anew. When this fails, the
  // old one stays, with nobody who can reach it.
  Status Rebind();

 private:
  SocketHome() = default;
  Status TakeInherited(UniqueFd socket);
  Status TakeLock();
  bool TakeKept(Inherited& inherited);
  Status Bind();
  Status ListenAside(int socket) const;
  void Remember(const struct stat& file);

  std::string path_;
  mode_t mode_ = 0600;
  UniqueFd lock_;
  UniqueFd listener_;
  bool inherited_ = false;
  bool kept_ = false;
  bool left_ = false;
  dev_t device_ = 0;  // of the socket file
  ino_t inode_ = 0;
};

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_IO_SOCKET_HOME_H_
