// Stays with a build's command until it ends: passes signals on to it and shows how far the state
// is, as the daemon tells on a connection of its own.
//
// Thread: one thread at a time.

#ifndef STICKY_TOOLS_STICKYCTL_BUILDER_WATCH_H_
#define STICKY_TOOLS_STICKYCTL_BUILDER_WATCH_H_

#include <cstdint>
#include <optional>
#include <string>

#include "tools/client/daemon_client.h"
#include "tools/stickyctl/child.h"
#include "tools/stickyctl/progress.h"

namespace sticky::stickyctl {

class BuilderWatch {
 public:
  // daemon: absent: nothing is shown. state, epoch: of what is built.
  BuilderWatch(std::optional<client::DaemonClient> daemon, std::string state, std::uint64_t epoch,
               Progress progress)
      : daemon_(std::move(daemon)),
        state_(std::move(state)),
        epoch_(epoch),
        progress_(std::move(progress)) {}

  // Until `child` has ended. signals: of SignalsAsDescriptor. What goes wrong with showing ends
  // that alone. Blocking: for as long as the child runs.
  void Stay(const Child& child, const UniqueFd& signals);

 private:
  void Ask();
  void Show();

  std::optional<client::DaemonClient> daemon_;
  const std::string state_;
  const std::uint64_t epoch_;
  Progress progress_;
  std::optional<std::uint32_t> asked_;  // the request that is under way
};

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_BUILDER_WATCH_H_
