#include "flatbuffers/wire_blob.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

namespace sticky::wire {
namespace {

constexpr int kSealsWanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

// What huge pages of shared memory are aligned to, on x86-64 and on arm64 with 4 KiB pages.
constexpr std::size_t kHugePageBytes = 2u << 20;

// Read-only memory of all of `fd`, or MAP_FAILED. A mapping that could hold a huge page begins on
// one: otherwise the kernel maps what lies in huge pages by small ones, which made touching all of
// a state eight times slower. The kernel does this by itself only where the node's settings say so.
void* MapAligned(int fd, std::size_t size_bytes) {
  const auto map = [&](void* at, int flags) {
    return ::mmap(at, size_bytes, PROT_READ, MAP_SHARED | flags, fd, 0);
  };
  if (size_bytes < kHugePageBytes) return map(nullptr, 0);
  const std::size_t reserved_bytes = size_bytes + kHugePageBytes;
  void* reserved = ::mmap(nullptr, reserved_bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return map(nullptr, 0);
  auto* const begin = static_cast<std::uint8_t*>(reserved);
  const std::size_t head_bytes = -reinterpret_cast<std::uintptr_t>(begin) & (kHugePageBytes - 1);
  void* const at = map(begin + head_bytes, MAP_FIXED);
  if (at == MAP_FAILED) {
    ::munmap(reserved, reserved_bytes);
    return map(nullptr, 0);  // pages of another size, which have an alignment of their own
  }
  if (head_bytes > 0) ::munmap(begin, head_bytes);
  // The mapping ends at a page, wherever its bytes end.
  const auto page_bytes = static_cast<std::size_t>(::getpagesize());
  const std::size_t used_bytes =
      head_bytes + (size_bytes + page_bytes - 1) / page_bytes * page_bytes;
  if (used_bytes < reserved_bytes) ::munmap(begin + used_bytes, reserved_bytes - used_bytes);
  return at;
}

}  // namespace

Result<std::uint64_t> SealedSize(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) return Error{Code::kCorrupt, "check seals: not a memfd that can be sealed", errno};
  if ((seals & kSealsWanted) != kSealsWanted) {
    return Error{Code::kCorrupt,
                 Format("check seals: the memfd has seals 0x%x, want at least 0x%x (write, shrink "
                        "and grow)",
                        static_cast<unsigned>(seals), static_cast<unsigned>(kSealsWanted))};
  }
  // Not fstat: glibc 2.33 gave it a new symbol version, and the shim runs on older ones.
  struct statx facts {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &facts) != 0)
    return ErrnoError("stat memfd", errno);
  return std::uint64_t{facts.stx_size};
}

Result<SealedView> SealedView::Map(int fd, std::uint64_t size_bytes_max) {
  STICKY_ASSIGN(const std::uint64_t size_bytes, SealedSize(fd));
  if (size_bytes == 0 || size_bytes > size_bytes_max) {
    return Error{Code::kCorrupt, Format("map memfd: it has %llu bytes, want 1 to %llu",
                                        static_cast<unsigned long long>(size_bytes),
                                        static_cast<unsigned long long>(size_bytes_max))};
  }
  void* at = MapAligned(fd, size_bytes);
  if (at == MAP_FAILED) return ErrnoError("map memfd", errno);
  return SealedView({static_cast<const std::uint8_t*>(at), size_bytes});
}

SealedView::~SealedView() {
  if (!bytes_.empty()) ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());
}

Result<UniqueFd> MakeBlob(std::span<const std::uint8_t> bytes) {
  UniqueFd fd(::memfd_create("stickyinvoc-blob", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoError("make a memfd", errno);
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoError("fill a memfd", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSealsWanted | F_SEAL_SEAL) != 0) {
    return ErrnoError("seal a memfd", errno);
  }
  return fd;
}

Result<Received> DecodeFrame(Frame frame, std::uint32_t* request_id_out) {
  Received out;
  STICKY_ASSIGN(out.message, Decode(frame.bytes, request_id_out));
  out.fds = std::move(frame.fds);
  const Blob* blob = std::get_if<Blob>(&out.message.body);
  if (blob == nullptr) return out;

  if (out.fds.empty()) return Error{Code::kCorrupt, "decode blob: its memfd is missing"};
  STICKY_ASSIGN(const SealedView view, SealedView::Map(out.fds[0].get(), kBlobBytesMax));
  if (view.bytes().size() != blob->size_bytes) {
    return Error{Code::kCorrupt,
                 Format("decode blob: its memfd has %zu bytes, want %llu", view.bytes().size(),
                        static_cast<unsigned long long>(blob->size_bytes))};
  }
  STICKY_ASSIGN(out.message, Decode(view.bytes(), request_id_out));
  if (std::holds_alternative<Blob>(out.message.body)) {
    return Error{Code::kCorrupt, "decode blob: a blob inside a blob"};
  }
  out.fds.erase(out.fds.begin());
  return out;
}

Status SendMessage(int socket, const Message& message, std::span<const int> fds,
                   Deadline deadline) {
  const std::vector<std::uint8_t> bytes = Encode(message);
  if (bytes.size() <= kFrameBytesMax) return SendFrame(socket, bytes, fds, deadline);
  if (bytes.size() > kBlobBytesMax) {
    return Error{Code::kInvalidArgument,
                 Format("send message: %zu bytes, want at most %llu", bytes.size(),
                        static_cast<unsigned long long>(kBlobBytesMax))};
  }
  STICKY_ASSIGN(const UniqueFd blob, MakeBlob(bytes));
  std::vector<int> all{blob.get()};
  all.insert(all.end(), fds.begin(), fds.end());
  return SendFrame(socket, Encode({message.request_id, Blob{bytes.size()}}), all, deadline);
}

Result<Received> ReceiveMessage(int socket, Deadline deadline) {
  STICKY_ASSIGN(Frame frame, ReceiveFrame(socket, deadline));
  return DecodeFrame(std::move(frame));
}

}  // namespace sticky::wire
