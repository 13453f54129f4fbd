// The real stickyd and sticky-loader, from the first load to the last eviction: what is attached is
// what was in the file, whoever dies lets go, and memory is given back.

#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/deadline.h"
#include "device/host_arena.h"
#include "flatbuffers/wire_manifest.h"
#include "tests/testing/daemon_process.h"
#include "tests/testing/matchers.h"

namespace sticky::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kModelBytes = 1 << 20;

class DaemonLife : public ::testing::Test {
 protected:
  // A small model, loaded under `name`.
  wire::StateInfo MakeState(const std::string& name) {
    const std::string path = daemon_.folder() / (name + ".safetensors");
    WriteTensorFile(path, kModelBytes);
    WireClient client = daemon_.Client();
    Result<wire::LoadReply> loaded = client.Load(LoadRequestFor(name), path);
    EXPECT_THAT(loaded, IsOk());
    return loaded.ok() ? loaded.value().state : wire::StateInfo{};
  }
  // A child that attaches, says so on a pipe, and waits to be killed. With `forget_socket`, it
  // keeps only the mapping.
  Process StartHolder(const std::string& name, bool forget_socket = false);

  DaemonProcess daemon_;
};

Process DaemonLife::StartHolder(const std::string& name, bool forget_socket) {
  int pipe_fds[2];
  EXPECT_EQ(::pipe(pipe_fds), 0);
  const std::string socket_path = daemon_.socket_path();
  Process child = Process::Fork([&] {
    Result<WireClient> client = WireClient::Connect(socket_path);
    if (!client.ok()) return 1;
    wire::AttachRequest request;
    request.state = name;
    Result<wire::Received> reply = client.value().Ask(request);
    if (!reply.ok() || reply.value().fds.size() != 2) return 2;
    Result<device::Mapping> mapping =
        device::Mapping::ReadOnly(reply.value().fds[1].get(), kModelBytes);
    if (!mapping.ok()) return 3;
    reply.value().fds.clear();
    if (forget_socket) client.value().Close();
    if (::write(pipe_fds[1], "x", 1) != 1) return 4;
    for (;;) ::pause();
  });
  ::close(pipe_fds[1]);
  char byte = 0;
  EXPECT_EQ(::read(pipe_fds[0], &byte, 1), 1) << "the child could not attach";
  ::close(pipe_fds[0]);
  return child;
}

TEST_F(DaemonLife, WhatIsAttachedIsWhatWasInTheFile) {
  const wire::StateInfo state = MakeState("m");
  WireClient client = daemon_.Client();
  wire::AttachRequest request;
  request.state = "m";
  request.digest = state.content_digest;

  Result<wire::Received> reply = client.Ask(request);

  ASSERT_THAT(reply, IsOk());
  ASSERT_EQ(reply.value().fds.size(), 2u);
  const auto& attach = std::get<wire::AttachReply>(reply.value().message.body);
  Result<wire::SealedView> bytes =
      wire::SealedView::Map(reply.value().fds[0].get(), wire::kManifestBytesMax);
  ASSERT_THAT(bytes, IsOk());
  Result<wire::ManifestView> manifest = wire::ManifestView::Open(bytes.value().bytes());
  ASSERT_THAT(manifest, IsOk());
  EXPECT_EQ(manifest.value().content_digest(), state.content_digest);
  EXPECT_EQ(manifest.value().template_digest(), LoadRequestFor("m").template_digest);
  EXPECT_EQ(manifest.value().epoch(), attach.epoch);
  EXPECT_EQ(manifest.value().daemon_nonce(), client.Status().value().nonce);
  Result<device::Mapping> arena =
      device::Mapping::ReadOnly(reply.value().fds[1].get(), attach.arena_bytes.at(0));
  ASSERT_THAT(arena, IsOk());
  const std::optional<wire::TensorRef> tensor = manifest.value().FindTensor("data");
  ASSERT_TRUE(tensor.has_value());
  ASSERT_EQ(tensor->size_bytes, kModelBytes);
  const std::uint8_t* const data = arena.value().bytes().data() + tensor->offset;
  for (int i = 0; i < 64; ++i) EXPECT_EQ(data[i], i + 1);
  EXPECT_EQ(data[64], 0);
}

