// Attaching and letting go, very often, costs the daemon nothing that stays: not one descriptor,
// not one page.

#include <algorithm>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "stickyinvoc/stickyinvoc.h"
#include "tests/testing/daemon_process.h"
#include "tests/testing/matchers.h"

namespace sticky::testing {
namespace {

// Sanitizers are slow, and keep freed memory.
constexpr bool kIsSanitized = !std::string_view(STICKY_SANITIZE).empty();
constexpr int kCycles = kIsSanitized ? 5'000 : 100'000;

// Memory that no file backs, as /proc/PID/status says. kB.
std::uint64_t AnonymousKb(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8));
  }
  ADD_FAILURE() << "no RssAnon";
  return 0;
}

// Once the connections that have just ended are closed: the fewest of a while.
int SettledDescriptors(pid_t pid) {
  int fewest = OpenDescriptors(pid);
  for (int look = 0; look < 50; ++look) {
    ::usleep(10'000);
    fewest = std::min(fewest, OpenDescriptors(pid));
  }
  return fewest;
}

void AttachAndDetach(const DaemonProcess& daemon, int count) {
  sti_attach_options options{};
  options.struct_bytes = sizeof options;
  const std::string path = daemon.socket_path();
  options.socket_path = path.c_str();
  for (int i = 0; i < count; ++i) {
    sti_state* state = nullptr;
    sti_error error{};
    ASSERT_EQ(sti_attach("m", &options, &state, &error), STI_OK) << error.message;
    sti_detach(state);
  }
}

TEST(Flat, ManyAttachesLeaveNotOneDescriptorAndNotOnePage) {
  DaemonProcess daemon;
  const std::string path = daemon.folder() / "m.safetensors";
  WriteTensorFile(path, 1 << 20);
  ASSERT_THAT(daemon.Client().Load(LoadRequestFor("m"), path), IsOk());
  AttachAndDetach(daemon, kCycles / 10);  // the journal fills up, and the heap finds its size
  ASSERT_TRUE(daemon.LeaseCountBecomes(0));
  const int open = SettledDescriptors(daemon.pid());
  const std::uint64_t before_kb = AnonymousKb(daemon.pid());

  AttachAndDetach(daemon, kCycles);

  ASSERT_TRUE(daemon.LeaseCountBecomes(0));
  EXPECT_EQ(SettledDescriptors(daemon.pid()), open);
  if (kIsSanitized) return;
  EXPECT_EQ(AnonymousKb(daemon.pid()), before_kb);
}

}  // namespace
}  // namespace sticky::testing
