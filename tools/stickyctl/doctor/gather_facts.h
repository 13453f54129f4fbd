// Gathers NodeFacts: from /proc, /sys and /dev below a folder, and by trying what the kernel does.
// What the daemon says of itself is not asked here.
//
// Thread: one thread at a time.

#ifndef STICKY_TOOLS_STICKYCTL_DOCTOR_GATHER_FACTS_H_
#define STICKY_TOOLS_STICKYCTL_DOCTOR_GATHER_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "tools/stickyctl/doctor/node_facts.h"

namespace sticky::stickyctl {

// root, below: what stands before /proc, /sys and /dev; empty for those of this node.

// option: of --socket. The same choice as wire::DefaultSocketPath makes, and what is there.
SocketFacts GatherSocket(const std::optional<std::string>& option);

MemoryFacts GatherMemory(const std::string& root);
HugePageFacts GatherHugePages(const std::string& root);

// process: "self" or a process id. What may not be read is absent.
LimitFacts GatherLimits(const std::string& root, const std::string& process);
std::optional<GroupFacts> GatherGroup(const std::string& root, const std::string& process);

// What files say of the kernel; no try is made.
KernelFacts GatherKernelSettings(const std::string& root);
// Tries each feature on a few pages (MADV_COLLAPSE: on 2 MiB), and adds what came of it.
void TryKernelFeatures(KernelFacts& facts);

// A device file or library of a GPU's driver; empty when there is none.
std::string FindGpuSign(const std::string& root);

// Loads libstickyinvoc as a program beside this one would, and asks it.
void GatherLibrary(NodeFacts& facts);

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_DOCTOR_GATHER_FACTS_H_
