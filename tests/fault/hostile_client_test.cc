// Whatever one client does on the socket, it is that client alone who loses by it: the daemon
// lives, the others are served, and nothing grows.

#include <cstdio>
#include <cstring>
#include <random>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/text.h"
#include "tests/testing/daemon_process.h"
#include "tests/testing/matchers.h"

namespace sticky::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kPromptMs = 1000;  // "in normal time", on a machine that is busy

// Whether the daemon closes this connection before the deadline, whatever it says before.
bool IsClosed(const WireClient& client, std::int64_t deadline_ms) {
  return WaitUntil(
      [&] {
        char bytes[wire::kFrameBytesMax];
        const ssize_t size = ::recv(client.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
        return size == 0 || (size < 0 && errno != EAGAIN);
      },
      deadline_ms);
}

Status SendRaw(const WireClient& client, const std::vector<std::uint8_t>& bytes) {
  return wire::SendFrame(client.fd(), bytes, {}, Deadline::AfterMs(1000));
}

class HostileClient : public ::testing::Test {
 protected:
  HostileClient() : daemon_(Options()) {
    const std::string path = daemon_.folder() / "m.safetensors";
    WriteTensorFile(path, 1 << 16);
    EXPECT_THAT(daemon_.Client().Load(LoadRequestFor("m"), path), IsOk());
  }
  static DaemonOptions Options() {
    DaemonOptions options;
    options.config = "deadlines:\n  handshake_ms: 700\n";
    return options;
  }
  // Someone else attaches in normal time.
  void ExpectOthersAreServed() {
    const std::int64_t start_ns = MonotonicNs();
    WireClient client = daemon_.Client();
    EXPECT_THAT(client.Ask(wire::AttachRequest{"m", {}, 0, false}), IsOk());
    EXPECT_LT(MonotonicNs() - start_ns, kPromptMs * 1'000'000);
  }
  static std::vector<std::uint8_t> StatusFrame() {
    return wire::Encode({1, wire::StatusRequest{}});
  }

  DaemonProcess daemon_;
};

// Case 3.
TEST_F(HostileClient, HalfAFrameClosesItsSender) {
  WireClient client = daemon_.Client();
  std::vector<std::uint8_t> frame = StatusFrame();
  frame.resize(frame.size() / 2);

  ASSERT_THAT(SendRaw(client, frame), IsOk());

  ExpectOthersAreServed();
  EXPECT_TRUE(IsClosed(client, kPromptMs));
}

TEST_F(HostileClient, SilenceIsEndedAtTheHandshakeDeadlineAndNotBefore) {
  const std::int64_t start_ns = MonotonicNs();
  const WireClient client = daemon_.Client();

  ExpectOthersAreServed();
  EXPECT_TRUE(IsClosed(client, 3000));

  EXPECT_GE(MonotonicNs() - start_ns, 600'000'000);
}

TEST_F(HostileClient, WhoeverHasSpokenMayBeSilent) {
  WireClient client = daemon_.Client();
  ASSERT_THAT(client.Status(), IsOk());

  EXPECT_FALSE(IsClosed(client, 1500));
  EXPECT_THAT(client.Status(), IsOk());
}

TEST_F(HostileClient, LoadWhoseFilesNeverComeIsEndedAtTheDeadline) {
  WireClient client = daemon_.Client();
  ASSERT_THAT(client.Status(), IsOk());

  ASSERT_THAT(client.Send(LoadRequestFor("n")), IsOk());

  EXPECT_TRUE(IsClosed(client, 3000));
  EXPECT_THAT(daemon_.Client().Show("n"), FailsWith(Code::kNotFound));
}

// Case 4: the size prefix of the frame.
TEST_F(HostileClient, HugeLengthPrefixesCloseTheirSenderAndNothingGrows) {
  const std::uint64_t resident_before = ResidentBytes(daemon_.pid());

  for (const std::uint32_t length : {0u, 1u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
    for (int rest = 0; rest < 20; ++rest) {
      const WireClient client = daemon_.Client();
      std::vector<std::uint8_t> frame = StatusFrame();
      std::memcpy(frame.data(), &length, sizeof length);
      ASSERT_THAT(SendRaw(client, frame), IsOk());
      ASSERT_TRUE(IsClosed(client, kPromptMs));
    }
  }

  ExpectOthersAreServed();
  daemon_.ExpectResidentBelow(resident_before + (4u << 20));
}

TEST_F(HostileClient, FrameLongerThanTheMaximumClosesItsSender) {
  const WireClient client = daemon_.Client();
  const std::vector<std::uint8_t> frame(wire::kFrameBytesMax + 1, 0x55);

  ASSERT_EQ(::send(client.fd(), frame.data(), frame.size(), 0), static_cast<ssize_t>(frame.size()));

  EXPECT_TRUE(IsClosed(client, kPromptMs));
  ExpectOthersAreServed();
}

// Case 5.
TEST_F(HostileClient, GarbageIsAnsweredWithATypedErrorAndClosed) {
  std::mt19937 rng(static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed()));

  for (int round = 0; round < 300; ++round) {
    WireClient client = daemon_.Client();
    std::vector<std::uint8_t> frame;
    if (round % 2 == 0) {
      frame.resize(1 + rng() % 4096);
      for (std::uint8_t& byte : frame) byte = static_cast<std::uint8_t>(rng());
    } else {
      // A good frame with a few bytes turned.
      frame = wire::Encode({7, wire::AttachRequest{"m", {}, 0, false}});
      for (int i = 0; i < 3; ++i) frame[rng() % frame.size()] ^= static_cast<std::uint8_t>(rng());
    }
    ASSERT_THAT(SendRaw(client, frame), IsOk());
    Result<wire::Received> answer = client.Receive(kPromptMs);
    EXPECT_TRUE(answer.ok() || answer.error().os_code == EPIPE) << answer.error().message;
  }

  ExpectOthersAreServed();
  EXPECT_TRUE(daemon_.LeaseCountBecomes(0));
}

// Case 7.
TEST_F(HostileClient, AnotherProtocolIsRefusedNamingBothRanges) {
  // The newest peer's frame differs from ours in its two range fields alone, so make one by
  // replacing them: they are the only 16-bit ones in the envelope's table.
  std::vector<std::uint8_t> frame = wire::Encode({9, wire::StatusRequest{}});
  int replaced = 0;
  for (std::size_t i = 8; i + 4 <= frame.size() && replaced == 0; i += 2) {
    std::uint16_t pair[2];
    std::memcpy(pair, frame.data() + i, sizeof pair);
    if (pair[0] != wire::kProtocolMax || pair[1] != wire::kProtocolMin) continue;
    pair[0] = pair[1] = 40;
    std::memcpy(frame.data() + i, pair, sizeof pair);
    ++replaced;
  }
  ASSERT_EQ(replaced, 1) << "the frame's layout is not what this test believes";
  WireClient client = daemon_.Client();
  ASSERT_THAT(SendRaw(client, frame), IsOk());

  Result<wire::Received> answer = client.Receive(kPromptMs);

  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(answer.value().message.request_id, 9u);
  const auto* failure = std::get_if<wire::Failure>(&answer.value().message.body);
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->code, Code::kUnavailable);
  EXPECT_THAT(failure->message, HasSubstr("40"));
  EXPECT_THAT(failure->message, HasSubstr(std::to_string(wire::kProtocolMax)));
  EXPECT_TRUE(IsClosed(client, kPromptMs));
  ExpectOthersAreServed();
}

