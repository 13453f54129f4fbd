// DirectFile: reads past the page cache (O_DIRECT) of those parts of a file that are not in it.
//
// They are as quick as the disk, take no memory of the page cache and put nobody's files out of it.
// What is in the cache is left to the caller, who copies it from there more quickly.
//
// Thread: any thread, many at once; each keeps a buffer of a piece's size until it ends.
// Source: open(2), "O_DIRECT"; mincore(2).

#ifndef STICKY_DAEMON_LOAD_DIRECT_FILE_H_
#define STICKY_DAEMON_LOAD_DIRECT_FILE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace sticky::load {

class DirectFile {
 public:
  static constexpr std::uint64_t kAlignment = 4096;         // enough for every common disk
  static constexpr std::uint64_t kPieceBytes = 1u << 20;    // read at once
  static constexpr std::uint64_t kFileBytesMin = 1u << 20;  // below it is not worth the trouble

  struct Calls {  // seams for tests
    ssize_t (*pread)(int fd, void* out, std::size_t size_bytes, off_t offset) = ::pread;
    int (*mincore)(void* address, std::size_t size_bytes, unsigned char* pages) = ::mincore;
  };

  // Opens the file of `fd` once more, so that the flags of the caller's own description, which it
  // may share with other processes, stay as they are. Null for small files and where this is not
  // possible: a file system without such reads, or another user's file that we may not write, of
  // which the kernel does not tell what is in the cache.
  static std::unique_ptr<DirectFile> Open(int fd, std::uint64_t size_bytes, const Calls& calls);
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  // Fills the first bytes of `out` (at most kPieceBytes long) from `offset` and returns how many,
  // 0 when at least half of them are in the page cache or the read failed: the rest is for an
  // ordinary read, which also says what is wrong. Blocking: for the disk.
  std::size_t ReadIfCold(std::uint64_t offset, std::span<std::uint8_t> out) const;

  // Bytes of the file that are in the page cache, about: a look at 256 places.
  std::uint64_t CachedBytes() const;

 private:
  DirectFile(UniqueFd fd, void* pages, std::uint64_t size_bytes, const Calls& calls);
  struct Pages {
    std::uint64_t count = 0, cached = 0;
  };
  // Of the bytes [begin, end), at most kPieceBytes; none when that cannot be told.
  Pages PagesOf(std::uint64_t begin, std::uint64_t end) const;

  const UniqueFd fd_;
  void* const pages_;  // the whole file mapped, for mincore alone: no byte of it is ever touched
  const std::uint64_t size_bytes_;
  const Calls calls_;
  mutable std::atomic<bool> refused_{false};  // the disk wants another alignment: not tried again
};

}  // namespace sticky::load

#endif  // STICKY_DAEMON_LOAD_DIRECT_FILE_H_
