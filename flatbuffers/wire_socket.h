// Frames and descriptors over stickyd's Unix socket: one code for the shim, the tools, the loader
// and, in its non-blocking form, the daemon's loop.
//
// Sockets are SOCK_SEQPACKET, so a frame arrives whole or not at all. They may be blocking or not:
// no function here waits inside a socket call, each waits in poll(2) until its deadline. Received
// descriptors are close-on-exec.
//
// Two kinds of kUnavailable are told apart by os_code as well as by the message: ETIMEDOUT when the
// deadline has passed, EPIPE when the peer has closed the connection.
//
// Thread: any thread; one thread at a time for each direction of one socket.
// Source: unix(7), cmsg(3).

#ifndef STICKY_FLATBUFFERS_WIRE_SOCKET_H_
#define STICKY_FLATBUFFERS_WIRE_SOCKET_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace sticky::wire {

// Longest path of a Unix socket, in bytes, without its NUL: the kernel's sun_path.
inline constexpr std::size_t kSocketPathBytesMax = 107;

struct Frame {
  std::vector<std::uint8_t> bytes;  // aligned to 8, as operator new gives them
  std::vector<UniqueFd> fds;
  bool rights_refused = false;  // it had descriptors, and was taken without them
};

// Errors: kInvalidArgument, naming the path and its length, when `path` is empty or too long.
Status CheckSocketPath(const std::string& path);

// $STICKYINVOC_SOCKET, else $XDG_RUNTIME_DIR/stickyinvoc/stickyd.sock, else
// /run/stickyinvoc/stickyd.sock. A variable that is set to nothing counts as not set.
// Errors: as CheckSocketPath.
Result<std::string> DefaultSocketPath();

// A connected socket. Blocking: until `deadline` while the daemon's backlog is full.
// Errors: kUnavailable (no daemon there, or no answer in time), kPermissionDenied, kInvalidArgument
//   (as CheckSocketPath), kOutOfMemory (no descriptors).
Result<UniqueFd> Connect(const std::string& path, Deadline deadline);

// Sends one frame of at most kFrameBytesMax bytes with at most kFdsPerFrameMax descriptors, which
// stay the caller's.
// Errors: kInvalidArgument past those limits, kUnavailable, kOutOfMemory.
Status SendFrame(int socket, std::span<const std::uint8_t> bytes, std::span<const int> fds,
                 Deadline deadline);

// The next frame. Errors: kUnavailable (deadline passed, peer closed); kCorrupt when the frame or
// its descriptors were cut short, all of which are closed then: close the connection.
Result<Frame> ReceiveFrame(int socket, Deadline deadline);

// As SendFrame, without waiting: false when the socket has no room now.
Result<bool> TrySend(int socket, std::span<const std::uint8_t> bytes, std::span<const int> fds);

// As ReceiveFrame, without waiting: nothing when no frame is there now.
Result<std::optional<Frame>> TryReceive(int socket);

// As TryReceive, for whoever must not close a stranger's descriptors here, which can take for ever:
// they come in `frame.fds` also when it fails, and Rights::kRefuse never makes them ours. Whether
// a frame is there; `frame` is one of no bytes before.
enum class Rights : std::int8_t { kTake = 0, kRefuse };
Result<bool> TryReceiveInto(int socket, Rights rights, Frame& frame);

}  // namespace sticky::wire

#endif  // STICKY_FLATBUFFERS_WIRE_SOCKET_H_