TEST_F(HostileClient, ReplyInsteadOfARequestIsRefused) {
  WireClient client = daemon_.Client();

  EXPECT_THAT(client.Ask(wire::FillReply{}), FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(client.Ask(wire::Blob{1000}), FailsWith(Code::kInvalidArgument));
  ExpectOthersAreServed();
}

TEST_F(HostileClient, FilesThatAreNotRegularAreRefused) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  const int directory = ::open("/", O_RDONLY | O_DIRECTORY);
  for (const int fd : {pipe_fds[0], directory}) {
    WireClient client = daemon_.Client();
    wire::FilesPart part;
    part.files.push_back({"model.safetensors", wire::FileRole::kWeights, 10});
    const Result<std::uint32_t> id = client.Send(LoadRequestFor("n"));
    ASSERT_THAT(client.Send(part, {fd}), IsOk());

    const Result<wire::Received> answer = client.Answer(id.value());

    ASSERT_THAT(answer, FailsWith(Code::kInvalidArgument));
    EXPECT_THAT(answer.error().message, HasSubstr("not a regular file"));
  }
  for (const int fd : {pipe_fds[0], pipe_fds[1], directory}) ::close(fd);
  EXPECT_EQ(daemon_.Client().Show("n").value().phase, wire::StatePhase::kFailed);
}

