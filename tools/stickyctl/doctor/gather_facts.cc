#include "tools/stickyctl/doctor/gather_facts.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "flatbuffers/wire_socket.h"

namespace sticky::stickyctl {
namespace {

constexpr const char* kSocketName = "/stickyinvoc/stickyd.sock";

FileFacts Examine(const std::string& path) {
  FileFacts facts;
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return facts;
  facts.kind = S_ISSOCK(status.st_mode)  ? FileFacts::Kind::kSocket
               : S_ISDIR(status.st_mode) ? FileFacts::Kind::kFolder
                                         : FileFacts::Kind::kOther;
  facts.uid = status.st_uid;
  facts.mode = status.st_mode & 07777U;
  return facts;
}

std::string FolderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Every place that could be meant, the chosen one first.
std::vector<SocketPlace> Places(const std::optional<std::string>& option) {
  std::vector<SocketPlace> places;
  if (option) places.push_back({*option, "--socket"});
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string named = variable("STICKYINVOC_SOCKET");
  if (!named.empty()) places.push_back({named, "$STICKYINVOC_SOCKET"});
  const std::string runtime = variable("XDG_RUNTIME_DIR");
  if (!runtime.empty()) places.push_back({runtime + kSocketName, "$XDG_RUNTIME_DIR"});
  places.push_back({std::string("/run") + kSocketName, "the default"});
  return places;
}

std::optional<std::uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The word in brackets: "always [madvise] never".
std::string ChosenWord(const std::string& path) {
  const std::string line = ReadLine(path);
  const std::size_t begin = line.find('[');
  const std::size_t end = line.find(']');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
  return line.substr(begin + 1, end - begin - 1);
}

// "Key:   12 kB" lines. Source: proc(5), /proc/meminfo.
std::uint64_t MeminfoNumber(const std::string& root, const std::string& wanted) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    std::uint64_t number = 0;
    if (words >> key >> number && key == wanted) return number;
  }
  return 0;
}

// The path of a process's group in the hierarchy of `controller` (empty: of version 2).
// Source: cgroups(7), /proc/PID/cgroup.
std::optional<std::string> GroupPath(const std::string& file, const std::string& controller) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    if (names.find("," + controller + ",") != std::string::npos) return line.substr(second + 1);
  }
  return std::nullopt;
}

struct Hierarchy {
  const char* controller;
  const char* folder;
  const char* limit_file;
  const char* used_file;
  const char* swap_limit_file;  // version 1 has none: its limit is for both kinds together
};
constexpr Hierarchy kHierarchies[] = {
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", ""},
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", "memory.swap.max"}};

// Version 1 says "no limit" with a number near 2^63.
constexpr std::uint64_t kLimitBytesMax = std::uint64_t{1} << 60;

// Lowers the limits of `facts` to those of each group from `path` up to the root.
void AddGroups(const std::string& root, const Hierarchy& hierarchy, std::string path,
               GroupFacts& facts) {
  for (;;) {
    const std::string folder = root + hierarchy.folder + path + "/";
    const std::uint64_t limit = ReadNumber(folder + hierarchy.limit_file).value_or(kUnlimited);
    const std::uint64_t used = ReadNumber(folder + hierarchy.used_file).value_or(0);
    if (limit < kLimitBytesMax) {
      facts.limit_bytes = std::min(facts.limit_bytes, limit);
      facts.left_bytes = std::min(facts.left_bytes, limit - std::min(used, limit));
    }
    facts.swap_limit_bytes =
        std::min(facts.swap_limit_bytes,
                 ReadNumber(folder + hierarchy.swap_limit_file).value_or(kUnlimited));
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos || path.size() <= 1) return;
    path.resize(slash);
  }
}

std::uint64_t LimitNumber(const std::string& word) {
  return word == "unlimited" ? kUnlimited : std::strtoull(word.c_str(), nullptr, 10);
}

// "Max open files            1024                 4096                 files"
std::optional<Limit> LimitIn(const std::string& text, const std::string& name) {
  const std::size_t at = text.find(name);
  if (at == std::string::npos) return std::nullopt;
  std::istringstream words(text.substr(at + name.size()));
  std::string soft;
  std::string hard;
  if (!(words >> soft >> hard)) return std::nullopt;
  return Limit{LimitNumber(soft), LimitNumber(hard)};
}

