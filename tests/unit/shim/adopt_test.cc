// The lease that `stickyctl run` takes for a program is used without asking the daemon, by it and
// by its children; anything that is not such a lease falls back to an ordinary attach.

#include <set>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>

#include "flatbuffers/wire_socket.h"
#include "tests/unit/shim/shim_fixture.h"

namespace sticky::shim {
namespace {

using sticky::testing::FakeDaemon;
using sticky::testing::SampleState;
using ::testing::HasSubstr;

class AdoptTest : public ShimTest {
 protected:
  void SetUp() override {
    ShimTest::SetUp();
    connection_ = wire::Connect(daemon_.path(), Deadline::AfterMs(1000)).value();
    for (const UniqueFd* fd : {&connection_, &manifest_, &arena_}) {
      ASSERT_EQ(::fcntl(fd->get(), F_SETFD, 0), 0);  // as across exec
    }
    ::setenv("STICKYINVOC_SOCKET", daemon_.path().c_str(), 1);
    ::setenv("STICKYINVOC_STATE", "sample", 1);
    SetLease(connection_.get(), manifest_.get(), std::to_string(arena_.get()));
  }

  static void SetLease(int connection, int manifest, const std::string& arenas) {
    const std::string lease =
        std::to_string(connection) + ":" + std::to_string(manifest) + ":" + arenas;
    ::setenv("STICKYINVOC_LEASE", lease.c_str(), 1);
  }

  // Attaches and says whether the lease was adopted; 2 when it failed.
  unsigned AttachAdopts(const char* name = nullptr, const sti_attach_options* options = nullptr) {
    sti_state* raw = nullptr;
    code_ = sti_attach(name, options, &raw, &error_);
    state_.reset(raw);
    if (code_ != STI_OK) return 2;
    sti_state_info info{};
    info.struct_bytes = sizeof info;
    EXPECT_EQ(sti_state_info_get(state_.get(), &info, nullptr), STI_OK);
    EXPECT_EQ(info.lease_id, info.adopted == 1 ? 0u : 42u);
    sti_tensor tensor{};
    EXPECT_EQ(sti_tensor_find(state_.get(), "tied", &tensor, nullptr), STI_OK);
    EXPECT_EQ(*static_cast<const std::uint8_t*>(tensor.data), SampleState::ByteAt(12 * 256));
    return info.adopted;
  }

  SampleState sample_;
  FakeDaemon daemon_{FakeDaemon::Honest(sample_)};
  UniqueFd connection_;
  UniqueFd manifest_ = sample_.ManifestFd();
  UniqueFd arena_ = sample_.LendArena();
  StatePtr state_;
};

TEST_F(AdoptTest, TheInheritedLeaseIsUsedWithoutAsking) {
  EXPECT_EQ(AttachAdopts(), 1u) << error_.message;
  EXPECT_EQ(AttachAdopts("sample"), 1u) << error_.message;

  EXPECT_LE(daemon_.accepted_count(), 1);  // the one that was inherited
}

TEST_F(AdoptTest, DetachLeavesTheInheritedDescriptors) {
  ASSERT_EQ(AttachAdopts(), 1u);
  state_.reset();

  EXPECT_GE(::fcntl(connection_.get(), F_GETFD), 0);
  EXPECT_GE(::fcntl(arena_.get(), F_GETFD), 0);
  EXPECT_EQ(AttachAdopts(), 1u);
}

TEST_F(AdoptTest, TheCopiesAreNotInheritedFurther) {
  std::set<int> before;
  for (int fd = 0; fd < 100; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) before.insert(fd);
  }

  ASSERT_EQ(AttachAdopts(), 1u);

