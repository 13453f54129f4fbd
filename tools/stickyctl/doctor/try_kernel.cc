// Tries the features of the kernel that states rest on, each as device/ and the daemon use it.

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/unique_fd.h"
#include "tools/stickyctl/doctor/gather_facts.h"

namespace sticky::stickyctl {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kHugePageBytes = 2u << 20;
// The numbers are the same on every architecture; headers of older systems lack the names.
constexpr int kPopulateWrite = 23;
constexpr int kCollapse = 25;

// errno when `ok` is false.
int Tried(bool ok) { return ok ? 0 : errno; }

UniqueFd MakeMemfd(std::size_t size_bytes, unsigned flags) {
  UniqueFd fd(::memfd_create("stickyctl-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  if (fd.valid() && ::ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0) fd.Reset();
  return fd;
}

int TrySealing() {
  const UniqueFd fd = MakeMemfd(kPageBytes, 0);
  if (!fd.valid()) return errno;
  return Tried(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) == 0 &&
               ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL) == 0);
}

// That it can be made; its pages come from the pool and are not taken.
int TryHugeMemfd() { return Tried(MakeMemfd(kHugePageBytes, MFD_HUGETLB).valid()); }

int TryOpenFileLocks() {
  const UniqueFd fd = MakeMemfd(kPageBytes, 0);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return Tried(fd.valid() && ::fcntl(fd.get(), F_OFD_SETLK, &lock) == 0);
}

int TryPeerCredentials() {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return errno;
  const UniqueFd one(pair[0]);
  const UniqueFd other(pair[1]);
  ucred who{};
  socklen_t length = sizeof who;
  return Tried(::getsockopt(one.get(), SOL_SOCKET, SO_PEERCRED, &who, &length) == 0);
}

// Gives `advice` on one huge page of shared memory, aligned, with its first byte written.
int TryAdvice(int advice, std::size_t size_bytes) {
  const UniqueFd fd = MakeMemfd(kHugePageBytes, 0);
  if (!fd.valid()) return errno;
  void* const room = ::mmap(nullptr, 2 * kHugePageBytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return errno;
  const std::size_t past = reinterpret_cast<std::uintptr_t>(room) % kHugePageBytes;
  auto* const begin = static_cast<std::byte*>(room) + (kHugePageBytes - past) % kHugePageBytes;
  void* const mapped =
      ::mmap(begin, kHugePageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd.get(), 0);
  int failure = Tried(mapped != MAP_FAILED);
  if (failure == 0) {
    *static_cast<volatile std::byte*>(mapped) = std::byte{1};
    failure = Tried(::madvise(mapped, size_bytes, advice) == 0);
  }
  ::munmap(room, 2 * kHugePageBytes);
  return failure;
}

}  // namespace

void TryKernelFeatures(KernelFacts& facts) {
  facts.memfd_sealing = TrySealing();
  facts.memfd_huge = TryHugeMemfd();
  facts.populate_write = TryAdvice(kPopulateWrite, kPageBytes);
  facts.collapse = TryAdvice(kCollapse, kHugePageBytes);
  facts.open_file_locks = TryOpenFileLocks();
  facts.peer_credentials = TryPeerCredentials();
}

}  // namespace sticky::stickyctl
