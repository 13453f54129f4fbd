// The two ways to a lease: asking the daemon, and adopting the one that `stickyctl run` took for
// this process.
//
// Thread: any thread. Reads the environment: not while another thread changes it.

#ifndef STICKY_SHIM_ATTACH_H_
#define STICKY_SHIM_ATTACH_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/digest.h"
#include "base/result.h"
#include "shim/state.h"

namespace sticky::shim {

inline constexpr std::uint32_t kConnectMsDefault = 5000;

struct AttachOptions {
  std::uint32_t wait_ms = 0;
  std::uint32_t connect_ms = kConnectMsDefault;
  std::optional<std::string> socket_path;  // absent: as wire::DefaultSocketPath
  std::optional<Digest> digest;
};

// name: absent means $STICKYINVOC_STATE. Adopts the inherited lease when it is for this state and
// whole and no socket_path is given, else asks the daemon, in one round trip.
// Blocking: at most connect_ms, and wait_ms while the state is being built.
// Errors: as sti_attach.
Result<State> Attach(const std::optional<std::string>& name, const AttachOptions& options);

// Asks the daemon. Errors: as Attach.
Result<State> AskDaemon(const std::string& name, const AttachOptions& options);

// Takes copies of the descriptors that $STICKYINVOC_LEASE names,
// "<connection>:<manifest>:<arena>[,<arena>...]"; the originals stay for child processes.
// Errors: kNotFound when there is no such variable; kCorrupt when what it names is not a lease of
//   state `name`; others as State::Open.
Result<State> AdoptLease(const std::string& name, const std::optional<Digest>& digest);

}  // namespace sticky::shim

#endif  // STICKY_SHIM_ATTACH_H_
