// Spawner: starts programs from a thread that has a table of descriptors of its own, in which there
// are none but the standard ones.
//
// A child begins with a copy of its maker's descriptors, and closes them when it becomes another
// program; until it has, its maker waits. With the daemon's own table the daemon would wait for
// every file of a client's to be closed, which a file system that hangs never ends (see closer.h).
//
// Thread: one thread at a time.
// Source: close_range(2) "CLOSE_RANGE_UNSHARE", posix_spawn(3).

#ifndef STICKY_DAEMON_IO_SPAWNER_H_
#define STICKY_DAEMON_IO_SPAWNER_H_

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sticky::daemon {

class Spawner {
 public:
  struct Command {
    std::string program;
    std::vector<std::string> arguments;
    int channel = -1;       // the child's descriptor 3; none: it has none
    int error_output = -1;  // the child's standard error; none: ours
  };

  // To be made before there is any descriptor of a client's. Where the kernel refuses a table of
  // its own (a container may), children begin with the daemon's. Errors: kOutOfMemory.
  static Result<std::unique_ptr<Spawner>> Create();
  ~Spawner();

  // Starts a program with empty standard input and output, every signal at its default, and no
  // other descriptor. The caller reaps it. Descriptors stay the caller's. Blocking: until the child
  // is that program. Errors: those of execve(2).
  Result<pid_t> Spawn(const Command& command);

 private:
  struct Job;
  Spawner() = default;
  static int Do(Job& job, const std::vector<UniqueFd>& fds);
  void Run(int number);  // of the other end; in the thread

  UniqueFd jobs_;       // our end; the thread ends when it is closed
  Job* job_ = nullptr;  // the thread's from Spawn's frame until its own
  std::thread thread_;
};

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_IO_SPAWNER_H_
