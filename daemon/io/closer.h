// Closer: closes descriptors on threads of its own where close(2) may take long: of a file that
// came from a client it belongs to whoever serves its file system (a FUSE server of the client's,
// an NFS server that is away), who may answer never; of large memory it frees every page.
//
// Each user's descriptors wait in a queue of their own, so those of one who hangs keep nobody
// else's open.
//
// Thread: any thread.
// Source: close(2), "NOTES"; Linux Documentation/filesystems/fuse.rst, FUSE_FLUSH.

#ifndef STICKY_DAEMON_IO_CLOSER_H_
#define STICKY_DAEMON_IO_CLOSER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/unique_fd.h"

namespace sticky::daemon {

class Closer {
 public:
  // Most threads that close, of which each may hang; and most of them for one user.
  static constexpr int kThreadsMax = 16;
  static constexpr int kThreadsPerOwnerMax = 2;
  // Most descriptors of one user that are to wait, and how long the first of so many waits before
  // it counts as one that hangs. See PressureOf.
  static constexpr std::size_t kWaitingMax = 1024;
  static constexpr std::int64_t kStuckMs = 1000;
  // In place of a user's id: what our own children send, and memory of ours.
  static constexpr std::uint32_t kOurChildren = 0xffffffff;
  static constexpr std::uint32_t kOurMemory = 0xfffffffe;

  using CloseOne = std::function<void(int fd)>;
  // waiting_max: at least 1; less than kWaitingMax where there are few descriptors at all.
  explicit Closer(
      std::size_t waiting_max = kWaitingMax, CloseOne close_one = [](int fd) { ::close(fd); });
  // Blocking: kPatienceMs at most. What cannot be closed by then is left to the process' end.
  static constexpr std::int64_t kPatienceMs = 200;
  ~Closer();
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;

  // Closes `fds` soon. owner: the uid of whoever they came from. token: let go of, on any thread,
  // when all of `fds` are closed. Without `fds` it only sees to it that there are threads. Never
  // blocks.
  void Close(std::uint32_t owner, std::vector<UniqueFd> fds, std::shared_ptr<void> token = nullptr);

  // What is to become of descriptors that this user sends now. kHigh: enough wait, so let the rest
  // stay where they are for a moment. kStuck: that did not help; take none until some are closed.
  enum class Pressure : std::int8_t { kNone = 0, kHigh, kStuck };
  Pressure PressureOf(std::uint32_t owner) const;

 private:
  struct Shared;
  const std::size_t waiting_max_;
  // Also the threads' own: one that hangs in close(2) outlives this, and never looks at it again
  // once it has found that it ended.
  std::shared_ptr<Shared> shared_;
};

// Descriptors that a client sent, which go to the closer when they are not wanted any more. Without
// a closer there are none. Move-only.
//
// Thread: one thread at a time.
class ForeignFds {
 public:
  ForeignFds() = default;
  // closer: not owned; must outlive this.
  ForeignFds(Closer& closer, std::uint32_t owner, std::vector<UniqueFd> fds)
      : closer_(&closer), owner_(owner), fds_(std::move(fds)) {}
  ForeignFds(ForeignFds&& other) noexcept = default;
  ForeignFds& operator=(ForeignFds&& other) noexcept;
  ~ForeignFds() { Drop(); }

  std::size_t size() const { return fds_.size(); }
  int get(std::size_t index) const { return fds_[index].get(); }

  // Takes those of `other`, which come from the same user.
  void Append(ForeignFds other);
  // The first `count` of them, or all, which are then no longer here.
  ForeignFds TakeFirst(std::size_t count);

 private:
  void Drop();

  Closer* closer_ = nullptr;
  std::uint32_t owner_ = 0;
  std::vector<UniqueFd> fds_;
};

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_IO_CLOSER_H_
