// Facts are what the files of a node say, read below a folder of the test's own; what is not there
// is absent, never a guess.

#include "tools/stickyctl/doctor/gather_facts.h"

#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/unique_fd.h"
#include "flatbuffers/wire_socket.h"
#include "tests/testing/temp_dir.h"

namespace sticky::stickyctl {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

class Gather : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    static_cast<void>(root_.Write(name, text));
  }
  std::string root() const { return root_.path().string(); }

  testing::TempDir root_;
};

TEST_F(Gather, NothingIsKnownOfAnEmptyRoot) {
  EXPECT_EQ(GatherMemory(root()).total_bytes, 0U);
  EXPECT_FALSE(GatherMemory(root()).dev_shm_bytes.has_value());
  EXPECT_EQ(GatherHugePages(root()).shmem_enabled, "");
  EXPECT_FALSE(GatherLimits(root(), "self").open_files.has_value());
  EXPECT_FALSE(GatherGroup(root(), "self").has_value());
  EXPECT_FALSE(GatherKernelSettings(root()).memfd_noexec.has_value());
  EXPECT_EQ(GatherKernelSettings(root()).file_max, kUnlimited);
  EXPECT_EQ(FindGpuSign(root()), "");
}

TEST_F(Gather, MemoryAndHugePages) {
  Write("proc/meminfo",
        "MemTotal:        2048 kB\nMemFree:    12 kB\nMemAvailable:    1024 kB\n"
        "SwapTotal:       3072 kB\nHugePages_Total:       8\nHugePages_Free:        3\n");
  Write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  Write("sys/kernel/mm/transparent_hugepage/defrag", "always defer [never]\n");
  Write("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always advise [deny] force\n");

  EXPECT_EQ(GatherMemory(root()).total_bytes, 2 * kMiB);
  EXPECT_EQ(GatherMemory(root()).available_bytes, kMiB);
  EXPECT_EQ(GatherMemory(root()).swap_bytes, 3 * kMiB);
  const HugePageFacts pages = GatherHugePages(root());
  EXPECT_EQ(pages.enabled, "madvise");
  EXPECT_EQ(pages.defrag, "never");
  EXPECT_EQ(pages.shmem_enabled, "deny");
  EXPECT_EQ(pages.pool_count, 8U);
  EXPECT_EQ(pages.pool_free_count, 3U);
}

TEST_F(Gather, LimitsOfAProcess) {
  Write("proc/77/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max locked memory         65536                unlimited            bytes     \n"
        "Max open files            1024                 4096                 files     \n"
        "Max address space         unlimited            unlimited            bytes     \n");

  const LimitFacts limits = GatherLimits(root(), "77");
  ASSERT_TRUE(limits.open_files && limits.locked_bytes && limits.address_space_bytes);
  EXPECT_EQ(limits.open_files->soft, 1024U);
  EXPECT_EQ(limits.open_files->hard, 4096U);
  EXPECT_EQ(limits.locked_bytes->soft, 65536U);
  EXPECT_EQ(limits.locked_bytes->hard, kUnlimited);
  EXPECT_EQ(limits.address_space_bytes->soft, kUnlimited);
}

TEST_F(Gather, TheTightestGroupOfVersionTwoHolds) {
  Write("proc/77/cgroup", "0::/job/step\n");
  Write("sys/fs/cgroup/job/step/memory.max", "max\n");
  Write("sys/fs/cgroup/job/step/memory.current", "10\n");
  Write("sys/fs/cgroup/job/memory.max", "1000\n");
  Write("sys/fs/cgroup/job/memory.current", "400\n");
  Write("sys/fs/cgroup/job/step/memory.swap.max", "max\n");
  Write("sys/fs/cgroup/job/memory.swap.max", "0\n");

  const std::optional<GroupFacts> group = GatherGroup(root(), "77");
  ASSERT_TRUE(group.has_value());
  EXPECT_EQ(group->path, "/job/step");
  EXPECT_EQ(group->limit_bytes, 1000U);
  EXPECT_EQ(group->left_bytes, 600U);
  EXPECT_EQ(group->swap_limit_bytes, 0U);
}

