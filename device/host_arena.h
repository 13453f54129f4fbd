// HostArena: one block of host memory that holds a state, as a memfd; and Mapping, a view of one.
//
// An arena is sealed against growing and shrinking when it is made, against writing when it is
// published, and is lent out read-only: the receiver gets a freshly reopened description of it with
// an open-file-description read lock, which the kernel keeps while any descriptor or mapping of
// that description lives. So HasBorrowers() is true exactly while somebody can still read it.
//
// Thread: one thread at a time.
// Source: memfd_create(2), fcntl(2) "File sealing", "Open file description locks" and "Leases".

#ifndef STICKY_DEVICE_HOST_ARENA_H_
#define STICKY_DEVICE_HOST_ARENA_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sticky::device {

enum class PageKind : std::int8_t {
  kSmall = 0,    // the kernel's ordinary pages
  kTransparent,  // ordinary pages that the kernel may join (shmem_enabled is advise or always)
  kHuge,         // MFD_HUGETLB, taken from the node's reserved pool
};
const char* Name(PageKind kind);  // "none", "thp", "hugetlb"; static text

class HostArena {
 public:
  // Reserves `size_bytes` (> 0) of address space in a memfd; no page is touched. `name`: for
  // /proc only. want_huge: MFD_HUGETLB when the pool has room, else ordinary pages; page_kind()
  // says which was got.
  // Errors: kOutOfMemory (ENOMEM, ENOSPC, EMFILE), kInvalidArgument for size 0.
  static Result<HostArena> Create(const std::string& name, std::uint64_t size_bytes,
                                  bool want_huge);

  // Takes over an arena's descriptor (from the keeper, or a loader's FillRequest). Checks that it
  // is a memfd of that size, sealed against growing and shrinking.
  // Errors: kCorrupt with what was expected and found.
  static Result<HostArena> Adopt(UniqueFd fd, std::uint64_t size_bytes);

  int fd() const { return fd_.get(); }
  // What frees the memory when it is closed and nobody else has it.
  UniqueFd TakeFd() && { return std::move(fd_); }
  std::uint64_t size_bytes() const { return size_bytes_; }
  PageKind page_kind() const { return page_kind_; }

  // Makes every page present, as Mapping::Populate does, but without a mapping and so in ordinary
  // pages. Blocking: for seconds on a large arena. Errors: kOutOfMemory.
  Status Prefault();

  // Seals against writing and further seals. Errors: kUnavailable while a writable mapping lives
  // anywhere (EBUSY), or anybody to whom it was lent for writing has that description open or
  // mapped (EAGAIN), by which readers could be locked out: nothing has changed then. kCorrupt when
  // pages are missing (holes would be charged to readers), kPermissionDenied when somebody else has
  // sealed it, kOutOfMemory without descriptors: it is of no use then.
  Status Seal();
  bool sealed() const { return sealed_; }
  // Whoever holds a lent description may open it again by its path in /proc, for reading; before,
  // its owner alone may. For files that programs open. Errors: kPermissionDenied.
  Status LetOthersReopen();

  // A new read-only description of the sealed arena, read-locked, close-on-exec.
  // Errors: kOutOfMemory when descriptors have run out. Cost: about a microsecond.
  Result<UniqueFd> Lend() const;

  // As Lend, but writable and of an arena that is not sealed yet: for a builder. Whoever has it may
  // write, and punch holes, until Seal(), which waits for nobody: it must be closed by then.
  Result<UniqueFd> LendWritable();

  // Whether any lent description is still held open or mapped, by whomever.
  Result<bool> HasBorrowers() const;

 private:
  HostArena(UniqueFd fd, std::uint64_t size_bytes, PageKind page_kind);
  Result<UniqueFd> Open(int flags) const;
  Result<UniqueFd> Reopen(int flags) const;
  Result<UniqueFd> ReopenWithoutWriters();
  UniqueFd fd_;
  std::uint64_t size_bytes_ = 0;
  PageKind page_kind_ = PageKind::kSmall;
  bool sealed_ = false;
  bool was_lent_writable_ = false;
};

// A sealed memfd with a copy of `bytes`: manifests, plans and long replies travel in one.
// Errors: kOutOfMemory.
Result<UniqueFd> SealedCopy(const std::string& name, std::span<const std::uint8_t> bytes);

// Memory of a descriptor, mapped while this lives. Through Boost.Interprocess.
class Mapping {
 public:
  // Errors: kOutOfMemory (address space), kPermissionDenied (writable, of a sealed arena), kCorrupt
  //   when the descriptor is shorter than `size_bytes`.
  static Result<Mapping> ReadOnly(int fd, std::uint64_t size_bytes);
  static Result<Mapping> Writable(int fd, std::uint64_t size_bytes);

  Mapping(Mapping&&) noexcept;
  Mapping& operator=(Mapping&&) noexcept;
  ~Mapping();

  // Asks the kernel to use huge pages where it allows them for shared memory; no error where not.
  // For pages that are not there yet.
  void PreferHugePages();

  // Makes the pages of [offset, offset + size_bytes) present, huge ones where the kernel can join
  // them (Linux 6.1, whatever shmem_enabled says), so that their memory is charged to the calling
  // process' cgroup and no reader ever faults for want of memory. Requires Writable().
  // Errors: kOutOfMemory. Past a cgroup's limit the kernel may kill the caller instead: only a
  // loader calls it. Blocking: about a second for each 2 GiB. Any thread, several at once.
  Status Populate(std::uint64_t offset, std::uint64_t size_bytes);

  // How much of this mapping is in huge pages now, as /proc/self/smaps says. Bytes; 0 when unknown.
  std::uint64_t HugeBytes() const;

  std::span<const std::uint8_t> bytes() const;
  std::span<std::uint8_t> writable_bytes();  // requires Writable()

 private:
  struct Region;
  explicit Mapping(std::unique_ptr<Region> region);
  std::unique_ptr<Region> region_;
};

}  // namespace sticky::device

#endif  // STICKY_DEVICE_HOST_ARENA_H_
