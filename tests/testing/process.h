// Processes that tests start, and what /proc tells about them. Everything started here is ended at
// the latest when its owner is destroyed.
//
// Thread: one thread at a time.

#ifndef STICKY_TESTS_TESTING_PROCESS_H_
#define STICKY_TESTS_TESTING_PROCESS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <signal.h>
#include <sys/types.h>

#include "base/result.h"

namespace sticky::testing {

// Polls `condition` every few milliseconds until it holds or the deadline has passed.
bool WaitUntil(const std::function<bool()>& condition, std::int64_t deadline_ms = 30'000);

// A fresh folder of mode 0700 with a short name (a socket's path has at most 107 bytes), removed
// with everything in it at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

struct ExitStatus {
  int code = -1;   // of exit(), when it exited
  int signal = 0;  // that ended it, when one did
};

class Process {
 public:
  struct Options {
    std::vector<std::string> command;                              // command[0] is a path
    std::vector<std::pair<std::string, std::string>> environment;  // added to ours
    std::string output_path;                                       // of stdout and stderr
    std::function<void()> before_exec;  // in the child; async-signal-safe calls only
  };
  static Process Start(const Options& options);
  // Runs `body` in a forked child, which exits with what it returns.
  static Process Fork(const std::function<int()>& body);

  Process() = default;
  Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Process& operator=(Process&& other) noexcept;
  ~Process() { KillAndReap(); }

  pid_t pid() const { return pid_; }
  void Signal(int number) const;
  // Nothing when it is still running at the deadline.
  std::optional<ExitStatus> Wait(std::int64_t deadline_ms = 30'000);
  void KillAndReap();

 private:
  explicit Process(pid_t pid) : pid_(pid) {}
  pid_t pid_ = -1;
};

std::vector<pid_t> ChildrenOf(pid_t pid);
std::uint64_t ResidentBytes(pid_t pid);
int OpenDescriptors(pid_t pid);
std::string ReadText(const std::string& path);
void WriteText(const std::string& path, const std::string& text);

}  // namespace sticky::testing

#endif  // STICKY_TESTS_TESTING_PROCESS_H_
