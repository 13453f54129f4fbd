// CtlRun: stickyctl run by a test, with its two outputs apart.
//
// Thread: one thread at a time.

#ifndef STICKY_TESTS_TESTING_CTL_RUN_H_
#define STICKY_TESTS_TESTING_CTL_RUN_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "tests/testing/daemon_process.h"
#include "tests/testing/process.h"

namespace sticky::testing {

struct CtlResult {
  int code = -1;  // -1: it did not end in time, or a signal ended it
  int signal = 0;
  std::string out;
  std::string err;
};

// A running stickyctl.
class CtlRun {
 public:
  // words: after the program's name. before_exec: in the child, async-signal-safe calls only.
  // program: another place of the program, when who it runs as cannot reach the usual one.
  explicit CtlRun(const std::vector<std::string>& words,
                  const std::function<void()>& before_exec = {},
                  const std::string& program = ProgramPrefix() + "/bin/stickyctl") {
    Process::Options start;
    start.command = {program};
    start.command.insert(start.command.end(), words.begin(), words.end());
    const std::string out = folder_ / "out";
    const std::string err = folder_ / "err";
    start.before_exec = [out, err, before_exec] {
      ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), STDOUT_FILENO);
      ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), STDERR_FILENO);
      if (before_exec) before_exec();
    };
    process_ = Process::Start(start);
  }

  Process& process() { return process_; }
  std::string out() const { return ReadText(folder_ / "out"); }
  std::string err() const { return ReadText(folder_ / "err"); }

  CtlResult Wait(std::int64_t deadline_ms = 30'000) {
    CtlResult result;
    if (const std::optional<ExitStatus> exit = process_.Wait(deadline_ms)) {
      result.code = exit->code;
      result.signal = exit->signal;
    }
    result.out = out();
    result.err = err();
    return result;
  }

 private:
  TempFolder folder_;
  Process process_;
};

// Runs stickyctl to its end.
inline CtlResult Ctl(const std::vector<std::string>& words,
                     const std::function<void()>& before_exec = {}) {
  return CtlRun(words, before_exec).Wait();
}

}  // namespace sticky::testing

#endif  // STICKY_TESTS_TESTING_CTL_RUN_H_
