// Invocations of the real stickyd through the real shim: they share what was loaded, cannot change
// it, and end in any way without a trace.

#include <cerrno>
#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stickyinvoc/stickyinvoc.hpp"
#include "tests/testing/daemon_process.h"
#include "tests/testing/matchers.h"
#include "tests/testing/model_writers.h"

namespace sticky {
namespace {

using client::AttachOptions;
using sticky::testing::DaemonProcess;
using sticky::testing::ExitStatus;
using sticky::testing::IsOk;
using sticky::testing::Process;
using ::testing::HasSubstr;

class InvocationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"STICKYINVOC_SOCKET", "STICKYINVOC_STATE", "STICKYINVOC_LEASE"}) {
      ::unsetenv(name);
    }
    testing::SafetensorsWriter writer;
    writer.Add("first", "F32", {2, 3}, testing::RawBytes<float>({1, 2, 3, 4, 5, 6}));
    writer.Add("second", "U8", {4096}, std::string(4096, '\x07'));
    testing::WriteText(file_, writer.Finish());
  }

  void Load() {
    auto client = daemon_.Client();
    ASSERT_THAT(client.Load(testing::LoadRequestFor("toy"), file_), IsOk());
  }

  client::Result<client::State> Attach(const std::string& name = "toy",
                                       std::chrono::milliseconds wait = {}) {
    AttachOptions options;
    options.socket_path = daemon_.socket_path();
    options.wait = wait;
    return client::State::Attach(name, options);
  }

  // The byte that every element of "second" must be, or another when it could not be read.
  static int SecondByte(const client::State& state) {
    const auto tensor = state.Find("second");
    return tensor.ok() ? std::to_integer<int>(tensor.value().bytes()[4095]) : -1;
  }

  DaemonProcess daemon_;
  std::string file_ = daemon_.folder() / "toy.safetensors";
};

TEST_F(InvocationTest, ReadsWhatWasLoadedAndLetsGo) {
  Load();
  {
    const auto state = Attach();
    ASSERT_TRUE(state.ok()) << state.error().message;
    const auto values = state.value().Find("first").value().As<float>().value();
    EXPECT_EQ(std::vector<float>(values.begin(), values.end()),
              (std::vector<float>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(SecondByte(state.value()), 7);
    const sti_state_info info = state.value().Info().value();
    EXPECT_EQ(info.tensor_count, 2u);
    EXPECT_EQ(info.epoch, 1u);
    EXPECT_NE(info.daemon_nonce, 0u);
    EXPECT_NE(info.lease_id, 0u);
    EXPECT_TRUE(daemon_.LeaseCountBecomes(1));
  }
  EXPECT_TRUE(daemon_.LeaseCountBecomes(0));
}

TEST_F(InvocationTest, AnUnknownStateIsNotFound) {
  const auto state = Attach("none");

  ASSERT_FALSE(state.ok());
  EXPECT_EQ(state.error().code, STI_NOT_FOUND);
  EXPECT_THAT(state.error().message, HasSubstr("attach 'none'"));
}

TEST_F(InvocationTest, AttachWaitsForAStateThatIsBeingBuilt) {
  auto client = daemon_.Client();
  ASSERT_THAT(client.SendLoad(testing::LoadRequestFor("toy", /*wait_ms=*/0), file_), IsOk());
  ASSERT_TRUE(testing::WaitUntil([&] { return daemon_.Client().Show("toy").ok(); }));

  const auto state = Attach("toy", std::chrono::seconds(20));

  ASSERT_TRUE(state.ok()) << state.error().message;
  EXPECT_EQ(SecondByte(state.value()), 7);
}

TEST_F(InvocationTest, APinnedDigestIsCheckedAndBothAreNamed) {
  Load();
  AttachOptions options;
  options.socket_path = daemon_.socket_path();
  options.digest.emplace().fill(0xCD);
  const auto refused = client::State::Attach("toy", options);
  const sti_state_info info = Attach().value().Info().value();
  std::copy(std::begin(info.content_digest), std::end(info.content_digest),
            options.digest->begin());

  EXPECT_TRUE(client::State::Attach("toy", options).ok());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, STI_CORRUPT);
  EXPECT_THAT(refused.error().message, HasSubstr("cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd"));
  Digest found;
  std::memcpy(found.bytes.data(), info.content_digest, sizeof info.content_digest);
  EXPECT_THAT(refused.error().message, HasSubstr(ToHex(found)));
}

// Daemon case 30.
TEST_F(InvocationTest, AWriterEndsAloneAndOthersSeeNothingOfIt) {
  Load();
  const auto reader = Attach();
  ASSERT_TRUE(reader.ok()) << reader.error().message;

  Process writer = Process::Fork([&] {
    const auto state = Attach();
    if (!state.ok()) return 1;
    const client::Tensor tensor = state.value().Find("second").value();
    auto* bytes = static_cast<unsigned char*>(const_cast<void*>(tensor.data()));
    auto* page = bytes - reinterpret_cast<std::uintptr_t>(bytes) % 4096;
    if (::mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0 || errno != EACCES) return 2;
    ::signal(SIGSEGV, SIG_DFL);
    *const_cast<volatile unsigned char*>(bytes + 4095) = 1;
    return 3;
  });
  const auto status = writer.Wait();

  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->signal, SIGSEGV) << status->code;
  EXPECT_EQ(SecondByte(reader.value()), 7);
  EXPECT_TRUE(daemon_.LeaseCountBecomes(1));
  EXPECT_TRUE(Attach().ok());
}

