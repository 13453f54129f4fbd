#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/file_mapping.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/check.h"
#include "base/deadline.h"
#include "base/text.h"
#include "device/host_arena.h"

namespace sticky::device {
namespace ipc = boost::interprocess;

struct Mapping::Region {
  ipc::mapped_region region;
  std::uint64_t size_bytes = 0;  // as was asked for; huge pages are mapped whole
  bool writable = false;
  std::atomic<bool> joins_pages = true;  // until that turns out to be slow, or impossible
};

namespace {

// Boost names the thing to map through this small concept; a descriptor is all that we have.
class Descriptor {
 public:
  Descriptor(int fd, ipc::mode_t mode) : fd_(fd), mode_(mode) {}
  ipc::mapping_handle_t get_mapping_handle() const {
    return ipc::ipcdetail::mapping_handle_from_file_handle(fd_);
  }
  ipc::mode_t get_mode() const { return mode_; }

 private:
  int fd_;
  ipc::mode_t mode_;
};

// munmap(2) takes whole huge pages only, so whole ones must be mapped.
std::uint64_t MappedBytes(int fd, std::uint64_t size_bytes) {
  struct statfs system {};
  if (::fstatfs(fd, &system) != 0 || system.f_type != HUGETLBFS_MAGIC) return size_bytes;
  const auto page_bytes = static_cast<std::uint64_t>(system.f_bsize);
  return (size_bytes + page_bytes - 1) / page_bytes * page_bytes;
}

constexpr std::uint64_t kHugePageBytes = 2u << 20;  // x86-64 and most others

// An address where `size_bytes` are free now and a huge page could begin: the kernel joins pages of
// shared memory only where memory and file are aligned alike. Null for small sizes, or no luck.
const void* HugePageHint(std::uint64_t size_bytes) {
  if (size_bytes < kHugePageBytes) return nullptr;
  const std::uint64_t room = size_bytes + kHugePageBytes;
  void* const found =
      ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  ::munmap(found, room);
  const std::uint64_t past = reinterpret_cast<std::uintptr_t>(found) % kHugePageBytes;
  return static_cast<const std::uint8_t*>(found) + (kHugePageBytes - past) % kHugePageBytes;
}

// Makes whole huge pages of `bytes` where the kernel can: one write gives each a first page, and
// the rest is joined to it. What cannot be joined is left as it is: small pages serve too.
// One call for all of `bytes`: each waits for every CPU of the node once, be it long or short.
// Source: madvise(2), MADV_COLLAPSE, Linux 6.1; it does not ask shmem_enabled.
// Returns whether it is worth going on with more: an older kernel does not know how, and one call
// that took very long says that some CPU does not answer.
bool JoinPages(std::span<std::uint8_t> bytes) {
#ifdef MADV_COLLAPSE
  constexpr int kCollapse = MADV_COLLAPSE;
#else
  constexpr int kCollapse = 25;  // its number is the same on every architecture
#endif
  constexpr std::int64_t kPatienceNs = 5'000'000'000;
  const std::int64_t started_ns = MonotonicNs();
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uint64_t begin = (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes;
  if (begin + kHugePageBytes > bytes.size()) return true;
  const std::uint64_t size_bytes = (bytes.size() - begin) / kHugePageBytes * kHugePageBytes;
  for (std::uint64_t at = begin; at < begin + size_bytes; at += kHugePageBytes) {
    volatile std::uint8_t& first = bytes[at];
    first = first;
  }
  if (::madvise(bytes.data() + begin, size_bytes, kCollapse) != 0 && errno == EINVAL) return false;
  return MonotonicNs() - started_ns < kPatienceNs;
}

Result<ipc::mapped_region> MapAt(int fd, std::uint64_t size_bytes, ipc::mode_t mode,
                                 const void* address) {
  try {
    return ipc::mapped_region(Descriptor(fd, mode), mode, 0, size_bytes, address);
  } catch (const ipc::interprocess_exception& error) {
    return ErrnoError(
        Format("map %llu bytes of shared memory", static_cast<unsigned long long>(size_bytes)),
        error.get_native_error());
  }
}

Result<ipc::mapped_region> Map(int fd, std::uint64_t size_bytes, ipc::mode_t mode) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return ErrnoError("examine the memory to map", errno);
  if (static_cast<std::uint64_t>(status.st_size) < size_bytes) {
    return Error{Code::kCorrupt,
                 Format("map shared memory: want %llu bytes, the descriptor has %lld",
                        static_cast<unsigned long long>(size_bytes),
                        static_cast<long long>(status.st_size))};
  }
  const std::uint64_t mapped_bytes = MappedBytes(fd, size_bytes);
  const void* const hint = mode == ipc::read_write ? HugePageHint(mapped_bytes) : nullptr;
  Result<ipc::mapped_region> region = MapAt(fd, mapped_bytes, mode, hint);
  // Another thread may have taken the place that was free a moment ago.
  if (!region.ok() && hint != nullptr) region = MapAt(fd, mapped_bytes, mode, nullptr);
  return region;
}

}  // namespace

Mapping::Mapping(std::unique_ptr<Region> region) : region_(std::move(region)) {}
Mapping::Mapping(Mapping&&) noexcept = default;
Mapping& Mapping::operator=(Mapping&&) noexcept = default;
Mapping::~Mapping() = default;

Result<Mapping> Mapping::ReadOnly(int fd, std::uint64_t size_bytes) {
  STICKY_ASSIGN(ipc::mapped_region region, Map(fd, size_bytes, ipc::read_only));
  return Mapping(std::unique_ptr<Region>(
      new Region{std::move(region), size_bytes, /*writable=*/false, /*joins_pages=*/false}));
}

Result<Mapping> Mapping::Writable(int fd, std::uint64_t size_bytes) {
  STICKY_ASSIGN(ipc::mapped_region region, Map(fd, size_bytes, ipc::read_write));
  return Mapping(std::unique_ptr<Region>(
      new Region{std::move(region), size_bytes, /*writable=*/true, /*joins_pages=*/true}));
}

void Mapping::PreferHugePages() {
  static_cast<void>(
      ::madvise(region_->region.get_address(), region_->region.get_size(), MADV_HUGEPAGE));
}

Status Mapping::Populate(std::uint64_t offset, std::uint64_t size_bytes) {
  const std::span<std::uint8_t> all = writable_bytes();
  STICKY_CHECK(offset <= all.size() && size_bytes <= all.size() - offset);
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = offset / page_bytes * page_bytes;
  const std::uint64_t end = offset + size_bytes;
  if (region_->joins_pages && !JoinPages(all.subspan(begin, end - begin))) {
    region_->joins_pages = false;
  }
#ifdef MADV_POPULATE_WRITE
  constexpr int kPopulate = MADV_POPULATE_WRITE;
#else
  constexpr int kPopulate = 23;  // Linux 5.14; its number is the same on every architecture
#endif
  while (::madvise(all.data() + begin, end - begin, kPopulate) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno == EINVAL) {  // an older kernel: one write a page, of what is there
      for (std::uint64_t at = begin; at < end; at += page_bytes) {
        volatile std::uint8_t& byte = all[at];
        byte = byte;
      }
      return Ok{};
    }
    // EFAULT is what shared memory that has run out is reported as.
    return ErrnoError(
        Format("make %llu bytes of an arena present", static_cast<unsigned long long>(size_bytes)),
        errno == EFAULT ? ENOMEM : errno);
  }
  return Ok{};
}

