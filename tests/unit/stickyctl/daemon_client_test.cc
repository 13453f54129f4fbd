// DaemonClient against a daemon that answers as a test says: with progress, refusals, nonsense, or
// not at all.

#include "tools/client/daemon_client.h"

#include <cerrno>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "base/text.h"
#include "tests/testing/fake_daemon.h"

namespace sticky::client {
namespace {

using testing::FakeDaemon;
using ::testing::HasSubstr;
using Then = FakeDaemon::Then;

MATCHER_P2(FailedAt, stage, code, "") {
  if (arg.ok()) return false;
  *result_listener << arg.failed().error.message;
  return arg.failed().stage == stage && arg.failed().error.code == code;
}

std::vector<weights::OpenFile> Files(int count) {
  std::vector<weights::OpenFile> files;
  for (int i = 0; i < count; ++i) {
    weights::OpenFile file;
    file.name = std::string(wire::kFileNameBytesMax - 5, 'n') + Format("%05d", i);
    file.is_weights = i == 0;
    file.fd.Reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    files.push_back(std::move(file));
  }
  return files;
}

wire::LoadRequest LoadOf(int file_count, std::uint32_t wait_ms) {
  wire::LoadRequest request;
  request.state = "a";
  request.source = "/m";
  request.file_count = static_cast<std::uint32_t>(file_count);
  request.wait_ms = wait_ms;
  return request;
}

TEST(DaemonClient, NoSocketSaysHowToStartADaemon) {
  const Outcome<DaemonClient> client = DaemonClient::Connect("/tmp/sticky-no-such/s");

  ASSERT_THAT(client, FailedAt(Stage::kConnect, Code::kUnavailable));
  EXPECT_THAT(client.failed().error.message, HasSubstr("/tmp/sticky-no-such/s"));
  EXPECT_THAT(client.failed().error.message, HasSubstr("start stickyd"));
  EXPECT_THAT(client.failed().error.message, HasSubstr("STICKYINVOC_SOCKET"));
}

TEST(DaemonClient, ARefusalKeepsTheDaemonsCodeAndWords) {
  FakeDaemon daemon([](int connection, const wire::Received& received) {
    FakeDaemon::Send(connection, received, wire::Failure{Code::kNotFound, "no 'x' here", 2});
    return Then::kKeep;
  });
  Outcome<DaemonClient> client = DaemonClient::Connect(daemon.path());
  ASSERT_TRUE(client.ok());

  const Outcome<wire::ShowReply> reply =
      client.value().AskFor<wire::ShowReply>(wire::ShowRequest{"x"});

  ASSERT_THAT(reply, FailedAt(Stage::kAnswer, Code::kNotFound));
  EXPECT_EQ(reply.failed().error.message, "no 'x' here");
  EXPECT_EQ(reply.failed().error.os_code, 2);
}

TEST(DaemonClient, AnAnswerOfAnotherKindIsCorrupt) {
  FakeDaemon daemon([](int connection, const wire::Received& received) {
    FakeDaemon::Send(connection, received, wire::ListReply{});
    return Then::kKeep;
  });
  Outcome<DaemonClient> client = DaemonClient::Connect(daemon.path());
  ASSERT_TRUE(client.ok());

  const Outcome<wire::ShowReply> reply =
      client.value().AskFor<wire::ShowReply>(wire::ShowRequest{"x"});

  EXPECT_THAT(reply, FailedAt(Stage::kTalk, Code::kCorrupt));
  EXPECT_EQ(reply.failed().exit_code(), kExitInternal);
}

TEST(DaemonClient, ADaemonThatClosesIsGone) {
  FakeDaemon daemon([](int, const wire::Received&) { return Then::kClose; });
  Outcome<DaemonClient> client = DaemonClient::Connect(daemon.path());
  ASSERT_TRUE(client.ok());

  const Outcome<wire::Received> reply = client.value().Ask(wire::ListRequest{});

  ASSERT_THAT(reply, FailedAt(Stage::kTalk, Code::kUnavailable));
  EXPECT_EQ(reply.failed().exit_code(), kExitNoDaemon);
  EXPECT_TRUE(client.value().Ended());
}

TEST(DaemonClient, AttachWantsADescriptorForEveryArena) {
  FakeDaemon daemon([](int connection, const wire::Received& received) {
    FakeDaemon::Send(connection, received, wire::AttachReply{1, 1, {4096, 4096}}, {0, 0});
    return Then::kKeep;
  });
  Outcome<DaemonClient> client = DaemonClient::Connect(daemon.path());
  ASSERT_TRUE(client.ok());

  wire::AttachRequest request;
  request.state = "a";
  const Outcome<DaemonClient::Lease> lease = client.value().Attach(request);

  EXPECT_THAT(lease, FailedAt(Stage::kTalk, Code::kCorrupt));
}

TEST(DaemonClient, AttachTellsTheProgressOfTheLoadThatItWaitsFor) {
  const testing::SampleState sample;
  FakeDaemon daemon([&sample](int connection, const wire::Received& received) {
    wire::StateInfo state;
    state.name = "a";
    for (state.bytes_done = 1; state.bytes_done <= 3; ++state.bytes_done) {
      FakeDaemon::Send(connection, received, wire::LoadProgress{state});
    }
    return FakeDaemon::Honest(sample)(connection, received);
  });
  Outcome<DaemonClient> client = DaemonClient::Connect(daemon.path());
  ASSERT_TRUE(client.ok());
  wire::AttachRequest request;
  request.state = "a";
  request.wait_ms = 1000;
  request.progress = true;
  std::vector<std::uint64_t> told;

  const Outcome<DaemonClient::Lease> lease = client.value().Attach(
      request, [&](const wire::StateInfo& state) { told.push_back(state.bytes_done); });

  ASSERT_TRUE(lease.ok()) << lease.failed().error.message;
  EXPECT_THAT(told, ::testing::ElementsAre(1, 2, 3));
}

TEST(DaemonClient, ARequestInTwoHalvesIsAnsweredOnceItsDescriptorIsReadable) {
  FakeDaemon daemon([](int connection, const wire::Received& received) {
    FakeDaemon::Send(connection, received, wire::EventsReply{{}, 7, 0});
    return Then::kKeep;
  });
  Outcome<DaemonClient> client = DaemonClient::Connect(daemon.path());
  ASSERT_TRUE(client.ok());

  Outcome<std::uint32_t> id = client.value().Send(wire::EventsRequest{});
  ASSERT_TRUE(id.ok());
  pollfd end{client.value().fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&end, 1, FakeDaemon::kSoonMs), 1);
  Outcome<wire::EventsReply> reply = client.value().Receive<wire::EventsReply>(id.value());

  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply.value().last, 7U);
}

