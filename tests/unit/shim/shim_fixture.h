// What tests of the C ABI have in common: a clean environment, attaching in one line, and running
// code in a child of fork().

#ifndef STICKY_TESTS_UNIT_SHIM_SHIM_FIXTURE_H_
#define STICKY_TESTS_UNIT_SHIM_SHIM_FIXTURE_H_

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stickyinvoc/stickyinvoc.h"
#include "tests/testing/fake_daemon.h"
#include "tests/testing/sample_state.h"

namespace sticky::shim {

struct Detach {
  void operator()(sti_state* state) const { sti_detach(state); }
};
using StatePtr = std::unique_ptr<sti_state, Detach>;

class ShimTest : public ::testing::Test {
 protected:
  void SetUp() override { ClearEnvironment(); }
  void TearDown() override { ClearEnvironment(); }

  static void ClearEnvironment() {
    for (const char* name : {"STICKYINVOC_SOCKET", "STICKYINVOC_STATE", "STICKYINVOC_LEASE"}) {
      ::unsetenv(name);
    }
  }

  static sti_attach_options Options(const testing::FakeDaemon& daemon) {
    sti_attach_options options{};
    options.struct_bytes = sizeof options;
    options.socket_path = daemon.path().c_str();
    return options;
  }

  // The state, or null with error_ filled.
  StatePtr Attach(const testing::FakeDaemon& daemon, const char* name = "sample") {
    const sti_attach_options options = Options(daemon);
    sti_state* state = nullptr;
    code_ = sti_attach(name, &options, &state, &error_);
    return StatePtr(state);
  }

  static std::size_t OpenFdCount() {
    const auto entries = std::filesystem::directory_iterator("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
  }

  // Runs `body` in a child of fork() and gives its wait status; the child exits with what `body`
  // returns.
  static int InChild(const std::function<int()>& body) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(body());
    int status = -1;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return status;
  }
  static bool Exited(int status, int code) {
    return WIFEXITED(status) && WEXITSTATUS(status) == code;
  }

  int code_ = 0;
  sti_error error_{};
};

}  // namespace sticky::shim

#endif  // STICKY_TESTS_UNIT_SHIM_SHIM_FIXTURE_H_