  int copies = 0;
  for (int fd = 0; fd < 100; ++fd) {
    const int flags = ::fcntl(fd, F_GETFD);
    if (flags < 0 || before.contains(fd)) continue;
    ++copies;
    EXPECT_EQ(flags & FD_CLOEXEC, FD_CLOEXEC) << fd;
  }
  EXPECT_LE(copies, 2);  // of the connection, and the fake daemon's end of it
}

TEST_F(AdoptTest, AnInheritedLeaseIsUsedWithTheDaemonGone) {
  daemon_.Stop();

  EXPECT_EQ(AttachAdopts(), 1u) << error_.message;
}

TEST_F(AdoptTest, AnotherStateAsksTheDaemon) {
  ::setenv("STICKYINVOC_STATE", "another", 1);

  EXPECT_EQ(AttachAdopts("sample"), 0u) << error_.message;
}

TEST_F(AdoptTest, AnExplicitSocketAsksTheDaemon) {
  const sti_attach_options options = Options(daemon_);

  EXPECT_EQ(AttachAdopts("sample", &options), 0u) << error_.message;
}

TEST_F(AdoptTest, AnotherPinnedDigestAsksTheDaemon) {
  const std::uint8_t digest[16] = {9};
  sti_attach_options options{};
  options.struct_bytes = sizeof options;
  options.digest = digest;

  EXPECT_EQ(AttachAdopts("sample", &options), 2u);

  EXPECT_EQ(error_.code, STI_CORRUPT);
  EXPECT_EQ(daemon_.accepted_count(), 2);
}

TEST_F(AdoptTest, TextThatIsNoLeaseFallsBack) {
  for (const char* text : {"x", "3", "3:4", "3:4:", "3:4:5,", "3:4:5:6", "-1:4:5", "3: 4:5",
                           "99999999999:4:5", "3:4:5 "}) {
    ::setenv("STICKYINVOC_LEASE", text, 1);
    EXPECT_EQ(AttachAdopts(), 0u) << text << error_.message;
  }
  ::setenv("STICKYINVOC_LEASE", "", 1);
  EXPECT_EQ(AttachAdopts(), 0u);
}

TEST_F(AdoptTest, DescriptorsThatMeanSomethingElseNowFallBack) {
  const std::string arena = std::to_string(arena_.get());
  SetLease(manifest_.get(), manifest_.get(), arena);  // not a socket
  EXPECT_EQ(AttachAdopts(), 0u) << error_.message;
  SetLease(connection_.get(), arena_.get(), arena);  // not a manifest
  EXPECT_EQ(AttachAdopts(), 0u) << error_.message;
  SetLease(connection_.get(), manifest_.get(), "0");  // not a memfd
  EXPECT_EQ(AttachAdopts(), 0u) << error_.message;
  SetLease(connection_.get(), manifest_.get(), "987");  // closed
  EXPECT_EQ(AttachAdopts(), 0u) << error_.message;
  SetLease(connection_.get(), manifest_.get(), arena + "," + arena);  // too many
  EXPECT_EQ(AttachAdopts(), 0u) << error_.message;
  const UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 4096), 0);
  SetLease(connection_.get(), manifest_.get(), std::to_string(unsealed.get()));
  EXPECT_EQ(AttachAdopts(), 0u) << error_.message;
}

TEST_F(AdoptTest, AManifestOfAnotherStateFallsBack) {
  wire::Manifest manifest = sample_.manifest();
  manifest.state = "another";
  const UniqueFd other = SampleState::ManifestFd(manifest);
  SetLease(connection_.get(), other.get(), std::to_string(arena_.get()));

  EXPECT_EQ(AttachAdopts(), 0u) << error_.message;
}

TEST_F(AdoptTest, WhenNothingWorksBothReasonsAreGiven) {
  daemon_.Stop();
  ::setenv("STICKYINVOC_LEASE", "garbage", 1);

  EXPECT_EQ(AttachAdopts(), 2u);

  EXPECT_EQ(error_.code, STI_UNAVAILABLE);
  EXPECT_THAT(error_.message, HasSubstr("STICKYINVOC_LEASE"));
  EXPECT_THAT(error_.message, HasSubstr("start stickyd"));
}

TEST_F(AdoptTest, AnExecutedProgramAdoptsThroughItsEnvironment) {
  // The program of adopt_probe.c, which ends with 0 when it attached by adopting.
  const int status = InChild([] {
    const std::string probe = std::string(STICKY_BUILD_DIR) + "/tests/shim_adopt_probe";
    ::execl(probe.c_str(), probe.c_str(), nullptr);
    return 99;
  });

  EXPECT_TRUE(Exited(status, 0)) << WEXITSTATUS(status);
  EXPECT_LE(daemon_.accepted_count(), 1);
}

}  // namespace
}  // namespace sticky::shim
