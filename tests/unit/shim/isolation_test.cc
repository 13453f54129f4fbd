// Attaching from inside a job's own /tmp, /dev/shm and process ids works, since nothing is handed
// over by name. Daemon case 25, field case S03.

#include <cerrno>
#include <cstring>

#include <sched.h>
#include <sys/mount.h>

#include "tests/unit/shim/shim_fixture.h"

namespace sticky::shim {
namespace {

using sticky::testing::FakeDaemon;
using sticky::testing::SampleState;

constexpr int kNotPermitted = 77;

bool Hide(const char* folder) { return ::mount("none", folder, "tmpfs", 0, "size=1m") == 0; }

class IsolationTest : public ShimTest {
 protected:
  // As a scheduler sets a job up; then attaches there.
  int AttachInANamespace() {
    const int own = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC;
    if (::unshare(own) != 0 && ::unshare(own | CLONE_NEWUSER) != 0) return kNotPermitted;
    ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (!Hide("/tmp") || !Hide("/dev/shm")) return kNotPermitted;
    const int status = InChild([&] {  // the first child is in the new process-id namespace
      if (::getpid() != 1) return 1;
      const StatePtr state = Attach(daemon_);
      if (state == nullptr) return 2;
      sti_tensor tensor{};
      if (sti_tensor_find(state.get(), "tied", &tensor, nullptr) != STI_OK) return 3;
      return *static_cast<const std::uint8_t*>(tensor.data) == SampleState::ByteAt(12 * 256) ? 0
                                                                                             : 4;
    });
    return WIFEXITED(status) ? WEXITSTATUS(status) : 5;
  }

  SampleState sample_;
  FakeDaemon daemon_{FakeDaemon::Honest(sample_), "/var/tmp"};
};

TEST_F(IsolationTest, AJobWithItsOwnTmpAndShmAttaches) {
  const int status = InChild([&] { return AttachInANamespace(); });
  if (Exited(status, kNotPermitted)) GTEST_SKIP() << "namespaces are not permitted here";

  EXPECT_TRUE(Exited(status, 0)) << WEXITSTATUS(status);
  EXPECT_TRUE(daemon_.WaitForClosed(1));
}

}  // namespace
}  // namespace sticky::shim
