#include "device/host_arena.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

namespace sticky::device {
namespace {

constexpr int kSizeSeals = F_SEAL_GROW | F_SEAL_SHRINK;
constexpr int kAllSeals = kSizeSeals | F_SEAL_WRITE | F_SEAL_SEAL;

// Whether the kernel joins pages of shared memory that asks for it with MADV_HUGEPAGE.
// Source: Linux Documentation/admin-guide/mm/transhuge.rst, "shmem_enabled".
bool SharedMemoryMayBeHuge() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string text;
  std::getline(file, text);
  return text.find("[advise]") != std::string::npos || text.find("[always]") != std::string::npos ||
         text.find("[within_size]") != std::string::npos;
}

struct flock WholeFile(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

Result<UniqueFd> MakeMemfd(const std::string& name, std::uint64_t size_bytes, unsigned flags) {
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  if (!fd.valid()) return ErrnoError("make shared memory for '" + Escape(name) + "'", errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0) {
    return ErrnoError(Format("make %llu bytes of shared memory for '%s'",
                             static_cast<unsigned long long>(size_bytes), Escape(name).c_str()),
                      errno);
  }
  // Whoever is lent a description of it may not open another one through /proc, by which they could
  // lock it for writing, or keep it unseen.
  if (::fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0) {
    return ErrnoError("close shared memory to other users", errno);
  }
  return fd;
}

}  // namespace

const char* Name(PageKind kind) {
  switch (kind) {
    case PageKind::kSmall:
      return "none";
    case PageKind::kTransparent:
      return "thp";
    case PageKind::kHuge:
      return "hugetlb";
  }
  return "unknown";
}

HostArena::HostArena(UniqueFd fd, std::uint64_t size_bytes, PageKind page_kind)
    : fd_(std::move(fd)), size_bytes_(size_bytes), page_kind_(page_kind) {}

Result<HostArena> HostArena::Create(const std::string& name, std::uint64_t size_bytes,
                                    bool want_huge) {
  if (size_bytes == 0) {
    return Error{Code::kInvalidArgument, "make an arena for '" + Escape(name) + "' of 0 bytes"};
  }
  PageKind kind = SharedMemoryMayBeHuge() ? PageKind::kTransparent : PageKind::kSmall;
  Result<UniqueFd> fd = Error{Code::kInternal, "no memory was asked for"};
  constexpr std::uint64_t kHugePageBytes = 2u << 20;
  if (want_huge) {
    const std::uint64_t rounded =
        (size_bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    fd = MakeMemfd(name, rounded, MFD_HUGETLB);
    // Room in the pool is only found out by allocating; here it costs no page of ours but theirs.
    if (fd.ok() && ::fallocate(fd.value().get(), 0, 0, static_cast<off_t>(rounded)) == 0) {
      kind = PageKind::kHuge;
    } else {
      fd = Error{Code::kOutOfMemory, "no huge pages are left"};
    }
  }
  if (!fd.ok()) fd = MakeMemfd(name, size_bytes, 0);
  if (!fd.ok()) return fd.error();
  if (::fcntl(fd.value().get(), F_ADD_SEALS, kSizeSeals) != 0) {
    return ErrnoError("seal the size of the arena for '" + Escape(name) + "'", errno);
  }
  return HostArena(std::move(fd).value(), size_bytes, kind);
}

Result<HostArena> HostArena::Adopt(UniqueFd fd, std::uint64_t size_bytes) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0) return ErrnoError("adopt an arena: read its seals", errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return ErrnoError("adopt an arena: examine it", errno);
  const auto found = static_cast<std::uint64_t>(status.st_size);
  if ((seals & kSizeSeals) != kSizeSeals || found < size_bytes || size_bytes == 0) {
    return Error{Code::kCorrupt,
                 Format("adopt an arena: want %llu bytes sealed against growing and shrinking, "
                        "found %llu bytes with seals 0x%x",
                        static_cast<unsigned long long>(size_bytes),
                        static_cast<unsigned long long>(found), static_cast<unsigned>(seals))};
  }
  HostArena arena(std::move(fd), size_bytes, PageKind::kSmall);
  arena.sealed_ = (seals & F_SEAL_WRITE) != 0;
  return arena;
}

Status HostArena::Prefault() {
  // fallocate makes pages present without writing through a mapping; a tmpfs page is zero.
  while (::fallocate(fd_.get(), 0, 0, static_cast<off_t>(size_bytes_)) != 0) {
    if (errno == EINTR) continue;
    return ErrnoError(Format("reserve %llu bytes of memory for an arena",
                             static_cast<unsigned long long>(size_bytes_)),
                      errno);
  }
  return Ok{};
}

// A read-only description of the arena. Errors: kUnavailable while anyone has one for writing,
// which the kernel knows when it is asked for a lease to read: it gives none then. (Not counted:
// what memfd_create gave us, and our own children got of it.)
Result<UniqueFd> HostArena::ReopenWithoutWriters() {
  STICKY_ASSIGN(UniqueFd reader, Open(O_RDONLY));
  if (::fcntl(reader.get(), F_SETLEASE, F_RDLCK) != 0) {
    if (errno == EAGAIN) {
      return Error{Code::kUnavailable,
                   "seal an arena: a writable mapping or descriptor of it is still open", EAGAIN};
    }
    return ErrnoError("seal an arena: ask for a lease, to see that nobody can write", errno);
  }
  static_cast<void>(::fcntl(reader.get(), F_SETLEASE, F_UNLCK));  // it has told what it can tell
  return reader;
}

Status HostArena::Seal() {
  UniqueFd reader;
  if (was_lent_writable_) {
    STICKY_ASSIGN(reader, ReopenWithoutWriters());
  }
  if (::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
    if (errno == EBUSY) {
      return Error{Code::kUnavailable, "seal an arena: a writable mapping of it is still alive",
                   EBUSY};
    }
    return ErrnoError("seal an arena", errno);
  }
  if (reader.valid()) fd_ = std::move(reader);  // now there is no description for writing at all
  sealed_ = true;
  // Only now can nobody punch holes any more.
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) return ErrnoError("seal an arena: examine it", errno);
  constexpr std::uint64_t kStatBlockBytes = 512;  // stat(2): st_blocks is in units of 512 bytes
  const std::uint64_t present = static_cast<std::uint64_t>(status.st_blocks) * kStatBlockBytes;
  if (present >= size_bytes_) return Ok{};
  return Error{Code::kCorrupt, Format("seal an arena: only %llu of %llu bytes are present",
                                      static_cast<unsigned long long>(present),
                                      static_cast<unsigned long long>(size_bytes_))};
}