TEST_F(HostileClient, DescriptorsNobodyAskedForAreClosed) {
  const int descriptors_before = OpenDescriptors(daemon_.pid());
  WireClient client = daemon_.Client();
  const std::vector<int> fds(wire::kFdsPerFrameMax, STDERR_FILENO);

  // In turns: the kernel lets an ordinary user have only RLIMIT_NOFILE descriptors on their way.
  for (int i = 0; i < 20; ++i) {
    ASSERT_THAT(client.Send(wire::StatusRequest{}, fds), IsOk());
    ASSERT_THAT(client.Receive(), IsOk());
  }

  EXPECT_TRUE(WaitUntil([&] { return OpenDescriptors(daemon_.pid()) <= descriptors_before + 1; }))
      << OpenDescriptors(daemon_.pid());
}

// Case 8.
TEST_F(HostileClient, WhoeverNeverReadsIsClosedAndItsLeasesEnd) {
  const std::uint64_t resident_before = ResidentBytes(daemon_.pid());
  const int descriptors_before = OpenDescriptors(daemon_.pid());
  WireClient client = daemon_.Client();
  const std::vector<std::uint8_t> frame = wire::Encode({1, wire::AttachRequest{"m", {}, 0, false}});

  Status sent = Ok{};
  int count = 0;
  while (sent.ok() && count < 100'000) {
    sent = wire::SendFrame(client.fd(), frame, {}, Deadline::AfterMs(2000));
    ++count;
  }

  EXPECT_FALSE(sent.ok()) << "the daemon took " << count << " requests and never closed";
  EXPECT_TRUE(daemon_.LeaseCountBecomes(0));
  ExpectOthersAreServed();
  EXPECT_TRUE(WaitUntil([&] { return OpenDescriptors(daemon_.pid()) <= descriptors_before + 1; }));
  daemon_.ExpectResidentBelow(resident_before + (4u << 20));
  EXPECT_THAT(daemon_.log(), HasSubstr("unread"));
}

TEST_F(HostileClient, FloodOfRequestsDoesNotKeepOthersWaiting) {
  const std::string socket_path = daemon_.socket_path();
  std::vector<Process> flooders;
  for (int i = 0; i < 3; ++i) {
    flooders.push_back(Process::Fork([&] {
      WireClient client = WireClient::Connect(socket_path).value();
      for (;;) {
        if (!client.Status().ok()) return 1;
      }
    }));
  }

  for (int i = 0; i < 20; ++i) ExpectOthersAreServed();
}

TEST_F(HostileClient, FloodOfConnectionsDoesNotKeepOthersWaiting) {
  const std::string socket_path = daemon_.socket_path();
  const Process flooder = Process::Fork([&] {
    for (;;) {
      if (!WireClient::Connect(socket_path).ok()) return 1;
    }
  });

  for (int i = 0; i < 20; ++i) ExpectOthersAreServed();
}

