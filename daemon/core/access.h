// Who may do what to a state. The node's owner (uid 0 and the daemon's own uid) may do everything;
// a state's owner (the user who had it built) may also end it; others may use it as far as its
// access allows.
//
// Thread: any thread (pure functions).
// Source: docs/daemon.md, "Who may do what".

#ifndef STICKY_DAEMON_CORE_ACCESS_H_
#define STICKY_DAEMON_CORE_ACCESS_H_

#include <cstdint>
#include <string>

#include "base/policy.h"
#include "daemon/core/actions.h"

namespace sticky::daemon {

// Whose a state is, and whom it is for.
struct Ownership {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;  // the owner's primary group when it was built
  Access access;
};

bool IsNodeOwner(const Peer& peer, std::uint32_t daemon_uid);

// Whether `peer` is among those that `access` names by user or group (not by its mode).
bool IsNamed(const Peer& peer, const Access& access);

// To attach, to join a load, to hold, and to see it in lists.
bool MayUse(const Peer& peer, const Ownership& owned, std::uint32_t daemon_uid);

// To evict, drain and replace it.
bool MayManage(const Peer& peer, const Ownership& owned, std::uint32_t daemon_uid);

// The rule that keeps others out, for a refusal: "user 1001 had it built, for itself alone".
std::string RuleText(const Ownership& owned);

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_CORE_ACCESS_H_
