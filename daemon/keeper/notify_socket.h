// NotifySocket: where the daemon tells its keeper what to keep. Only the daemon itself is listened
// to, as the kernel says who has sent.
//
// Thread: one thread.
// Source: sd_notify(3); unix(7), SCM_CREDENTIALS and abstract sockets.

#ifndef STICKY_DAEMON_KEEPER_NOTIFY_SOCKET_H_
#define STICKY_DAEMON_KEEPER_NOTIFY_SOCKET_H_

#include <array>
#include <cstddef>

#include <sys/types.h>

#include "daemon/keeper/fd_store.h"

namespace sticky::keeper {

class NotifySocket {
 public:
  NotifySocket() = default;
  ~NotifySocket();
  NotifySocket(const NotifySocket&) = delete;
  NotifySocket& operator=(const NotifySocket&) = delete;

  // Listens at an abstract address that the kernel chooses. False with errno set.
  bool Open();
  int fd() const { return fd_; }
  const char* address() const { return address_.data(); }  // for $NOTIFY_SOCKET: "@..."

  // Takes what has come; what process `daemon` sent goes into `store`. True when it has told that
  // it is ready.
  bool Read(pid_t daemon, FdStore& store);

 private:
  // 1: a message was read, that said that the daemon is ready; 0: another; -1: there is none.
  int ReadOne(pid_t daemon, FdStore& store);

  int fd_ = -1;
  std::array<char, 112> address_{};
};

}  // namespace sticky::keeper

#endif  // STICKY_DAEMON_KEEPER_NOTIFY_SOCKET_H_
