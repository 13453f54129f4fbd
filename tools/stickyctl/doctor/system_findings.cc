// Limits of processes, features of the kernel, and what the node computes with.

#include <algorithm>
#include <cerrno>

#include "base/text.h"
#include "tools/stickyctl/doctor/findings.h"

namespace sticky::stickyctl {
namespace {

// Beside one for each connection: files of loads, the socket, logs.
constexpr std::uint64_t kOtherFiles = 64;
// A model of many shards is opened whole before it is handed over.
constexpr std::uint64_t kOwnFilesMin = 256;
constexpr std::uint64_t kSystemFilesFreeMin = 4096;

std::string Number(std::uint64_t value) {
  return value == kUnlimited ? "unlimited" : Format("%llu", static_cast<unsigned long long>(value));
}

std::string Bytes(std::uint64_t value) {
  return value == kUnlimited ? "unlimited" : ByteCount(value);
}

void CheckOpenFiles(const NodeFacts& facts, std::vector<Finding>& findings) {
  const std::optional<Limit>& own = facts.limits.open_files;
  const std::optional<Limit>& daemon = facts.daemon.limits.open_files;
  std::string found = own ? "here " + Number(own->soft) + " (hard " + Number(own->hard) + ")" : "";
  if (daemon) found += (own ? ", the daemon " : "the daemon ") + Number(daemon->soft);
  const std::uint64_t wanted = facts.daemon.connection_count_max + kOtherFiles;
  if (daemon && daemon->soft < wanted) {
    findings.push_back({Level::kWarning, "open-files",
                        found + ": too few for " + Number(facts.daemon.connection_count_max) +
                            " connections, each of which takes one",
                        "restart the daemon with LimitNOFILE= or `ulimit -n` of " + Number(wanted) +
                            " or more, or lower limits.connections"});
  } else if (own && own->soft < kOwnFilesMin) {
    findings.push_back({Level::kWarning, "open-files",
                        found + ": a load opens every file of its model at once",
                        "ulimit -n " + Number(std::min(own->hard, kOwnFilesMin))});
  } else if (!found.empty()) {
    findings.push_back({Level::kOk, "open-files", found, {}});
  }
}

void CheckAddressSpace(const NodeFacts& facts, std::vector<Finding>& findings) {
  const std::optional<Limit>& own = facts.limits.address_space_bytes;
  const std::optional<Limit>& daemon = facts.daemon.limits.address_space_bytes;
  if (daemon && daemon->soft < facts.daemon.budget_bytes) {
    findings.push_back({Level::kWarning, "address-space",
                        "the daemon may map " + Bytes(daemon->soft) + ", its budget is " +
                            Bytes(facts.daemon.budget_bytes) + ": its loaders map whole states",
                        "restart it without `ulimit -v`"});
  }
  if (!own || own->soft == kUnlimited) return;
  const std::string found = "a process may map " + Bytes(own->soft) + " (RLIMIT_AS)";
  const std::uint64_t largest = facts.daemon.largest_state_bytes;
  if (own->soft <= largest) {
    findings.push_back(
        {Level::kProblem, "address-space",
         found + ", but the largest state has " + Bytes(largest) + ": it cannot be attached to",
         "raise or remove `ulimit -v`, or the job's limit of virtual memory"});
  } else {
    findings.push_back({Level::kNote,
                        "address-space",
                        found + "; every state that it attaches to counts whole",
                        {}});
  }
}

struct Feature {
  const char* name;
  int failure;
  Level when_missing;
  const char* remedy;
};

void CheckFeatures(const KernelFacts& kernel, std::vector<Finding>& findings) {
  const char* const sealing_remedy =
      kernel.memfd_noexec == 2
          ? "set the sysctl vm.memfd_noexec to 1, or use Linux 6.6 or later"
          : "states need it: another kernel, or a container that allows memfd_create";
  const Feature features[] = {
      {"sealed memfds", kernel.memfd_sealing, Level::kProblem, sealing_remedy},
      {"open file description locks", kernel.open_file_locks, Level::kProblem,
       "leases need them: Linux 3.15 or later"},
      {"SO_PEERCRED", kernel.peer_credentials, Level::kProblem,
       "the daemon needs it to know its clients: another kernel"},
      {"MADV_POPULATE_WRITE", kernel.populate_write, Level::kNote,
       "loads write to each page instead; Linux 5.14 has it"},
      {"MFD_HUGETLB", kernel.memfd_huge, Level::kNote,
       "only `huge_pages: true` of a template asks for it"}};
  std::string working;
  for (const Feature& feature : features) {
    if (feature.failure == 0) {
      working += std::string(working.empty() ? "" : ", ") + feature.name;
      continue;
    }
    findings.push_back(
        {feature.when_missing, "kernel",
         ErrnoError(std::string(feature.name) + " cannot be had", feature.failure).message,
         feature.remedy});
  }
  findings.push_back({Level::kOk,
                      "kernel",
                      "Linux " + Printable(kernel.release) +
                          "; tried and working: " + (working.empty() ? "nothing" : working),
                      {}});
}

}  // namespace

void CheckLimits(const NodeFacts& facts, std::vector<Finding>& findings) {
  CheckOpenFiles(facts, findings);
  CheckAddressSpace(facts, findings);
  if (const std::optional<Limit>& locked = facts.limits.locked_bytes) {
    findings.push_back({Level::kOk,
                        "locked-memory",
                        Bytes(locked->soft) + "; states are not locked, and need none",
                        {}});
  }
}

void CheckKernel(const NodeFacts& facts, std::vector<Finding>& findings) {
  const KernelFacts& kernel = facts.kernel;
  CheckFeatures(kernel, findings);
  if (kernel.memfd_noexec.value_or(0) > 0 && kernel.memfd_sealing == 0) {
    findings.push_back(
        {Level::kOk,
         "memfd-noexec",
         Format("vm.memfd_noexec is %d; states are never executed", *kernel.memfd_noexec),
         {}});
  }
  const std::uint64_t free_count = kernel.file_max - std::min(kernel.file_count, kernel.file_max);
  if (free_count < kSystemFilesFreeMin) {
    findings.push_back({Level::kWarning, "file-max",
                        Number(kernel.file_count) + " of " + Number(kernel.file_max) +
                            " files of the whole node are open",
                        "raise the sysctl fs.file-max"});
  }
  if (kernel.proc_is_hidden) {
    findings.push_back({Level::kNote,
                        "hidepid",
                        "/proc hides processes of other users (hidepid): `stickyctl leases` names "
                        "the commands of the daemon's own user only",
                        {}});
  }
}

void CheckDevices(const NodeFacts& facts, std::vector<Finding>& findings) {
  findings.push_back({Level::kOk,
                      "cpu",
                      std::string("`dtype: auto` means ") + Name(facts.best_dtype) + " here",
                      {}});
  if (facts.gpu_sign.empty()) return;
  findings.push_back({Level::kNote,
                      "gpu",
                      "there is a GPU or its driver ('" + facts.gpu_sign +
                          "'); this version keeps states in host memory only",
                      {}});
}

}  // namespace sticky::stickyctl