// Daemon cases 1 and 32.
TEST_F(InvocationTest, AKilledInvocationIsGoneWithinASecondAndOthersGoOn) {
  Load();
  const auto reader = Attach();
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  Process other = Process::Fork([&] {
    const auto state = Attach();
    if (!state.ok()) return 1;
    for (;;) ::pause();
  });
  ASSERT_TRUE(daemon_.LeaseCountBecomes(2));

  other.Signal(SIGKILL);

  EXPECT_TRUE(daemon_.LeaseCountBecomes(1, /*deadline_ms=*/1000));
  EXPECT_EQ(SecondByte(reader.value()), 7);
  EXPECT_TRUE(Attach().ok());
}

// Daemon case 21: the child's end is not the parent's.
TEST_F(InvocationTest, AForkedChildHasNoLeaseUntilItAttachesAndThenOneOfItsOwn) {
  Load();
  const auto parent = Attach();
  ASSERT_TRUE(parent.ok()) << parent.error().message;

  Process child = Process::Fork([&] {
    if (parent.value().Find("first").error().code != STI_INVALID_ARGUMENT) return 1;
    const auto own = Attach();
    if (!own.ok() || SecondByte(own.value()) != 7) return 2;
    return daemon_.LeaseCountBecomes(2) ? 0 : 3;
  });
  const auto status = child.Wait();

  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->code, 0);
  EXPECT_TRUE(daemon_.LeaseCountBecomes(1));
  EXPECT_EQ(SecondByte(parent.value()), 7);
}

// Daemon case 12.
TEST_F(InvocationTest, AnInvocationOutlivesTheDaemon) {
  Load();
  const auto state = Attach();
  ASSERT_TRUE(state.ok()) << state.error().message;

  daemon_.process().KillAndReap();

  EXPECT_EQ(SecondByte(state.value()), 7);
  const auto refused = Attach();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, STI_UNAVAILABLE);
}

// `stickyctl run` takes the lease and the program adopts it, so the daemon sees one and not two.
TEST_F(InvocationTest, AProgramUnderStickyctlRunAdoptsItsLease) {
  Load();
  const std::string build = STICKY_BUILD_DIR;
  Process run = Process::Start({{build + "/bin/stickyctl", "--socket", daemon_.socket_path(), "run",
                                 "--state", "toy", "--", build + "/tests/shim_adopt_probe"},
                                {},
                                daemon_.folder() / "run.log",
                                {}});
  const std::optional<ExitStatus> status = run.Wait();

  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->code, 0) << testing::ReadText(daemon_.folder() / "run.log");
  EXPECT_TRUE(daemon_.LeaseCountBecomes(0));
}

}  // namespace
}  // namespace sticky
