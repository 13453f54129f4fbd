#include "daemon/load/direct_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/text.h"

namespace sticky::load {
namespace {

// A piece anywhere in a file, rounded out to whole aligned stretches, fits into it.
struct Buffer {
  alignas(DirectFile::kAlignment)
      std::array<std::uint8_t, DirectFile::kPieceBytes + 2 * DirectFile::kAlignment> bytes;
};

// One a thread, so that there are never more of them than threads.
std::span<std::uint8_t> ThreadsBuffer() {
  thread_local const std::unique_ptr<Buffer> buffer(new Buffer);
  return buffer->bytes;
}

// As can_do_mincore() of the kernel's mm/mincore.c has it; of other files all is said to be there.
bool KernelTellsWhatIsCached(int fd, const std::string& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return false;
  const uid_t us = ::geteuid();
  return us == 0 || us == status.st_uid || ::access(path.c_str(), W_OK) == 0;
}

}  // namespace

std::unique_ptr<DirectFile> DirectFile::Open(int fd, std::uint64_t size_bytes, const Calls& calls) {
  if (size_bytes < kFileBytesMin) return nullptr;
  const std::string path = Format("/proc/self/fd/%d", fd);
  if (!KernelTellsWhatIsCached(fd, path)) return nullptr;
  UniqueFd direct(::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC | O_NONBLOCK));
  if (!direct.valid()) return nullptr;
  void* const pages =
      ::mmap(nullptr, static_cast<std::size_t>(size_bytes), PROT_READ, MAP_SHARED, fd, 0);
  if (pages == MAP_FAILED) return nullptr;
  return std::unique_ptr<DirectFile>(new DirectFile(std::move(direct), pages, size_bytes, calls));
}

DirectFile::DirectFile(UniqueFd fd, void* pages, std::uint64_t size_bytes, const Calls& calls)
    : fd_(std::move(fd)), pages_(pages), size_bytes_(size_bytes), calls_(calls) {}

DirectFile::~DirectFile() { ::munmap(pages_, static_cast<std::size_t>(size_bytes_)); }

DirectFile::Pages DirectFile::PagesOf(std::uint64_t begin, std::uint64_t end) const {
  constexpr std::uint64_t kPageBytesMin = 4096;
  std::array<unsigned char, kPieceBytes / kPageBytesMin + 2> there{};
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  begin = begin / page_bytes * page_bytes;
  end = std::min(end, size_bytes_);
  if (begin >= end) return {};
  void* const first = static_cast<std::uint8_t*>(pages_) + begin;
  if (calls_.mincore(first, static_cast<std::size_t>(end - begin), there.data()) != 0) return {};
  const std::uint64_t count = (end - begin + page_bytes - 1) / page_bytes;
  const auto cached =
      std::count_if(there.begin(), there.begin() + static_cast<std::ptrdiff_t>(count),
                    [](unsigned char page) { return (page & 1) != 0; });
  return {count, static_cast<std::uint64_t>(cached)};
}

std::uint64_t DirectFile::CachedBytes() const {
  constexpr std::uint64_t kLooks = 256;
  std::uint64_t cached = 0;
  for (std::uint64_t i = 0; i < kLooks; ++i) {
    const std::uint64_t at = size_bytes_ / kLooks * i;
    cached += PagesOf(at, at + 1).cached;
  }
  return size_bytes_ / kLooks * cached;
}

std::size_t DirectFile::ReadIfCold(std::uint64_t offset, std::span<std::uint8_t> out) const {
  STICKY_CHECK(out.size() <= kPieceBytes);
  if (out.empty() || refused_.load(std::memory_order_relaxed)) return 0;
  const Pages pages = PagesOf(offset, offset + out.size());
  if (2 * pages.cached >= pages.count) return 0;
  const std::uint64_t begin = offset / kAlignment * kAlignment;
  const std::uint64_t end = (offset + out.size() + kAlignment - 1) / kAlignment * kAlignment;
  const std::span<std::uint8_t> buffer = ThreadsBuffer();
  const ssize_t got = calls_.pread(fd_.get(), buffer.data(), static_cast<std::size_t>(end - begin),
                                   static_cast<off_t>(begin));
  if (got < 0 && errno == EINVAL) refused_ = true;
  const std::uint64_t before = offset - begin;
  if (got < 0 || static_cast<std::uint64_t>(got) <= before) return 0;
  const std::size_t size =
      std::min(out.size(), static_cast<std::size_t>(static_cast<std::uint64_t>(got) - before));
  std::memcpy(out.data(), buffer.data() + before, size);
  return size;
}

}  // namespace sticky::load