Status HostArena::LetOthersReopen() {
  constexpr mode_t kReadable = S_IRUSR | S_IRGRP | S_IROTH;
  if (::fchmod(fd_.get(), kReadable) == 0) return Ok{};
  return ErrnoError("let others open an arena by its path", errno);
}

Result<UniqueFd> HostArena::Lend() const { return Reopen(O_RDONLY); }

Result<UniqueFd> HostArena::LendWritable() {
  was_lent_writable_ = true;
  return Reopen(O_RDWR);
}

Result<UniqueFd> HostArena::Open(int flags) const {
  const std::string path = Format("/proc/self/fd/%d", fd_.get());
  UniqueFd opened(::open(path.c_str(), flags | O_CLOEXEC));
  if (!opened.valid() && errno == EACCES) {  // a borrower of our own uid may have changed the mode
    static_cast<void>(::fchmod(fd_.get(), S_IRUSR | S_IWUSR));
    opened.Reset(::open(path.c_str(), flags | O_CLOEXEC));
  }
  if (!opened.valid()) return ErrnoError("reopen an arena", errno);
  return opened;
}

// A new description with the lease's lock on it.
Result<UniqueFd> HostArena::Reopen(int flags) const {
  STICKY_ASSIGN(UniqueFd lent, Open(flags));
  struct flock lock = WholeFile(F_RDLCK);
  if (::fcntl(lent.get(), F_OFD_SETLK, &lock) != 0) {
    return ErrnoError("take the lease lock of an arena", errno);
  }
  return lent;
}

Result<bool> HostArena::HasBorrowers() const {
  struct flock lock = WholeFile(F_WRLCK);
  if (::fcntl(fd_.get(), F_OFD_GETLK, &lock) != 0) {
    return ErrnoError("ask for the lease locks of an arena", errno);
  }
  return lock.l_type != F_UNLCK;
}

Result<UniqueFd> SealedCopy(const std::string& name, std::span<const std::uint8_t> bytes) {
  STICKY_ASSIGN(UniqueFd fd, MakeMemfd(name, 0, 0));
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = ::write(fd.get(), bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return ErrnoError("write shared memory '" + Escape(name) + "'", errno);
    done += static_cast<std::size_t>(written);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kAllSeals) != 0) {
    return ErrnoError("seal shared memory '" + Escape(name) + "'", errno);
  }
  return fd;
}

}  // namespace sticky::device
