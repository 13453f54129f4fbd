// The event loop: descriptors that become ready, timers, signals, and children that exit.
//
// Nothing here may be destroyed from within its own callback; owners put what is done with into
// Loop::Bury, which destroys it on the loop's next turn.
//
// Thread: loop thread only. libuv is not seen outside the .cc files of daemon/io.

#ifndef STICKY_DAEMON_IO_LOOP_H_
#define STICKY_DAEMON_IO_LOOP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sticky::daemon {

class Loop {
 public:
  Loop();
  // Everything made from it must be gone. Blocking: a second at most, for children that were killed
  // and have not ended yet.
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void Run();  // until Stop
  void Stop();

  // Destroys `object` on the loop's next turn. (The loop is the one owner from here on.)
  void Bury(std::shared_ptr<void> object);

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Calls back while the descriptor is readable, or writable when that is asked for.
class Poller {
 public:
  using Callback = std::function<void(bool readable, bool writable)>;
  // fd: not owned; must stay open while this lives. Watches for reading from the start.
  static Result<std::unique_ptr<Poller>> Create(Loop& loop, int fd, Callback callback);
  ~Poller();
  void Watch(bool readable, bool writable);

 private:
  struct Impl;
  explicit Poller(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Timer {
 public:
  Timer(Loop& loop, std::function<void()> callback);
  ~Timer();
  void Start(std::uint64_t after_ms, std::uint64_t repeat_ms);  // no effect while it runs
  void Stop();
  bool active() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class SignalWatcher {
 public:
  SignalWatcher(Loop& loop, int signal, std::function<void()> callback);
  ~SignalWatcher();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A child process. Its input and output are empty. Destroying this kills the child with SIGKILL;
// it is reaped in any case.
class Child {
 public:
  struct Command {
    std::string program;
    std::vector<std::string> arguments;
    UniqueFd channel;       // its descriptor 3; none: it has none
    UniqueFd error_output;  // none: ours
  };
  // on_exit: the exit status, or 128 plus the signal's number.
  static Result<std::unique_ptr<Child>> Spawn(Loop& loop, Command command,
                                              std::function<void(int status)> on_exit);
  ~Child();
  void Kill();  // on_exit follows once it has been reaped
  int pid() const;

 private:
  struct Impl;
  friend class Loop;
  explicit Child(Impl* impl);
  Impl* impl_;  // outlives this until the child has been reaped
};

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_IO_LOOP_H_
