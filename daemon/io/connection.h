// Connection: one SEQPACKET socket on the loop, with whole frames in and a bounded queue of frames
// out. Used for clients and for the channel to a loader.
//
// Thread: loop thread only. Destroy it through Loop::Bury.

#ifndef STICKY_DAEMON_IO_CONNECTION_H_
#define STICKY_DAEMON_IO_CONNECTION_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/io/closer.h"
#include "daemon/io/loop.h"
#include "flatbuffers/wire_codec.h"
#include "flatbuffers/wire_socket.h"

namespace sticky::daemon {

class Connection {
 public:
  // Most frames that wait for a peer who does not read; past it the connection is closed.
  static constexpr std::size_t kQueueMax = 64;
  // And most bytes of them, what travels in a Blob's memory included.
  static constexpr std::size_t kQueueBytesMax = 16u << 20;
  // Most frames taken from one peer before the others have their turn.
  static constexpr int kFramesPerTurn = 16;

  struct Frame {
    std::vector<std::uint8_t> bytes;
    ForeignFds fds;
    // It came with descriptors, of which no more are taken from this user: see Closer::PressureOf.
    bool fds_refused = false;
  };
  struct Callbacks {
    std::function<void(Frame)> on_frame;
    // The connection is of no use any more; `why` is empty when the peer just closed it. Called at
    // most once, from the loop and never from within Send.
    std::function<void(std::string why)> on_closed;
  };

  // owner: the uid of the peer, or Closer::kOurChildren. closer: not owned.
  static Result<std::unique_ptr<Connection>> Create(Loop& loop, Closer& closer, std::uint32_t owner,
                                                    UniqueFd socket, Callbacks callbacks);
  ~Connection();

  // Sends or queues. A message that does not fit into a frame goes as a Blob. When the queue is
  // full, or the socket fails, nothing is sent and on_closed follows on the loop's next turn.
  // foreign: come after `fds`.
  void Send(const wire::Message& message, std::vector<UniqueFd> fds, ForeignFds foreign = {});

  // No frame is delivered from here on; on_closed follows once what is queued has been sent.
  void CloseAfterSending(std::string why);

  // Delivers the frames that are there already, at most `frame_count_max` of them.
  void Drain(int frame_count_max) { Read(frame_count_max); }

  std::size_t queued() const { return queue_.size(); }

 private:
  struct Outgoing {
    std::vector<std::uint8_t> bytes;
    std::vector<UniqueFd> fds;
    ForeignFds foreign;
    std::size_t cost_bytes = 0;
  };

  Connection(Loop& loop, Closer& closer, std::uint32_t owner, UniqueFd socket, Callbacks callbacks);
  void OnReady(bool readable, bool writable);
  void Pause();
  void Read(int frame_count_max);
  void Flush();
  Result<bool> TrySend(const Outgoing& frame);
  void Fail(std::string why);

  Closer& closer_;
  const std::uint32_t owner_;
  UniqueFd socket_;
  Callbacks callbacks_;
  Timer closing_;  // fires at once, so that on_closed comes from the loop
  std::unique_ptr<Poller> poller_;
  Timer retry_;  // while too many descriptors are on their way to anyone, or wait to be closed
  std::deque<Outgoing> queue_;
  std::size_t queued_bytes_ = 0;
  std::string why_;
  bool failed_ = false;
  bool ending_ = false;
};

// Ends a connection: the peer sees it at once. Frames that nobody has read may hold descriptors,
// which go with the socket; then the closer closes it.
void CloseSocket(UniqueFd socket, Closer& closer, std::uint32_t owner);

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_IO_CONNECTION_H_
