// A FakeDaemon as a program, for tests that are not written in C++. Prints the path of its socket,
// then answers each line on its standard input with "<accepted> <closed> <borrowed>": connections
// so far, those that have ended, and whether anyone holds or maps the arena. Ends with its input.

#include <cstdio>

#include "tests/testing/fake_daemon.h"

int main() {
  using sticky::testing::FakeDaemon;
  const sticky::testing::SampleState sample;
  FakeDaemon daemon(FakeDaemon::Honest(sample));
  std::printf("%s\n", daemon.path().c_str());
  std::fflush(stdout);
  char line[64];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    std::printf("%d %d %d\n", daemon.accepted_count(), daemon.closed_count(),
                sample.arena().HasBorrowers().value() ? 1 : 0);
    std::fflush(stdout);
  }
  return 0;
}
