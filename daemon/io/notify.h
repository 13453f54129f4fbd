// Tells the service manager how the daemon is, when one listens.
//
// Thread: loop thread only.
// Source: sd_notify(3) and sd_listen_fds(3); the protocols are a datagram and three variables.

#ifndef STICKY_DAEMON_IO_NOTIFY_H_
#define STICKY_DAEMON_IO_NOTIFY_H_

#include <cstdint>
#include <string>

namespace sticky::daemon {

// Sends `lines` ("READY=1\nSTATUS=...") to $NOTIFY_SOCKET; does nothing without one. Never blocks.
void Notify(const std::string& lines);

// Milliseconds between two WATCHDOG=1 that keep the service manager content; 0: none is wanted.
std::uint64_t WatchdogMs();

// How many sockets the service manager passed from descriptor 3 on; 0 when they are not for us.
int ListenFdCount();

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_IO_NOTIFY_H_
