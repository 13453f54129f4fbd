#include "daemon/io/host_facts.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <limits>
#include <string_view>

#include <sys/resource.h>
#include <unistd.h>

#include "base/text.h"

namespace sticky::daemon {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

// The number in the first line of a file; kNoLimit for "max" or no such file.
std::uint64_t ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? value : kNoLimit;
}

std::uint64_t MemAvailableBytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::uint64_t kib = 0;
  std::string unit;
  while (file >> key >> kib) {
    std::getline(file, unit);
    if (key == "MemAvailable:") return kib * 1024;
  }
  return 0;
}

// The path of our cgroup in hierarchy `controller` (empty: version 2's), from /proc/self/cgroup.
std::string CgroupPath(std::string_view controller) {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    if (names == controller) return line.substr(second + 1);
  }
  return {};
}

// What the tightest group from `path` up to the root leaves.
std::uint64_t LeftInGroups(const std::string& root, std::string path, const char* limit_file,
                           const char* used_file) {
  std::uint64_t left = kNoLimit;
  for (;;) {
    const std::uint64_t limit = ReadNumber(root + path + "/" + limit_file);
    const std::uint64_t used = ReadNumber(root + path + "/" + used_file);
    if (limit != kNoLimit && used != kNoLimit) left = std::min(left, limit - std::min(used, limit));
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos || path.size() <= 1) return left;
    path.resize(slash);
  }
}

}  // namespace

std::uint64_t DefaultBudgetBytes() {
  std::uint64_t bytes = MemAvailableBytes();
  bytes = std::min(bytes,
                   LeftInGroups("/sys/fs/cgroup", CgroupPath(""), "memory.max", "memory.current"));
  bytes = std::min(bytes, LeftInGroups("/sys/fs/cgroup/memory", CgroupPath("memory"),
                                       "memory.limit_in_bytes", "memory.usage_in_bytes"));
  return bytes / 5 * 4;
}

std::string CgroupOfSelf() {
  const std::string unified = CgroupPath("");
  return unified.empty() ? CgroupPath("memory") : unified;
}

std::string CommandOf(std::uint64_t pid) {
  constexpr std::size_t kMost = 256;
  std::ifstream file(Format("/proc/%llu/cmdline", static_cast<unsigned long long>(pid)),
                     std::ios::binary);
  std::string text(kMost, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

bool HasEnded(std::uint64_t pid) {
  if (pid == 0) return false;
  if (::kill(static_cast<pid_t>(pid), /*sig=*/0) != 0 && errno == ESRCH) return true;
  // One that has ended has its number until its parent asks for its status.
  std::ifstream file(Format("/proc/%llu/stat", static_cast<unsigned long long>(pid)));
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');
  return name_end != std::string::npos && line.substr(name_end, 3) == ") Z";
}

std::uint64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));
  static_cast<void>(::getrlimit(RLIMIT_NOFILE, &limit));
  return limit.rlim_cur;
}

std::string ProgramFolder() {
  std::string path(4096, '\0');
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  path.resize(static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace sticky::daemon
