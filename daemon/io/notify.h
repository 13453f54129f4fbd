// Tells the service manager how the daemon is, when one listens.
//
// Thread: loop thread only.
// Source: sd_notify(3); the protocol is a datagram and a few variables.

#ifndef STICKY_DAEMON_IO_NOTIFY_H_
#define STICKY_DAEMON_IO_NOTIFY_H_

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sticky::daemon {

// A datagram socket that is connected to $NOTIFY_SOCKET and never blocks.
// Errors: kNotFound without one; others as the kernel says (kUnavailable: nobody listens).
Result<UniqueFd> ConnectToManager();

// Sends `lines` ("READY=1\nSTATUS=...") to $NOTIFY_SOCKET; does nothing without one. Never blocks.
void Notify(const std::string& lines);

// Milliseconds between two WATCHDOG=1 that keep the service manager content; 0: none is wanted.
std::uint64_t WatchdogMs();

// Whether the variable, which names a process, is absent or names this one.
bool IsForUs(const char* pid_variable);

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_IO_NOTIFY_H_