// Case 30, on host memory.
TEST_F(DaemonLife, WriterDiesAloneAndCannotMakeItsMappingWritable) {
  MakeState("m");
  const std::string socket_path = daemon_.socket_path();
  const auto attach = [&](const std::function<int(std::uint8_t*, int)>& use) {
    Process child = Process::Fork([&] {
      WireClient client = WireClient::Connect(socket_path).value();
      wire::AttachRequest request;
      request.state = "m";
      wire::Received reply = client.Ask(request).value();
      const int fd = reply.fds.at(1).get();
      void* const at = ::mmap(nullptr, kModelBytes, PROT_READ, MAP_SHARED, fd, 0);
      if (at == MAP_FAILED) return 90;
      return use(static_cast<std::uint8_t*>(at), fd);
    });
    return child.Wait().value_or(ExitStatus{});
  };

  const ExitStatus writer = attach([](std::uint8_t* data, int) {
    ::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would turn it into an exit
    *static_cast<volatile std::uint8_t*>(data) = 1;
    return 0;
  });
  const ExitStatus climber = attach([](std::uint8_t* data, int fd) {
    if (::mprotect(data, kModelBytes, PROT_READ | PROT_WRITE) == 0) return 1;
    if (errno != EACCES) return 2;
    // Nor through a description of its own making: the seal holds for everyone.
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    const int reopened = ::open(path.c_str(), O_RDWR);
    if (reopened < 0) return 0;
    const void* const at =
        ::mmap(nullptr, kModelBytes, PROT_READ | PROT_WRITE, MAP_SHARED, reopened, 0);
    if (at != MAP_FAILED || ::pwrite(reopened, "x", 1, 0) >= 0) return 3;
    return 0;
  });

  EXPECT_EQ(writer.signal, SIGSEGV);
  EXPECT_EQ(climber.code, 0);
  EXPECT_TRUE(daemon_.LeaseCountBecomes(0));
  const ExitStatus reader = attach([](std::uint8_t* data, int) { return data[0]; });
  EXPECT_EQ(reader.code, 1);
}

// Cases 1 and 9.
TEST_F(DaemonLife, KilledInvocationsLeaseIsGoneWithinASecondAndTheOthersStay) {
  MakeState("m");
  Process a = StartHolder("m");
  const Process b = StartHolder("m");
  const Process c = StartHolder("m");
  ASSERT_TRUE(daemon_.LeaseCountBecomes(3));

  a.KillAndReap();

  EXPECT_TRUE(daemon_.LeaseCountBecomes(2, /*deadline_ms=*/1000));
  EXPECT_EQ(daemon_.Client().Show("m").value().phase, wire::StatePhase::kReady);
}

TEST_F(DaemonLife, LeasesSayWhoRunsWhat) {
  MakeState("m");
  const Process holder = StartHolder("m");
  WireClient client = daemon_.Client();

  const auto leases = client.AskFor<wire::LeasesReply>(wire::LeasesRequest{});

  ASSERT_THAT(leases, IsOk());
  ASSERT_EQ(leases.value().leases.size(), 1u);
  const wire::LeaseInfo& lease = leases.value().leases[0];
  EXPECT_EQ(lease.pid, static_cast<std::uint64_t>(holder.pid()));
  EXPECT_EQ(lease.uid, ::geteuid());
  EXPECT_EQ(lease.state, "m");
  EXPECT_THAT(lease.command, HasSubstr("daemon_life_test"));
}