TEST(ConnectionLimit, OneTooManyIsTurnedAwayWithTheReason) {
  DaemonOptions options;
  options.config = "limits:\n  connections: 8\n";
  const DaemonProcess daemon(options);
  std::vector<WireClient> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(daemon.Client());
    ASSERT_THAT(clients.back().Status(), IsOk());
  }

  WireClient late = daemon.Client();
  const Result<wire::StatusReply> refused = late.Status();

  ASSERT_THAT(refused, FailsWith(Code::kUnavailable));
  EXPECT_THAT(refused.error().message, HasSubstr("limits.connections"));
  clients.pop_back();
  EXPECT_TRUE(WaitUntil([&] { return daemon.Client().Status().ok(); }));
}

TEST(LeaseLimit, OneLeaseTooManyIsRefusedByName) {
  DaemonOptions options;
  options.config = "limits:\n  leases: 4\n";
  const DaemonProcess daemon(options);
  const std::string path = daemon.folder() / "m.safetensors";
  WriteTensorFile(path, 4096);
  WireClient client = daemon.Client();
  ASSERT_THAT(client.Load(LoadRequestFor("m"), path), IsOk());
  for (int i = 0; i < 4; ++i) {
    ASSERT_THAT(client.Ask(wire::AttachRequest{"m", {}, 0, false}), IsOk());
  }

  const Result<wire::Received> refused = client.Ask(wire::AttachRequest{"m", {}, 0, false});

  ASSERT_THAT(refused, FailsWith(Code::kOutOfMemory));
  EXPECT_THAT(refused.error().message, HasSubstr("limits.leases"));
}

// --- descriptors run out ----------------------------------------------------------------------

class FewDescriptors : public ::testing::Test {
 protected:
  static constexpr int kDescriptors = 1024;
  FewDescriptors() : daemon_(Options()) {
    // The crowd is this process: it must not run out before the daemon does.
    rlimit own{};
    ::getrlimit(RLIMIT_NOFILE, &own);
    own.rlim_cur = own.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &own);
    EXPECT_GT(own.rlim_cur, rlim_t{2} * kDescriptors);
    const std::string path = daemon_.folder() / "m.safetensors";
    WriteTensorFile(path, 1 << 16);
    EXPECT_THAT(daemon_.Client().Load(LoadRequestFor("m"), path), IsOk());
  }
  static DaemonOptions Options() {
    DaemonOptions options;
    options.before_exec = [] {
      const rlimit limit{kDescriptors, kDescriptors};
      ::setrlimit(RLIMIT_NOFILE, &limit);
    };
    return options;
  }
  DaemonProcess daemon_;
};

TEST_F(FewDescriptors, UnreadRepliesWithDescriptorsDoNotBringTheDaemonDown) {
  constexpr int kAskers = 40;
  constexpr int kAsksEach = 60;
  std::vector<WireClient> askers;
  for (int i = 0; i < kAskers; ++i) {
    askers.push_back(daemon_.Client());
    for (int j = 0; j < kAsksEach; ++j) {
      if (!askers.back().Send(wire::AttachRequest{"m", {}, 0, false}).ok()) break;
    }
  }

  // Someone is still served, at the latest when the greedy ones are gone.
  askers.clear();
  EXPECT_TRUE(daemon_.LeaseCountBecomes(0));
  WireClient client = daemon_.Client();
  EXPECT_THAT(client.Ask(wire::AttachRequest{"m", {}, 0, false}), IsOk());
  EXPECT_LT(OpenDescriptors(daemon_.pid()), 40);
}