TEST(DaemonClient, ALoadSendsAllFilesInOrderAndTellsProgress) {
  constexpr int kFileCount = 300;
  std::vector<wire::SourceFile> seen;
  std::size_t descriptors = 0;
  FakeDaemon daemon([&](int connection, const wire::Received& received) {
    if (const auto* part = std::get_if<wire::FilesPart>(&received.message.body)) {
      seen.insert(seen.end(), part->files.begin(), part->files.end());
      descriptors += received.fds.size();
    }
    if (seen.size() == kFileCount) {
      wire::StateInfo state;
      state.name = "a";
      FakeDaemon::Send(connection, received, wire::LoadProgress{state});
      FakeDaemon::Send(connection, received, wire::LoadReply{state, false});
    }
    return Then::kKeep;
  });
  Outcome<DaemonClient> client = DaemonClient::Connect(daemon.path());
  ASSERT_TRUE(client.ok());
  const std::vector<weights::OpenFile> files = Files(kFileCount);
  int progress_count = 0;

  const Outcome<wire::LoadReply> reply =
      client.value().Load(LoadOf(kFileCount, /*wait_ms=*/1000), files,
                          [&](const wire::StateInfo&) { ++progress_count; });

  ASSERT_TRUE(reply.ok()) << reply.failed().error.message;
  EXPECT_EQ(progress_count, 1);
  ASSERT_EQ(seen.size(), static_cast<std::size_t>(kFileCount));
  EXPECT_EQ(descriptors, seen.size());
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i].name, files[i].name);
  EXPECT_EQ(seen[0].role, wire::FileRole::kWeights);
  EXPECT_EQ(seen[1].role, wire::FileRole::kAsset);
}

// The daemon refuses and closes before all files have come: its reason is told, not "closed".
TEST(DaemonClient, ARefusalInTheMiddleOfTheFilesIsTold) {
  FakeDaemon daemon([](int connection, const wire::Received& received) {
    FakeDaemon::Send(connection, received, wire::Failure{Code::kPermissionDenied, "not you", 0});
    return Then::kClose;
  });
  Outcome<DaemonClient> client = DaemonClient::Connect(daemon.path());
  ASSERT_TRUE(client.ok());
  constexpr int kFileCount = 1000;

  const Outcome<wire::LoadReply> reply =
      client.value().Load(LoadOf(kFileCount, /*wait_ms=*/0), Files(kFileCount), {});

  ASSERT_THAT(reply, FailedAt(Stage::kAnswer, Code::kPermissionDenied));
  EXPECT_EQ(reply.failed().error.message, "not you");
}

}  // namespace
}  // namespace sticky::client
