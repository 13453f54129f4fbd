// What the node offers: free memory, limits, our cgroup, a peer's command line.
//
// Thread: any thread. Reads /proc and /sys only.

#ifndef STICKY_DAEMON_IO_HOST_FACTS_H_
#define STICKY_DAEMON_IO_HOST_FACTS_H_

#include <cstdint>
#include <string>

namespace sticky::daemon {

// A safe share of what could be allocated now: four fifths of MemAvailable or of what the tightest
// cgroup above us leaves, whichever is less. Bytes.
std::uint64_t DefaultBudgetBytes();

// The cgroup that pays for the arenas: "/user.slice/..."; empty when there is none.
std::string CgroupOfSelf();

// The command line of `pid`, arguments joined by spaces, at most 256 bytes, untrusted text; empty
// when it is gone or hidden.
std::string CommandOf(std::uint64_t pid);

// Whether no process runs under that number any more; false for 0, which the kernel gives for a
// process that cannot be seen from here. A number that another process has got is not noticed.
bool HasEnded(std::uint64_t pid);

// Raises the soft limit of open descriptors to the hard one. Returns what holds then.
std::uint64_t RaiseDescriptorLimit();

// The folder that `bin/stickyd` is in, from /proc/self/exe.
std::string ProgramFolder();

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_IO_HOST_FACTS_H_
