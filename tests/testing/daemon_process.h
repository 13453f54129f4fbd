// DaemonProcess: the real stickyd, in a folder of its own, for tests of every room.
//
//   DaemonProcess daemon;                    // started and answering, or the test has failed
//   ... Connect(daemon.socket_path()) ...
//
// Thread: one thread at a time.

#ifndef STICKY_TESTS_TESTING_DAEMON_PROCESS_H_
#define STICKY_TESTS_TESTING_DAEMON_PROCESS_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/process.h"
#include "tests/testing/wire_client.h"

namespace sticky::testing {

// Where the build tree keeps bin/ and libexec/; STICKY_TEST_PREFIX names an installed one instead.
std::string ProgramPrefix();

struct DaemonOptions {
  std::vector<std::string> arguments;  // besides --socket
  std::string config;                  // text of a node config; empty: none
  std::vector<std::pair<std::string, std::string>> environment;
  std::string program;  // empty: the real one
  bool kept = false;    // sticky-keeper starts it, and starts it again
  std::function<void()> before_exec;
};

class DaemonProcess {
 public:
  explicit DaemonProcess(const DaemonOptions& options = {});
  // Ends it with SIGTERM, and with SIGKILL when that does not help; then shows its log if the test
  // has failed.
  ~DaemonProcess();

  // Of stickyd; -1 when a kept one is not running just now.
  pid_t pid() const;
  // Of a kept daemon, the keeper.
  Process& process() { return process_; }
  const TempFolder& folder() const { return folder_; }
  std::string socket_path() const { return folder_ / "run/stickyd.sock"; }
  std::string log() const { return ReadText(folder_ / "log"); }

  WireClient Client() const;  // connected; aborts the test program when that fails
  // Starts the same daemon again, after it was ended.
  void Restart();
  // Kills a kept daemon with SIGKILL, and waits until the next one answers.
  void KillAndWait();
  // Waits until the lease count is what it should be.
  bool LeaseCountBecomes(std::uint32_t count, std::int64_t deadline_ms = 5000) const;
  std::optional<pid_t> LoaderPid() const;
  // Under a sanitizer, which keeps freed memory for a while, nothing is expected.
  void ExpectResidentBelow(std::uint64_t limit_bytes) const;

 private:
  void Start();
  bool Answers() const;

  TempFolder folder_;
  DaemonOptions options_;
  Process process_;
};

// A tree with stickyd and, as its loader, the shell script `loader_script`; with none when that is
// empty. Returns the path of stickyd.
std::string MakeProgramTree(const TempFolder& folder, const std::string& loader_script);

}  // namespace sticky::testing

#endif  // STICKY_TESTS_TESTING_DAEMON_PROCESS_H_
