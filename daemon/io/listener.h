// Listener: takes connections, and stays alive when descriptors run out.
//
// Thread: loop thread only.

#ifndef STICKY_DAEMON_IO_LISTENER_H_
#define STICKY_DAEMON_IO_LISTENER_H_

#include <functional>
#include <memory>

#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/core/actions.h"
#include "daemon/io/loop.h"

namespace sticky::daemon {

class Listener {
 public:
  // on_connection: a new peer, as the kernel vouches for it (without its command).
  using Callback = std::function<void(UniqueFd socket, const Peer& peer)>;
  // fd: a listening, non-blocking socket; not owned.
  static Result<std::unique_ptr<Listener>> Create(Loop& loop, int fd, Callback on_connection);

 private:
  Listener(Loop& loop, int fd, Callback on_connection);
  void Accept();
  void TurnOneAway();

  const int fd_;
  Callback on_connection_;
  UniqueFd reserve_;  // given up for a moment to turn a peer away when descriptors have run out
  std::unique_ptr<Poller> poller_;
};

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_IO_LISTENER_H_
