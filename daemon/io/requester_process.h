// RequesterProcess: a `stickyctl load TEMPLATE` of the daemon's own user, for an installed
// template. Whatever the template's or the model's file system does to it, the coordinator goes on.
//
// Thread: loop thread only.

#ifndef STICKY_DAEMON_IO_REQUESTER_PROCESS_H_
#define STICKY_DAEMON_IO_REQUESTER_PROCESS_H_

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/io/loop.h"

namespace sticky::daemon {

class RequesterProcess {
 public:
  struct Options {
    std::string program;        // stickyctl
    std::string socket_path;    // of this daemon
    std::string template_path;  // what to load
  };
  // on_gone: it has been reaped; called exactly once, also after Kill. Success means that the
  // daemon has taken the load on; the error has the words that it left on its error output.
  static Result<std::unique_ptr<RequesterProcess>> Start(
      Loop& loop, const Options& options, std::function<void(const Status& ended)> on_gone);

  void Kill() { child_->Kill(); }

 private:
  RequesterProcess() = default;
  std::unique_ptr<Child> child_;
  UniqueFd words_;  // what it writes to its error output
};

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_IO_REQUESTER_PROCESS_H_