// Source: proc(5), "hidepid"; a kernel prints it as a number or as a word.
bool ProcIsHidden(const std::string& root) {
  std::ifstream mounts(root + "/proc/self/mounts");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string device, place, type, options;
    words >> device >> place >> type >> options;
    const std::size_t at = options.find("hidepid=");
    if (place != "/proc" || at == std::string::npos) continue;
    const std::string value = options.substr(at + 8, options.find(',', at) - at - 8);
    return value != "0" && value != "off";
  }
  return false;
}

}  // namespace

SocketFacts GatherSocket(const std::optional<std::string>& option) {
  SocketFacts facts;
  std::vector<SocketPlace> places = Places(option);
  facts.chosen = places.front();
  facts.file = Examine(facts.chosen.path);
  facts.folder = FolderOf(facts.chosen.path);
  facts.folder_file = Examine(facts.folder);
  for (std::size_t i = 1; i < places.size(); ++i) {
    const bool elsewhere = places[i].path != facts.chosen.path;
    if (elsewhere && Examine(places[i].path).kind == FileFacts::Kind::kSocket) {
      facts.others.push_back(places[i]);
    }
  }
  return facts;
}

MemoryFacts GatherMemory(const std::string& root) {
  MemoryFacts facts;
  facts.total_bytes = MeminfoNumber(root, "MemTotal:") * 1024;
  facts.available_bytes = MeminfoNumber(root, "MemAvailable:") * 1024;
  facts.swap_bytes = MeminfoNumber(root, "SwapTotal:") * 1024;
  facts.group = GatherGroup(root, "self").value_or(GroupFacts{});
  struct statvfs shm {};
  if (::statvfs((root + "/dev/shm").c_str(), &shm) == 0) {
    facts.dev_shm_bytes = static_cast<std::uint64_t>(shm.f_blocks) * shm.f_frsize;
  }
  return facts;
}

HugePageFacts GatherHugePages(const std::string& root) {
  const std::string folder = root + "/sys/kernel/mm/transparent_hugepage/";
  return {ChosenWord(folder + "enabled"), ChosenWord(folder + "defrag"),
          ChosenWord(folder + "shmem_enabled"), MeminfoNumber(root, "HugePages_Total:"),
          MeminfoNumber(root, "HugePages_Free:")};
}

LimitFacts GatherLimits(const std::string& root, const std::string& process) {
  std::ifstream file(root + "/proc/" + process + "/limits");
  std::ostringstream text;
  text << file.rdbuf();
  return {LimitIn(text.str(), "Max open files"), LimitIn(text.str(), "Max locked memory"),
          LimitIn(text.str(), "Max address space")};
}

std::optional<GroupFacts> GatherGroup(const std::string& root, const std::string& process) {
  const std::string file = root + "/proc/" + process + "/cgroup";
  if (!std::ifstream(file)) return std::nullopt;
  GroupFacts facts;
  for (const Hierarchy& hierarchy : kHierarchies) {
    const std::optional<std::string> path = GroupPath(file, hierarchy.controller);
    if (!path) continue;
    if (facts.path.empty()) facts.path = *path;
    AddGroups(root, hierarchy, *path, facts);
  }
  return facts;
}

KernelFacts GatherKernelSettings(const std::string& root) {
  KernelFacts facts;
  facts.release = ReadLine(root + "/proc/sys/kernel/osrelease");
  if (const auto value = ReadNumber(root + "/proc/sys/vm/memfd_noexec")) {
    facts.memfd_noexec = static_cast<int>(*value);
  }
  facts.file_max = ReadNumber(root + "/proc/sys/fs/file-max").value_or(kUnlimited);
  facts.file_count = ReadNumber(root + "/proc/sys/fs/file-nr").value_or(0);
  facts.proc_is_hidden = ProcIsHidden(root);
  return facts;
}

std::string FindGpuSign(const std::string& root) {
  for (const char* const path :
       {"/dev/nvidiactl", "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        "/usr/lib/aarch64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1"}) {
    struct stat status {};
    if (::stat((root + path).c_str(), &status) == 0) return path;
  }
  return {};
}

void GatherLibrary(NodeFacts& facts) {
  void* const library = ::dlopen("libstickyinvoc.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  void* const function = ::dlsym(library, "sti_version");
  Dl_info info{};
  if (function != nullptr && ::dladdr(function, &info) != 0) {
    facts.library_version = reinterpret_cast<const char* (*)()>(function)();
    facts.library_path = info.dli_fname;
  }
  ::dlclose(library);
}

}  // namespace sticky::stickyctl