TEST_F(Gather, TheGroupOfVersionOneHoldsToo) {
  Write("proc/77/cgroup", "9:cpu,memory:/slurm/job_7\n0::/\n");
  Write("sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "500\n");
  Write("sys/fs/cgroup/memory/slurm/job_7/memory.usage_in_bytes", "700\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");

  const std::optional<GroupFacts> group = GatherGroup(root(), "77");
  ASSERT_TRUE(group.has_value());
  EXPECT_EQ(group->path, "/slurm/job_7");
  EXPECT_EQ(group->limit_bytes, 500U);
  EXPECT_EQ(group->left_bytes, 0U);
}

TEST_F(Gather, AGroupWithoutALimitHasNone) {
  Write("proc/77/cgroup", "0::/\n");

  EXPECT_EQ(GatherGroup(root(), "77")->limit_bytes, kUnlimited);
  EXPECT_EQ(GatherGroup(root(), "77")->swap_limit_bytes, kUnlimited);
}

TEST_F(Gather, SettingsOfTheKernel) {
  Write("proc/sys/kernel/osrelease", "6.1.0-test\n");
  Write("proc/sys/vm/memfd_noexec", "2\n");
  Write("proc/sys/fs/file-max", "9000\n");
  Write("proc/sys/fs/file-nr", "1234\t0\t9000\n");
  Write("dev/nvidiactl", "");

  const KernelFacts kernel = GatherKernelSettings(root());
  EXPECT_EQ(kernel.release, "6.1.0-test");
  EXPECT_EQ(kernel.memfd_noexec, 2);
  EXPECT_EQ(kernel.file_max, 9000U);
  EXPECT_EQ(kernel.file_count, 1234U);
  EXPECT_EQ(FindGpuSign(root()), "/dev/nvidiactl");
}

TEST_F(Gather, HidepidIsSeenAsNumberAndAsWord) {
  const auto hidden = [this](const std::string& options) {
    Write("proc/self/mounts", "sys /sys sysfs rw 0 0\nproc /proc proc " + options + " 0 0\n");
    return GatherKernelSettings(root()).proc_is_hidden;
  };

  EXPECT_FALSE(hidden("rw,relatime"));
  EXPECT_FALSE(hidden("rw,hidepid=0"));
  EXPECT_FALSE(hidden("rw,hidepid=off,gid=5"));
  EXPECT_TRUE(hidden("rw,hidepid=2"));
  EXPECT_TRUE(hidden("rw,hidepid=invisible,gid=5"));
}

// --- the socket ---------------------------------------------------------------------------------

class GatherSocketTest : public Gather {
 protected:
  void SetUp() override {
    ::unsetenv("STICKYINVOC_SOCKET");
    ::unsetenv("XDG_RUNTIME_DIR");
  }
  void TearDown() override { SetUp(); }
};

TEST_F(GatherSocketTest, ThePlaceIsTheOneThatProgramsUse) {
  const auto agrees = [](const std::string& named_by) {
    const SocketFacts facts = GatherSocket(std::nullopt);
    EXPECT_EQ(facts.chosen.path, wire::DefaultSocketPath().value());
    EXPECT_EQ(facts.chosen.named_by, named_by);
  };

  agrees("the default");
  ::setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  agrees("$XDG_RUNTIME_DIR");
  ::setenv("STICKYINVOC_SOCKET", "/tmp/job/s", 1);
  agrees("$STICKYINVOC_SOCKET");
  ::setenv("STICKYINVOC_SOCKET", "", 1);
  agrees("$XDG_RUNTIME_DIR");
  EXPECT_EQ(GatherSocket("/x").chosen.named_by, "--socket");
}

TEST_F(GatherSocketTest, WhatIsThereIsExaminedHereAndElsewhere) {
  const std::string folder = root() + "/stickyinvoc";
  Write("stickyinvoc/other", "");
  ::chmod(folder.c_str(), 0750);
  ::setenv("XDG_RUNTIME_DIR", root().c_str(), 1);
  const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = folder + "/stickyd.sock";
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::chmod(path.c_str(), 0600);

  const SocketFacts here = GatherSocket(std::nullopt);
  EXPECT_EQ(here.file.kind, FileFacts::Kind::kSocket);
  EXPECT_EQ(here.file.mode, 0600U);
  EXPECT_EQ(here.folder, folder);
  EXPECT_EQ(here.folder_file.kind, FileFacts::Kind::kFolder);
  EXPECT_EQ(here.folder_file.mode, 0750U);
  const SocketFacts elsewhere = GatherSocket(folder + "/other");
  EXPECT_EQ(elsewhere.file.kind, FileFacts::Kind::kOther);
  ASSERT_FALSE(elsewhere.others.empty());
  EXPECT_EQ(elsewhere.others[0].path, path);
  EXPECT_EQ(GatherSocket("/no/such").file.kind, FileFacts::Kind::kNone);
  EXPECT_EQ(GatherSocket("here").folder, ".");
}

// --- tries ---------------------------------------------------------------------------------------

// Every kernel that these tests run on has what states rest on.
TEST(TryKernelFeatures, WhatTheProductNeedsWorksHere) {
  KernelFacts facts;
  facts.memfd_sealing = facts.open_file_locks = facts.peer_credentials = -1;

  TryKernelFeatures(facts);

  EXPECT_EQ(facts.memfd_sealing, 0);
  EXPECT_EQ(facts.open_file_locks, 0);
  EXPECT_EQ(facts.peer_credentials, 0);
}

}  // namespace
}  // namespace sticky::stickyctl