// Cases 32 and 34.
TEST_F(DaemonLife, EvictedStateDrainsUntilItsLastReaderIsGone) {
  const wire::StateInfo state = MakeState("m");
  Process reader = StartHolder("m");
  WireClient client = daemon_.Client();

  const auto first = client.AskFor<wire::EvictReply>(wire::EvictRequest{"m", 0});
  ASSERT_THAT(first, IsOk());
  EXPECT_FALSE(first.value().freed);
  ASSERT_EQ(first.value().leases.size(), 1u);
  EXPECT_EQ(first.value().leases[0].pid, static_cast<std::uint64_t>(reader.pid()));
  EXPECT_EQ(client.Show("m").value().phase, wire::StatePhase::kDraining);
  EXPECT_THAT(client.Ask(wire::AttachRequest{"m", {}, 0, false}), FailsWith(Code::kUnavailable));
  EXPECT_EQ(client.Status().value().used_bytes, state.arena_bytes);
  Result<std::uint32_t> waiting = client.Send(wire::EvictRequest{"m", 10'000});
  reader.KillAndReap();
  const Result<wire::Received> second = client.Answer(waiting.value());

  ASSERT_THAT(second, IsOk());
  EXPECT_TRUE(std::get<wire::EvictReply>(second.value().message.body).freed);
  EXPECT_EQ(client.Status().value().used_bytes, 0u);
  EXPECT_THAT(client.Show("m"), FailsWith(Code::kNotFound));
}

TEST_F(DaemonLife, MemoryCountsWhileSomebodyMapsItWithoutALease) {
  const wire::StateInfo state = MakeState("m");
  Process mapper = StartHolder("m", /*forget_socket=*/true);
  ASSERT_TRUE(daemon_.LeaseCountBecomes(0));
  WireClient client = daemon_.Client();

  const auto evicted = client.AskFor<wire::EvictReply>(wire::EvictRequest{"m", 0});

  ASSERT_THAT(evicted, IsOk());
  EXPECT_FALSE(evicted.value().freed);
  EXPECT_EQ(evicted.value().state.phase, wire::StatePhase::kClosing);
  EXPECT_EQ(client.Status().value().used_bytes, state.arena_bytes);
  mapper.KillAndReap();
  EXPECT_TRUE(WaitUntil([&] { return client.Status().value().used_bytes == 0; }));
}

TEST_F(DaemonLife, SameTemplateTwiceIsOneStateAndAnotherTemplateIsRefused) {
  const wire::StateInfo state = MakeState("m");
  WireClient client = daemon_.Client();
  const std::string path = daemon_.folder() / "m.safetensors";

  const Result<wire::LoadReply> again = client.Load(LoadRequestFor("m"), path);
  const Result<wire::LoadReply> other = client.Load(LoadRequestFor("m", 1000, 2), path);

  ASSERT_THAT(again, IsOk());
  EXPECT_TRUE(again.value().joined);
  EXPECT_EQ(again.value().state.epoch, state.epoch);
  ASSERT_THAT(other, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(other.error().message, HasSubstr("use another name, or --replace"));
}

TEST_F(DaemonLife, EvictedAndLoadedAgainHasTheSameDigestAndANewEpoch) {
  const wire::StateInfo first = MakeState("m");
  WireClient client = daemon_.Client();
  ASSERT_TRUE(client.AskFor<wire::EvictReply>(wire::EvictRequest{"m", 0}).value().freed);

  const wire::StateInfo second = MakeState("m");

  EXPECT_EQ(first.content_digest, second.content_digest);
  EXPECT_GT(second.epoch, first.epoch);
}

TEST_F(DaemonLife, HeldStateEndsWithItsStickyTask) {
  const std::string path = daemon_.folder() / "m.safetensors";
  WriteTensorFile(path, kModelBytes);
  WireClient holder = daemon_.Client();
  wire::LoadRequest load = LoadRequestFor("m");
  load.hold = true;
  ASSERT_THAT(holder.Load(load, path), IsOk());
  ASSERT_THAT(holder.Ask(wire::AttachRequest{"m", {}, 0, /*hold=*/true}), IsOk());
  WireClient client = daemon_.Client();
  EXPECT_EQ(client.Show("m").value().hold_count, 1u);

  holder.Close();

  EXPECT_TRUE(WaitUntil([&] { return !client.Show("m").ok(); }));
  EXPECT_EQ(client.Status().value().used_bytes, 0u);
}

TEST_F(DaemonLife, ListOfManyStatesTravelsOutsideTheFrame) {
  // Failed loads are kept with their reasons; each of these makes a long one.
  const std::string path = daemon_.folder() / "bad.safetensors";
  WriteText(path, "not a model");
  WireClient client = daemon_.Client();
  for (int i = 0; i < 60; ++i) {
    wire::LoadRequest request = LoadRequestFor("state-" + std::to_string(i));
    request.source = std::string(3000, 'x');
    EXPECT_FALSE(client.Load(request, path).ok());
  }

  const auto list = client.AskFor<wire::ListReply>(wire::ListRequest{});

  ASSERT_THAT(list, IsOk());
  EXPECT_EQ(list.value().states.size(), 60u);
}

TEST_F(DaemonLife, ThousandAttachesLeaveNothingBehind) {
  MakeState("m");
  const auto attach_and_exit = [&](int count) {
    for (int i = 0; i < count; ++i) {
      WireClient client = daemon_.Client();
      ASSERT_THAT(client.Ask(wire::AttachRequest{"m", {}, 0, false}), IsOk());
    }
  };
  attach_and_exit(100);  // to let every table and buffer find its size
  ASSERT_TRUE(daemon_.LeaseCountBecomes(0));
  const std::uint64_t resident_before = ResidentBytes(daemon_.pid());
  const int descriptors_before = OpenDescriptors(daemon_.pid());

  attach_and_exit(1000);

  ASSERT_TRUE(daemon_.LeaseCountBecomes(0));
  EXPECT_TRUE(WaitUntil([&] { return OpenDescriptors(daemon_.pid()) <= descriptors_before; }))
      << OpenDescriptors(daemon_.pid()) << " descriptors, " << descriptors_before << " before";
  daemon_.ExpectResidentBelow(resident_before + (512u << 10));
}

TEST_F(DaemonLife, ThousandProcessesThatAttachAndExitAreAllLetGo) {
  MakeState("m");
  const std::string socket_path = daemon_.socket_path();

  for (int i = 0; i < 1000; ++i) {
    Process child = Process::Fork([&] {
      Result<WireClient> client = WireClient::Connect(socket_path);
      return client.ok() && client.value().Ask(wire::AttachRequest{"m", {}, 0, false}).ok() ? 0 : 1;
    });
    ASSERT_EQ(child.Wait().value_or(ExitStatus{}).code, 0);
  }

  EXPECT_TRUE(daemon_.LeaseCountBecomes(0, /*deadline_ms=*/1000));
}

// Case 12: the daemon's death takes nothing from those who have attached.
TEST_F(DaemonLife, MappingsOutliveTheDaemon) {
  MakeState("m");
  WireClient client = daemon_.Client();
  wire::Received reply = client.Ask(wire::AttachRequest{"m", {}, 0, false}).value();
  const device::Mapping arena =
      device::Mapping::ReadOnly(reply.fds.at(1).get(), kModelBytes).value();

  daemon_.process().KillAndReap();

  EXPECT_EQ(arena.bytes()[3], 4);
  EXPECT_THAT(client.Status(), FailsWith(Code::kUnavailable));
  EXPECT_THAT(WireClient::Connect(daemon_.socket_path()), FailsWith(Code::kUnavailable));
}

// Cases 11 and 14.
TEST_F(DaemonLife, RestartAfterKillNeedsNoCleaningAndServesNothingStale) {
  MakeState("m");
  const std::uint64_t nonce = daemon_.Client().Status().value().nonce;

  daemon_.Restart();

  WireClient client = daemon_.Client();
  EXPECT_NE(client.Status().value().nonce, nonce);
  EXPECT_THAT(client.Show("m"), FailsWith(Code::kNotFound));
  MakeState("m");
}

TEST_F(DaemonLife, TermAnswersWhoeverWaitsAndEndsInTime) {
  MakeState("m");
  const Process reader = StartHolder("m");
  const std::string path = daemon_.folder() / "big.safetensors";
  WriteTensorFile(path, 1ull << 30);
  WireClient client = daemon_.Client();
  const Result<std::uint32_t> waiting = client.SendLoad(LoadRequestFor("big", 60'000), path);
  ASSERT_TRUE(WaitUntil([&] { return daemon_.Client().Show("big").ok(); }));

  daemon_.process().Signal(SIGTERM);

  const Result<wire::Received> answer = client.Answer(waiting.value());
  ASSERT_THAT(answer, FailsWith(Code::kUnavailable));
  EXPECT_THAT(answer.error().message, HasSubstr("shutting down"));
  const std::optional<ExitStatus> exit = daemon_.process().Wait(/*deadline_ms=*/6000);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 0);
  EXPECT_NE(::access(daemon_.socket_path().c_str(), F_OK), 0) << "the socket was left behind";
}

TEST_F(DaemonLife, SecondTermEndsItAtOnce) {
  const std::string path = daemon_.folder() / "big.safetensors";
  WriteTensorFile(path, 1ull << 30);
  WireClient client = daemon_.Client();
  ASSERT_THAT(client.SendLoad(LoadRequestFor("big", 60'000), path), IsOk());
  ASSERT_TRUE(WaitUntil([&] { return daemon_.LoaderPid().has_value(); }));
  ::kill(daemon_.LoaderPid().value_or(0), SIGSTOP);

  daemon_.process().Signal(SIGTERM);
  // Two signals that are pending at once are one.
  ASSERT_TRUE(WaitUntil([&] { return daemon_.log().find("shutting down") != std::string::npos; }));
  daemon_.process().Signal(SIGTERM);

  const std::optional<ExitStatus> exit = daemon_.process().Wait(/*deadline_ms=*/2000);
  ASSERT_TRUE(exit.has_value());
}

TEST_F(DaemonLife, HangUpIsNoReasonToEnd) {
  daemon_.process().Signal(SIGHUP);

  EXPECT_THAT(daemon_.Client().Status(), IsOk());
}

// A terminal sends its signals to the loader too, which is of the daemon's process group.
TEST_F(DaemonLife, SignalsOfTheTerminalEndNoLoad) {
  const std::string path = daemon_.folder() / "big.safetensors";
  WriteTensorFile(path, 384ull << 20);
  WireClient client = daemon_.Client();
  const Result<std::uint32_t> waiting = client.SendLoad(LoadRequestFor("big", 60'000), path);
  WireClient watcher = daemon_.Client();
  ASSERT_TRUE(WaitUntil([&] {
    const Result<wire::StateInfo> state = watcher.Show("big");
    return state.ok() && state.value().phase == wire::StatePhase::kFilling;
  }));
  const pid_t loader = daemon_.LoaderPid().value_or(0);
  ASSERT_GT(loader, 0);
  ::kill(loader, SIGSTOP);
  ASSERT_EQ(watcher.Show("big").value().phase, wire::StatePhase::kFilling) << "too late";

  ::kill(loader, SIGHUP);
  ::kill(loader, SIGINT);
  ::kill(loader, SIGCONT);

  EXPECT_THAT(client.Answer(waiting.value(), /*wait_ms=*/60'000), IsOk());
}

}  // namespace
}  // namespace sticky::testing