TEST_F(FewDescriptors, ConnectionsPastTheLimitDoNotBringTheDaemonDownOrMakeItSpin) {
  std::vector<WireClient> crowd;
  for (int i = 0; i < kDescriptors + 100; ++i) {
    Result<WireClient> client = WireClient::Connect(daemon_.socket_path(), /*wait_ms=*/200);
    if (client.ok()) crowd.push_back(std::move(client).value());
  }
  EXPECT_THAT(crowd.front().Status(), IsOk()) << "a connection that was there is served no more";

  crowd.clear();
  EXPECT_TRUE(WaitUntil([&] {
    Result<WireClient> client = WireClient::Connect(daemon_.socket_path());
    return client.ok() && client.value().Ask(wire::AttachRequest{"m", {}, 0, false}).ok();
  }));
}

// Of user and system, as clock ticks; a second has sysconf(_SC_CLK_TCK) of them.
long ProcessorTicks(pid_t pid) {
  const std::string text = ReadText(Format("/proc/%d/stat", pid));
  unsigned long user = 0;
  unsigned long system = 0;
  const char* const after_name = text.c_str() + text.rfind(')');
  EXPECT_EQ(std::sscanf(after_name, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                        &system),
            2);
  return static_cast<long>(user + system);
}

TEST(VeryFewDescriptors, IdleConnectionsKeepNewOnesOutAndTheDaemonNeitherDownNorBusy) {
  constexpr int kDescriptors = 64;
  DaemonOptions options;
  options.before_exec = [] {
    const rlimit limit{kDescriptors, kDescriptors};
    ::setrlimit(RLIMIT_NOFILE, &limit);
  };
  const DaemonProcess daemon(options);
  const std::string path = daemon.folder() / "m.safetensors";
  WriteTensorFile(path, 1 << 16);
  WireClient established = daemon.Client();
  ASSERT_THAT(established.Load(LoadRequestFor("m"), path), IsOk());
  std::vector<WireClient> idle;
  std::vector<WireClient> late;
  for (int i = 0; i < 2 * kDescriptors; ++i) {
    Result<WireClient> client = WireClient::Connect(daemon.socket_path(), /*wait_ms=*/200);
    if (!client.ok()) continue;
    const bool is_served = client.value().Status().ok();
    (is_served ? idle : late).push_back(std::move(client).value());
  }
  ASSERT_FALSE(idle.empty());
  EXPECT_FALSE(late.empty()) << "nobody was kept out";

  const long before = ProcessorTicks(daemon.pid());
  const std::int64_t start_ns = MonotonicNs();
  int answer_count = 0;
  EXPECT_TRUE(WaitUntil([&] {
    answer_count += established.Status().ok() ? 1 : 0;
    static_cast<void>(WireClient::Connect(daemon.socket_path(), /*wait_ms=*/50));
    return MonotonicNs() - start_ns >= 1'000'000'000;
  }));
  const long busy = ProcessorTicks(daemon.pid()) - before;

  EXPECT_GT(answer_count, 10);
  EXPECT_LT(busy, ::sysconf(_SC_CLK_TCK) / 2) << "of a second it worked for more than half";
  EXPECT_FALSE(established.Ask(wire::AttachRequest{"m", {}, 0, false}).ok()) << "it needs some";
  idle.clear();
  EXPECT_TRUE(WaitUntil([&] {
    Result<WireClient> client = WireClient::Connect(daemon.socket_path());
    return client.ok() && client.value().Ask(wire::AttachRequest{"m", {}, 0, false}).ok();
  }));
  EXPECT_THAT(established.Load(LoadRequestFor("n"), path), IsOk());
}

TEST_F(FewDescriptors, DaemonRaisesItsOwnLimitToTheHardOne) {
  DaemonOptions options;
  options.before_exec = [] {
    const rlimit limit{64, 2048};
    ::setrlimit(RLIMIT_NOFILE, &limit);
  };
  const DaemonProcess daemon(options);

  rlimit limit{};
  ASSERT_EQ(::prlimit(daemon.pid(), RLIMIT_NOFILE, nullptr, &limit), 0);

  EXPECT_EQ(limit.rlim_cur, 2048u);
}

}  // namespace
}  // namespace sticky::testing
