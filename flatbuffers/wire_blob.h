// Messages with their descriptors, whatever their size: what does not fit into a frame travels as
// a sealed memfd beside a Blob. Also SealedView, sealed bytes mapped for reading.
//
// Thread: any thread; one thread at a time for each direction of one socket.
// Source: memfd_create(2), fcntl(2) "File sealing".

#ifndef STICKY_FLATBUFFERS_WIRE_BLOB_H_
#define STICKY_FLATBUFFERS_WIRE_BLOB_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "flatbuffers/wire_codec.h"
#include "flatbuffers/wire_socket.h"

namespace sticky::wire {

// Checks that `fd` is a memfd that nobody can write to, cut or extend any more, and gives its
// size in bytes.
// Errors: kCorrupt when it is not sealed so.
Result<std::uint64_t> SealedSize(int fd);

// The bytes of a sealed memfd, mapped read-only while this lives. Move-only.
class SealedView {
 public:
  SealedView() = default;
  // Maps all of `fd`, which may be closed afterwards; its pages cannot change or vanish any more.
  // Errors: as SealedSize; kCorrupt when it has 0 or more than `size_bytes_max` bytes;
  // kOutOfMemory.
  static Result<SealedView> Map(int fd, std::uint64_t size_bytes_max);

  SealedView(SealedView&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  SealedView& operator=(SealedView&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~SealedView();

  // Aligned to a page, and to 2 MiB when there are that many, so that huge pages are mapped whole.
  std::span<const std::uint8_t> bytes() const { return bytes_; }

 private:
  explicit SealedView(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  std::span<const std::uint8_t> bytes_;
};

// A memfd with a copy of `bytes`, sealed against every change. Errors: kOutOfMemory.
Result<UniqueFd> MakeBlob(std::span<const std::uint8_t> bytes);

struct Received {
  Message message;
  std::vector<UniqueFd> fds;  // the message's own; a Blob's memfd is not among them
};

// The message of `frame`, out of the Blob's memfd (its first descriptor) when it travelled so.
// Errors: as Decode, and kCorrupt when the memfd is not sealed or not of the size that was said.
Result<Received> DecodeFrame(Frame frame, std::uint32_t* request_id_out = nullptr);

// Encodes and sends; `fds` stay the caller's. Blocking: until `deadline`.
// Errors: as SendFrame; kInvalidArgument past kBlobBytesMax.
Status SendMessage(int socket, const Message& message, std::span<const int> fds, Deadline deadline);

// The next message. Blocking: until `deadline`. Errors: as ReceiveFrame and DecodeFrame.
Result<Received> ReceiveMessage(int socket, Deadline deadline);

}  // namespace sticky::wire

#endif  // STICKY_FLATBUFFERS_WIRE_BLOB_H_
