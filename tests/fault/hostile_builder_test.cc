// What a builder keeps of the memory that it was given locks nobody out: it is found at the commit.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "flatbuffers/wire_manifest.h"
#include "tests/testing/daemon_process.h"
#include "tests/testing/matchers.h"

namespace sticky::testing {
namespace {

using ::testing::HasSubstr;
using wire::StatePhase;

constexpr std::uint64_t kBytes = 1u << 20;

class HostileBuilder : public ::testing::Test {
 protected:
  void SetUp() override {
    wire::BuildRequest request;
    request.state = "table";
    ASSERT_THAT(builder_.Ask(request), IsOk());
    Result<wire::Received> arena = builder_.Ask(wire::BuildArenaRequest{kBytes, 0});
    ASSERT_THAT(arena, IsOk());
    ASSERT_EQ(arena.value().fds.size(), 1u);
    kept_ = std::move(arena.value().fds[0]);
    ASSERT_EQ(::pwrite(kept_.get(), "answer", 6, 0), 6);
  }
  Result<wire::Received> Commit() {
    wire::Manifest table;
    table.state = "table";
    table.device = "host";
    table.arena_bytes = {kBytes};
    table.assets = {{"all", 0, 0, kBytes}};
    const UniqueFd blob = wire::MakeBlob(wire::EncodeManifest(table)).value();
    Result<std::uint32_t> asked = builder_.Send(wire::BuildCommitRequest{10'000}, {blob.get()});
    if (!asked.ok()) return asked.error();
    return builder_.Answer(asked.value());
  }
  // Someone attaches and reads what was written.
  void ExpectOthersRead() {
    WireClient reader = daemon_.Client();
    const Result<wire::Received> lease = reader.Ask(wire::AttachRequest{"table", {}, 0, false});
    ASSERT_THAT(lease, IsOk());
    char text[6] = {};
    ASSERT_EQ(::pread(lease.value().fds.at(1).get(), text, sizeof text, 0), 6);
    EXPECT_EQ(std::string(text, sizeof text), "answer");
  }

  DaemonProcess daemon_;
  WireClient builder_ = daemon_.Client();
  UniqueFd kept_;
};

TEST_F(HostileBuilder, WhoKeepsADescriptorForWritingIsRefusedAndMayCloseItAndCommitAgain) {
  const Result<wire::Received> refused = Commit();

  ASSERT_THAT(refused, FailsWith(Code::kUnavailable));
  EXPECT_THAT(refused.error().message,
              HasSubstr("commit 'table': seal an arena: a writable mapping or descriptor"));
  EXPECT_EQ(daemon_.Client().Show("table").value().phase, StatePhase::kFilling);
  kept_.Reset();
  ASSERT_THAT(Commit(), IsOk());
  ExpectOthersRead();
}

TEST_F(HostileBuilder, AWriteLockOnWhatWasKeptLocksNobodyOut) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  ASSERT_EQ(::fcntl(kept_.get(), F_OFD_SETLK, &lock), 0);

  EXPECT_THAT(Commit(), FailsWith(Code::kUnavailable));

  EXPECT_THAT(daemon_.Client().Status(), IsOk());
  kept_.Reset();
  ASSERT_THAT(Commit(), IsOk());
  ExpectOthersRead();
}

// The process that keeps it need not be the builder.
TEST_F(HostileBuilder, AChildThatKeepsTheDescriptorIsFoundToo) {
  Process child = Process::Fork([] {
    ::pause();
    return 0;
  });
  kept_.Reset();

  EXPECT_THAT(Commit(), FailsWith(Code::kUnavailable));

  child.KillAndReap();
  ASSERT_THAT(Commit(), IsOk());
  ExpectOthersRead();
}

TEST_F(HostileBuilder, AMappingForReadingOfWhatWasWritableIsFoundToo) {
  void* const mapped = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, kept_.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  kept_.Reset();

  EXPECT_THAT(Commit(), FailsWith(Code::kUnavailable));

  ::munmap(mapped, kBytes);
  ASSERT_THAT(Commit(), IsOk());
  ExpectOthersRead();
}

}  // namespace
}  // namespace sticky::testing
