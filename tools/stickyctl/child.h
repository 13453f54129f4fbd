// Child: a command that runs beside stickyctl and inherits one descriptor. It is sent SIGTERM when
// stickyctl ends before it, however that ends.
//
// Thread: one thread at a time.
// Source: pidfd_open(2), prctl(2) on PR_SET_PDEATHSIG.

#ifndef STICKY_TOOLS_STICKYCTL_CHILD_H_
#define STICKY_TOOLS_STICKYCTL_CHILD_H_

#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sticky::stickyctl {

class Child {
 public:
  struct Options {
    std::vector<std::string> words;  // the command, at least one; found as a shell finds it
    int inherited = -1;              // a descriptor that it gets under the same number
    bool prints_to_stderr = false;   // its standard output is our standard error
  };
  // Errors: of fork and exec, by errno; kNotFound: there is no such command.
  static Result<Child> Start(const Options& options);

  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), ended_(std::move(other.ended_)) {}
  Child& operator=(Child&&) = delete;
  ~Child() { static_cast<void>(Wait()); }

  // Readable once it has ended.
  int ended_fd() const { return ended_.get(); }
  void Signal(int number) const;
  // Its exit code, or 128 and the number of the signal that ended it. Blocking: until it ends.
  int Wait();

 private:
  Child(pid_t pid, UniqueFd ended) : pid_(pid), ended_(std::move(ended)) {}

  pid_t pid_;  // -1: it has been waited for
  UniqueFd ended_;
};

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_CHILD_H_
