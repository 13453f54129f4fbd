// NodeFacts: what `stickyctl doctor` found on this node, before anything is made of it. A fact that
// could not be had is absent.
//
// Thread: an ordinary value.

#ifndef STICKY_TOOLS_STICKYCTL_DOCTOR_NODE_FACTS_H_
#define STICKY_TOOLS_STICKYCTL_DOCTOR_NODE_FACTS_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/exit_codes.h"
#include "base/result.h"

namespace sticky::stickyctl {

inline constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// What lstat(2) says of a path.
struct FileFacts {
  enum class Kind { kNone, kSocket, kFolder, kOther };
  Kind kind = Kind::kNone;
  std::uint32_t uid = 0;
  std::uint32_t mode = 0;  // the lower twelve bits
};

// A place where a daemon may listen, and what names it.
struct SocketPlace {
  std::string path;
  std::string named_by;  // "--socket", "$STICKYINVOC_SOCKET", ...
};

struct SocketFacts {
  SocketPlace chosen;
  FileFacts file;
  std::string folder;
  FileFacts folder_file;
  std::vector<SocketPlace> others;  // sockets at the places that were not chosen
};

// Of one process. kUnlimited where there is none.
struct Limit {
  std::uint64_t soft = 0;
  std::uint64_t hard = 0;
};
struct LimitFacts {
  std::optional<Limit> open_files;
  std::optional<Limit> locked_bytes;
  std::optional<Limit> address_space_bytes;
};

// The tightest limits of memory from a process's cgroup up to the root.
struct GroupFacts {
  std::string path;  // of the process's own group; empty: in none
  std::uint64_t limit_bytes = kUnlimited;
  std::uint64_t left_bytes = kUnlimited;  // page cache that could be dropped counts as used
  std::uint64_t swap_limit_bytes = kUnlimited;
};

struct DaemonFacts {
  // Why none answers; absent: one does, and the rest holds.
  std::optional<Error> failure = Error{Code::kUnavailable, "nobody has asked"};
  int exit_code = kExitNoDaemon;  // of that failure
  std::string version;
  std::uint64_t pid = 0;
  std::uint32_t uid = 0;
  std::uint64_t budget_bytes = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t largest_state_bytes = 0;
  std::uint32_t connection_count_max = 0;
  bool shutting_down = false;
  std::string keeper;               // who keeps its states; empty: nobody
  bool keeper_lost = false;         // it has gone since
  std::uint32_t foreign_count = 0;  // states that a daemon of another version left
  std::uint64_t foreign_bytes = 0;
  std::uint32_t template_count = 0;            // installed, that can be used and may be seen
  std::vector<std::string> template_problems;  // of each that cannot: its file, and why
  LimitFacts limits;                           // absent when /proc does not show them to us
  std::optional<GroupFacts> group;             // absent likewise
};

struct MemoryFacts {
  std::uint64_t total_bytes = 0;
  std::uint64_t available_bytes = 0;
  GroupFacts group;
  std::uint64_t swap_bytes = 0;                // of the node, used or not
  std::optional<std::uint64_t> dev_shm_bytes;  // the size of that file system
};

// Words of /sys/kernel/mm/transparent_hugepage that are in force; empty: no such file.
struct HugePageFacts {
  std::string enabled;
  std::string defrag;
  std::string shmem_enabled;
  std::uint64_t pool_count = 0;  // pages of the usual huge size that are reserved
  std::uint64_t pool_free_count = 0;
};

// Found out by trying; errno of the try, 0 when it worked.
struct KernelFacts {
  std::string release;
  int memfd_sealing = 0;
  int memfd_huge = 0;
  int populate_write = 0;
  int collapse = 0;
  int open_file_locks = 0;
  int peer_credentials = 0;
  std::optional<int> memfd_noexec;  // sysctl vm.memfd_noexec
  std::uint64_t file_max = kUnlimited;
  std::uint64_t file_count = 0;
  bool proc_is_hidden = false;  // /proc is mounted with hidepid
};

struct NodeFacts {
  std::string stickyctl_version;
  std::uint16_t protocol_min = 0;
  std::uint16_t protocol_max = 0;
  std::uint32_t uid = 0;
  SocketFacts socket;
  DaemonFacts daemon;
  std::optional<std::string> library_version;  // of libstickyinvoc; absent: not found
  std::string library_path;
  MemoryFacts memory;
  HugePageFacts huge_pages;
  LimitFacts limits;
  KernelFacts kernel;
  Dtype best_dtype = Dtype::kF32;
  std::string gpu_sign;  // a path that says that there is a GPU; empty: none
};

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_DOCTOR_NODE_FACTS_H_
