// Keeper: the process that keeps descriptors for the daemon, so that what they hold outlives it:
// systemd for a service, sticky-keeper for anybody else. Both speak the same protocol.
//
// What is kept is passed to the next daemon that the keeper starts (daemon/io/inherited.h), under
// the same name. A message that has been sent is kept, even when its sender is killed right after.
//
// Thread: loop thread only.
// Source: sd_notify(3), sd_pid_notify_with_fds(3): FDSTORE=1, FDNAME=, FDPOLL=0, FDSTOREREMOVE=1,
// BARRIER=1; systemd.exec(5) for $FDSTORE, the most descriptors that are kept.

#ifndef STICKY_DAEMON_IO_KEEPER_H_
#define STICKY_DAEMON_IO_KEEPER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "daemon/io/loop.h"

namespace sticky::daemon {

class Keeper {
 public:
  // Most descriptors under one name: what one message carries (SCM_MAX_FD of the kernel).
  static constexpr std::size_t kFdsPerNameMax = 253;
  // Most messages that wait for a keeper who does not read; past it the keeper is lost.
  static constexpr std::size_t kQueueMax = 1024;
  // For a store that somebody waits for.
  static constexpr std::int64_t kPatienceNs = 2'000'000'000;

  // Finds out from the environment who keeps, if anybody does.
  explicit Keeper(Loop& loop);
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // "systemd", "sticky-keeper" or "none"; static text. As it was at the start.
  const char* name() const { return name_; }
  bool is_there() const { return socket_.valid(); }
  // There was one, and it is gone: what it kept is kept by this process alone.
  bool is_lost() const { return lost_; }
  // Looks whether it is still there. Cheap: call it every few seconds.
  void Check();

  // How many descriptors it has, and may have.
  std::uint32_t fd_count() const { return fd_count_; }
  std::uint32_t fd_count_max() const { return fd_count_max_; }
  // Counts what the keeper has from an earlier daemon.
  void Has(const std::string& name, std::size_t fd_count);

  // Has duplicates of `fds` (1 to kFdsPerNameMax) kept under `name`. done: called once, perhaps at
  // once: whether the message is on its way. It is not when there is no keeper, or it is full, or
  // does not read for kPatienceNs, unless the message is `patient`.
  void Store(const std::string& name, std::span<const int> fds, bool patient,
             std::function<void(bool)> done);

  // Has what is kept under `name` closed. done: called once, perhaps at once, when the keeper has
  // done it, or is gone.
  void Remove(const std::string& name, std::function<void()> done);

 private:
  struct Message {
    std::string text;
    std::vector<UniqueFd> fds;
    std::function<void(bool sent)> done;
    std::string stored;           // the name, of a store
    std::int64_t expires_ns = 0;  // monotonic; 0: never
  };
  struct Barrier {
    UniqueFd reader;
    std::unique_ptr<Poller> poller;
    std::function<void()> done;
  };
  void Send(Message message);
  void Flush();
  void Retry();
  void DropExpired();
  void Lacks(const std::string& name);
  void Lose();
  void AddBarrier(std::function<void()> done);
  void EndBarrier(std::uint64_t number);

  Loop& loop_;
  Timer retry_;
  const char* name_ = "none";
  UniqueFd socket_;
  bool lost_ = false;
  bool is_parent_ = false;
  int parent_ = 0;
  std::uint32_t fd_count_ = 0;
  std::uint32_t fd_count_max_ = 0;
  std::map<std::string, std::uint32_t> names_;  // descriptors under each
  std::deque<Message> queue_;
  std::map<std::uint64_t, Barrier> barriers_;
  std::uint64_t next_barrier_ = 1;
};

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_IO_KEEPER_H_
