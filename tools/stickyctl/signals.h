// Signals as something to wait for beside a connection: those named are blocked, and read from a
// descriptor.
//
// Thread: one thread at a time.
// Source: signalfd(2).

#ifndef STICKY_TOOLS_STICKYCTL_SIGNALS_H_
#define STICKY_TOOLS_STICKYCTL_SIGNALS_H_

#include <csignal>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sticky::stickyctl {

// What ends a command that runs until somebody ends it.
inline constexpr int kEndingSignals[] = {SIGTERM, SIGINT, SIGHUP};

// A descriptor that is readable when one of `numbers` has come. One that was ignored at the start
// (SIGHUP under nohup) stays ignored. Errors: kOutOfMemory, when there are no descriptors.
Result<UniqueFd> SignalsAsDescriptor(std::span<const int> numbers);

// The number of a signal that has come, or nothing.
std::optional<int> TakeSignal(const UniqueFd& signals);

// Waits until `other` is readable, a signal has come or `timeout_ms` have passed (-1: never).
// Whether it was a signal.
bool SignalComesFirst(const UniqueFd& signals, int other, int timeout_ms);

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_SIGNALS_H_
