#include "daemon/load/fd_byte_source.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

namespace sticky::load {
namespace {

struct Identity {
  std::int64_t size_bytes, modified_ns;
};

// Negative when the descriptor cannot be asked: then nothing compares equal later.
Identity IdentityOf(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return {-1, -1};
  return {status.st_size, static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 +
                              status.st_mtim.tv_nsec};
}

}  // namespace

FdByteSource::FdByteSource(UniqueFd fd, std::string name, ReadBy by, const DirectFile::Calls& calls)
    : fd_(std::move(fd)), name_(std::move(name)) {
  const Identity identity = IdentityOf(fd_.get());
  size_bytes_ = identity.size_bytes;
  modified_ns_ = identity.modified_ns;
  ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);  // only a hint: it may fail
  if (by == ReadBy::kDisk && size_bytes_ > 0) {
    direct_ = DirectFile::Open(fd_.get(), static_cast<std::uint64_t>(size_bytes_), calls);
  }
}

Status FdByteSource::ReadAt(std::uint64_t offset, std::span<std::uint8_t> out) const {
  if (!direct_) return ReadThroughCache(offset, out);
  while (!out.empty()) {
    const auto piece = out.first(std::min<std::size_t>(out.size(), DirectFile::kPieceBytes));
    const std::size_t done = direct_->ReadIfCold(offset, piece);
    STICKY_TRY(ReadThroughCache(offset + done, piece.subspan(done)));
    offset += piece.size();
    out = out.subspan(piece.size());
  }
  return Ok{};
}

Status FdByteSource::ReadThroughCache(std::uint64_t offset, std::span<std::uint8_t> out) const {
  for (std::size_t done = 0; done < out.size();) {
    const std::uint64_t at = offset + done;
    const ssize_t got =
        ::pread(fd_.get(), out.data() + done, out.size() - done, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return ErrnoError(
          Format("read '%s' at %llu", Escape(name_).c_str(), static_cast<unsigned long long>(at)),
          errno);
    }
    if (got == 0) {
      return Error{Code::kCorrupt,
                   Format("read '%s': it ends at %llu, expected %llu bytes more: it changed while "
                          "it was read",
                          Escape(name_).c_str(), static_cast<unsigned long long>(at),
                          static_cast<unsigned long long>(out.size() - done))};
    }
    done += static_cast<std::size_t>(got);
  }
  return Ok{};
}

Status FdByteSource::CheckUnchanged() const {
  const Identity now = IdentityOf(fd_.get());
  if (now.size_bytes == size_bytes_ && now.modified_ns == modified_ns_ && size_bytes_ >= 0) {
    return Ok{};
  }
  return Error{Code::kCorrupt, Format("read '%s': it changed while it was loaded (%lld bytes, "
                                      "were %lld); load it again",
                                      Escape(name_).c_str(), static_cast<long long>(now.size_bytes),
                                      static_cast<long long>(size_bytes_))};
}

}  // namespace sticky::load
