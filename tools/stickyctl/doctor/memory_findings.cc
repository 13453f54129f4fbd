// Memory: what there is, what the daemon may take of it, on pages of which size.

#include <algorithm>
#include <cerrno>

#include "base/text.h"
#include "tools/stickyctl/doctor/findings.h"

namespace sticky::stickyctl {
namespace {

std::string GroupText(const GroupFacts& group) {
  const std::string name = "cgroup '" + Escape(group.path) + "'";
  if (group.limit_bytes == kUnlimited) return "no limit from " + name;
  return name + " or one above it ends at " + ByteCount(group.limit_bytes) + ", " +
         ByteCount(group.left_bytes) + " left";
}

void CheckBudget(const NodeFacts& facts, std::vector<Finding>& findings) {
  const DaemonFacts& daemon = facts.daemon;
  const std::uint64_t free_bytes =
      daemon.budget_bytes - std::min(daemon.used_bytes, daemon.budget_bytes);
  const GroupFacts group = daemon.group.value_or(GroupFacts{});
  const std::string budget = "the daemon's budget is " + ByteCount(daemon.budget_bytes) + ", " +
                             ByteCount(free_bytes) + " of it free";
  const std::string lower = "lower memory.host of the node config, or --memory, and restart it";
  if (daemon.budget_bytes > group.limit_bytes) {
    findings.push_back({Level::kProblem, "budget",
                        budget + ", but " + GroupText(group) +
                            ": a load that does not fit is killed instead of refused",
                        lower});
  } else if (free_bytes > group.left_bytes) {
    findings.push_back({Level::kWarning, "budget", budget + ", but " + GroupText(group),
                        lower + "; cached files count as used there and can go"});
  } else if (free_bytes > facts.memory.available_bytes) {
    findings.push_back(
        {Level::kWarning, "budget",
         budget + ", but the node has " + ByteCount(facts.memory.available_bytes) + " available",
         lower + ", or free memory"});
  } else {
    const std::string charged = daemon.group ? "; " + GroupText(group) : "";
    findings.push_back(
        {Level::kOk,
         "budget",
         ByteCount(daemon.used_bytes) + " of " + ByteCount(daemon.budget_bytes) + " used" + charged,
         {}});
  }
}

// A state in swap is slower than the disk that it came from. Nothing is locked into memory, so that
// no limit on that matters; where states may go is up to the daemon's group.
void CheckSwap(const NodeFacts& facts, std::vector<Finding>& findings) {
  const std::optional<GroupFacts>& group = facts.daemon.group;
  if (facts.memory.swap_bytes == 0 || !group || group->swap_limit_bytes == 0) return;
  findings.push_back({Level::kNote, "swap",
                      "the node has " + ByteCount(facts.memory.swap_bytes) +
                          " of swap, and states that nobody reads may be put there",
                      "MemorySwapMax=0 in the daemon's unit, or 0 in memory.swap.max of the "
                      "cgroup that it runs in"});
}

// Admins look there for shared memory.
void CheckDevShm(const MemoryFacts& memory, std::vector<Finding>& findings) {
  if (!memory.dev_shm_bytes || *memory.dev_shm_bytes >= memory.total_bytes / 2) return;
  findings.push_back({Level::kNote,
                      "dev-shm",
                      "/dev/shm has " + ByteCount(*memory.dev_shm_bytes) +
                          "; states do not lie there and need none of it",
                      {}});
}

}  // namespace

void CheckMemory(const NodeFacts& facts, std::vector<Finding>& findings) {
  const MemoryFacts& memory = facts.memory;
  findings.push_back({Level::kOk,
                      "memory",
                      ByteCount(memory.available_bytes) + " of " + ByteCount(memory.total_bytes) +
                          " available; for this process " + GroupText(memory.group),
                      {}});
  if (!facts.daemon.failure) {
    CheckBudget(facts, findings);
    CheckSwap(facts, findings);
  }
  CheckDevShm(memory, findings);
}

void CheckHugePages(const NodeFacts& facts, std::vector<Finding>& findings) {
  const HugePageFacts& pages = facts.huge_pages;
  const auto word = [](const std::string& text) { return text.empty() ? "?" : Escape(text); };
  const std::string found = "shmem_enabled is " + word(pages.shmem_enabled) + ", enabled " +
                            word(pages.enabled) + ", defrag " + word(pages.defrag);
  const bool on_demand = pages.shmem_enabled == "advise" || pages.shmem_enabled == "always" ||
                         pages.shmem_enabled == "within_size" || pages.shmem_enabled == "force";
  const int failure = facts.kernel.collapse;
  if (failure == 0 || on_demand) {
    const char* const how =
        failure == 0 ? "; the loader joins small pages (MADV_COLLAPSE), whatever they say" : "";
    findings.push_back({Level::kOk, "huge-pages", found + how, {}});
  } else {
    const bool unknown = failure == EINVAL && pages.shmem_enabled != "deny";
    const Error why = ErrnoError("MADV_COLLAPSE", failure);
    findings.push_back(
        {Level::kWarning, "huge-pages",
         found + ", and joining pages does not work (" + why.message +
             "): states lie in small pages, slow to touch for the first time",
         unknown ? "Linux 6.1 or later, or as root: echo advise > "
                   "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
                 : "as root: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"});
  }
  findings.push_back({Level::kOk,
                      "huge-page-pool",
                      Format("%llu pages reserved, %llu free; only `huge_pages: true` takes them",
                             static_cast<unsigned long long>(pages.pool_count),
                             static_cast<unsigned long long>(pages.pool_free_count)),
                      {}});
}

}  // namespace sticky::stickyctl