std::uint64_t Mapping::HugeBytes() const {
  std::ifstream file("/proc/self/smaps");
  const auto address = reinterpret_cast<std::uintptr_t>(region_->region.get_address());
  std::uint64_t huge_kib = 0;
  bool ours = false;
  for (std::string line; std::getline(file, line);) {
    unsigned long long first = 0;
    unsigned long long second = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &first, &second) == 2) {
      ours = first < address + region_->region.get_size() && address < second;
      continue;
    }
    unsigned long long kib = 0;
    const bool huge = std::sscanf(line.c_str(), "ShmemPmdMapped: %llu", &kib) == 1 ||
                      std::sscanf(line.c_str(), "Shared_Hugetlb: %llu", &kib) == 1 ||
                      std::sscanf(line.c_str(), "Private_Hugetlb: %llu", &kib) == 1;
    if (ours && huge) huge_kib += kib;
  }
  return huge_kib * 1024;
}

std::span<const std::uint8_t> Mapping::bytes() const {
  return {static_cast<const std::uint8_t*>(region_->region.get_address()), region_->size_bytes};
}

std::span<std::uint8_t> Mapping::writable_bytes() {
  STICKY_CHECK(region_->writable);
  return {static_cast<std::uint8_t*>(region_->region.get_address()), region_->size_bytes};
}

}  // namespace sticky::device
