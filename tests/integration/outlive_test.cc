// States outlive their daemon: killed at any moment, upgraded or told to go, with the keeper that
// users start (sticky-keeper).

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/host_arena.h"
#include "flatbuffers/wire_manifest.h"
#include "tests/testing/daemon_process.h"
#include "tests/testing/matchers.h"

namespace sticky::testing {
namespace {

using ::testing::HasSubstr;
using wire::StatePhase;

constexpr std::uint64_t kModelBytes = 1 << 20;

DaemonOptions Kept() {
  DaemonOptions options;
  options.kept = true;
  return options;
}

class Outlive : public ::testing::Test {
 protected:
  Outlive() : daemon_(Kept()) {}

  wire::StateInfo MakeState(const std::string& name) {
    const std::string path = daemon_.folder() / (name + ".safetensors");
    WriteTensorFile(path, kModelBytes);
    WireClient client = daemon_.Client();
    Result<wire::LoadReply> loaded = client.Load(LoadRequestFor(name), path);
    EXPECT_THAT(loaded, IsOk());
    ::unlink(path.c_str());  // from here on nobody can read it again
    return loaded.ok() ? loaded.value().state : wire::StateInfo{};
  }
  std::uint64_t UsedBytes() const { return daemon_.Client().Status().value().used_bytes; }
  static Result<wire::Received> Attach(WireClient& client, const std::string& name) {
    wire::AttachRequest request;
    request.state = name;
    return client.Ask(request);
  }

  DaemonProcess daemon_;
};

TEST_F(Outlive, AKilledDaemonsStatesAreBackWithoutTheirFiles) {
  const wire::StateInfo one = MakeState("one");
  const wire::StateInfo two = MakeState("two");
  EXPECT_TRUE(one.kept);
  const std::uint64_t used_bytes = UsedBytes();

  daemon_.KillAndWait();

  WireClient client = daemon_.Client();
  for (const wire::StateInfo& was : {one, two}) {
    const wire::StateInfo is = client.Show(was.name).value();
    EXPECT_EQ(is.phase, StatePhase::kReady);
    EXPECT_EQ(is.content_digest, was.content_digest);
    EXPECT_EQ(is.epoch, was.epoch);
    Result<wire::Received> lease = Attach(client, was.name);
    ASSERT_THAT(lease, IsOk());
    Result<device::Mapping> arena =
        device::Mapping::ReadOnly(lease.value().fds.at(1).get(), kModelBytes);
    ASSERT_THAT(arena, IsOk());
    EXPECT_EQ(arena.value().bytes()[5], 6);
  }
  EXPECT_EQ(client.Status().value().used_bytes, used_bytes);
  EXPECT_EQ(client.Status().value().keeper, "sticky-keeper");
  EXPECT_EQ(MakeState("three").epoch, two.epoch + 1);
}

TEST_F(Outlive, WhatALiveInvocationMapsIsTheSameAndCountsUntilItLetsGo) {
  MakeState("m");
  WireClient invocation = daemon_.Client();
  Result<wire::Received> lease = Attach(invocation, "m");
  ASSERT_THAT(lease, IsOk());
  std::optional<device::Mapping> mapping =
      device::Mapping::ReadOnly(lease.value().fds.at(1).get(), kModelBytes).value();
  lease.value().fds.clear();

  daemon_.KillAndWait();

  EXPECT_EQ(mapping->bytes()[9], 10);
  EXPECT_FALSE(invocation.Status().ok()) << "its connection is gone";
  WireClient admin = daemon_.Client();
  EXPECT_EQ(admin.Status().value().lease_count, 0u);
  const auto evicted = admin.AskFor<wire::EvictReply>(wire::EvictRequest{"m", 300});
  ASSERT_THAT(evicted, IsOk());
  EXPECT_FALSE(evicted.value().freed) << "somebody maps it";
  EXPECT_GT(UsedBytes(), 0u);
  daemon_.KillAndWait();  // an evicted state does not come back to life, nor is it forgotten
  EXPECT_EQ(daemon_.Client().Show("m").value().phase, StatePhase::kClosing);
  EXPECT_EQ(mapping->bytes()[9], 10);
  mapping.reset();
  EXPECT_TRUE(WaitUntil([&] { return UsedBytes() == 0; }));
}

TEST_F(Outlive, AnEvictedStateIsFreeInTheKeeperToo) {
  MakeState("first");
  int open = 0;
  for (const char* const name : {"a", "b", "c"}) {
    MakeState(name);
    WireClient admin = daemon_.Client();
    const auto evicted = admin.AskFor<wire::EvictReply>(wire::EvictRequest{name, 5000});
    ASSERT_THAT(evicted, IsOk());
    EXPECT_TRUE(evicted.value().freed);
    // By its answer the keeper has done all that it was told before.
    const int still_open = OpenDescriptors(daemon_.process().pid());
    EXPECT_TRUE(open == 0 || still_open == open) << open << ", then " << still_open;
    open = still_open;
  }
}

TEST_F(Outlive, WhatWasNotPublishedIsGoneAndItsMemoryFree) {
  WireClient builder = daemon_.Client();
  wire::BuildRequest build;
  build.state = "half";
  ASSERT_THAT(builder.AskFor<wire::BuildReply>(build), IsOk());
  ASSERT_THAT(builder.Ask(wire::BuildArenaRequest{kModelBytes, 5000}), IsOk());
  EXPECT_GT(UsedBytes(), 0u);

  daemon_.KillAndWait();

  EXPECT_FALSE(daemon_.Client().Show("half").ok());
  EXPECT_EQ(UsedBytes(), 0u);
}

TEST_F(Outlive, WhoeverConnectsInBetweenWaitsForTheNextDaemon) {
  MakeState("m");
  for (int round = 0; round < 5; ++round) {
    const pid_t killed = daemon_.pid();
    ASSERT_GT(killed, 0);
    ::kill(killed, SIGKILL);
    ASSERT_TRUE(WaitUntil([&] { return daemon_.pid() != killed; }));

    Result<WireClient> client = WireClient::Connect(daemon_.socket_path());

    ASSERT_THAT(client, IsOk());
    EXPECT_THAT(Attach(client.value(), "m"), IsOk());
  }
}

TEST_F(Outlive, ADrainAndABudgetOfTheAdminStay) {
  MakeState("m");
  WireClient admin = daemon_.Client();
  ASSERT_THAT(admin.Ask(wire::DrainRequest{"m"}), IsOk());
  ASSERT_THAT(admin.Ask(wire::BudgetRequest{123u << 20}), IsOk());

  daemon_.KillAndWait();
  daemon_.KillAndWait();

  WireClient client = daemon_.Client();
  EXPECT_TRUE(client.Show("m").value().closed);
  EXPECT_EQ(client.Status().value().budget_bytes, 123u << 20);
  EXPECT_THAT(Attach(client, "m"), FailsWith(Code::kUnavailable));
}

TEST_F(Outlive, ManyDeathsLeaveNothingBehindInTheKeeper) {
  const std::string digest = ToHex(*MakeState("m").content_digest);
  daemon_.KillAndWait();
  const int open = OpenDescriptors(daemon_.process().pid());
  for (int round = 0; round < 10; ++round) {
    daemon_.KillAndWait();
    EXPECT_EQ(ToHex(*daemon_.Client().Show("m").value().content_digest), digest);
  }
  EXPECT_EQ(OpenDescriptors(daemon_.process().pid()), open);
}

TEST_F(Outlive, WithoutItsKeeperTheDaemonGoesOnAndSaysWhatThatMeans) {
  MakeState("m");
  const pid_t pid = daemon_.pid();
  daemon_.process().KillAndReap();

  const auto is_lost = [&] { return daemon_.Client().Status().value().keeper_lost; };
  EXPECT_TRUE(WaitUntil(is_lost));

  WireClient client = daemon_.Client();
  EXPECT_THAT(Attach(client, "m"), IsOk());
  EXPECT_FALSE(client.Show("m").value().kept);
  MakeState("n");
  EXPECT_THAT(daemon_.log(), HasSubstr("the keeper has gone"));
  ::kill(pid, SIGTERM);
  EXPECT_TRUE(WaitUntil([&] { return ::kill(pid, 0) != 0; }));
}

TEST_F(Outlive, AKeeperThatHangsHoldsUpNobody) {
  daemon_.process().Signal(SIGSTOP);
  std::vector<wire::StateInfo> states;
  do {  // its socket takes some messages before it is full
    states.push_back(MakeState("s" + std::to_string(states.size())));
    ASSERT_EQ(states.back().phase, StatePhase::kReady);
  } while (states.back().kept && states.size() < 100);
  EXPECT_FALSE(states.back().kept);
  EXPECT_THAT(daemon_.log(), HasSubstr("the keeper takes nothing"));

  daemon_.process().Signal(SIGCONT);

  EXPECT_TRUE(WaitUntil([&] { return MakeState("later" + std::to_string(states.size())).kept; }));
  daemon_.KillAndWait();
  WireClient client = daemon_.Client();
  EXPECT_FALSE(client.Show(states.back().name).ok());
  EXPECT_THAT(client.Show(states.front().name), IsOk());
  EXPECT_THAT(client.Show("later" + std::to_string(states.size())), IsOk());
}

TEST_F(Outlive, ShutdownLeavesTheStatesToTheNextDaemonWhenItIsTold) {
  const wire::StateInfo was = MakeState("m");
  const pid_t pid = daemon_.pid();
  WireClient admin = daemon_.Client();

  const auto reply = admin.AskFor<wire::ShutdownReply>(wire::ShutdownRequest{true});

  ASSERT_THAT(reply, IsOk());
  EXPECT_EQ(reply.value().state_count, 1u);
  EXPECT_TRUE(WaitUntil([&] { return daemon_.pid() > 0 && daemon_.pid() != pid; }));
  EXPECT_EQ(daemon_.Client().Show("m").value().content_digest, was.content_digest);
}

TEST_F(Outlive, ShutdownDropsTheStatesOtherwiseAndTheKeeperEndsToo) {
  MakeState("m");
  WireClient admin = daemon_.Client();

  ASSERT_THAT(admin.AskFor<wire::ShutdownReply>(wire::ShutdownRequest{false}), IsOk());

  const std::optional<ExitStatus> ended = daemon_.process().Wait();
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code, 0);
  EXPECT_NE(::access(daemon_.socket_path().c_str(), F_OK), 0);
}

TEST_F(Outlive, AnEndOfTheKeeperIsAnEndOfTheDaemon) {
  const pid_t pid = daemon_.pid();

  daemon_.process().Signal(SIGTERM);

  const std::optional<ExitStatus> ended = daemon_.process().Wait();
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code, 0);
  EXPECT_NE(::kill(pid, 0), 0);
}

// --- the keeper alone ---------------------------------------------------------------------------

ExitStatus RunKeeper(std::vector<std::string> arguments, const std::string& output_path) {
  arguments.insert(arguments.begin(), ProgramPrefix() + "/bin/sticky-keeper");
  Process keeper = Process::Start({arguments, {}, output_path, {}});
  return keeper.Wait().value_or(ExitStatus{});
}

TEST(Keeper, ADaemonThatCannotServeIsNotStartedAgain) {
  const TempFolder folder;
  const std::string output = folder / "log";

  EXPECT_EQ(RunKeeper({"--daemon", "/bin/false"}, output).code, 1);
  EXPECT_THAT(ReadText(output), HasSubstr("it is not started again"));
  EXPECT_EQ(RunKeeper({"--daemon", folder / "none"}, output).code, 127);
  EXPECT_THAT(ReadText(output), HasSubstr("No such file or directory"));
  EXPECT_EQ(RunKeeper({"--", "--memory", "nonsense"}, output).code, 64);
  EXPECT_EQ(RunKeeper({"--restarts", "x"}, output).code, 64);
}

TEST(Keeper, ADaemonThatDiesAgainAndAgainIsGivenUp) {
  const TempFolder folder;
  const std::string output = folder / "log";
  WriteText(folder / "dies", "#!/bin/sh\nkill -9 $$\n");
  ::chmod((folder / "dies").c_str(), 0755);

  const ExitStatus ended = RunKeeper({"--restarts", "3", "--daemon", folder / "dies"}, output);

  EXPECT_EQ(ended.code, 128 + SIGKILL);
  EXPECT_THAT(ReadText(output), HasSubstr("in 50 ms"));
  EXPECT_THAT(ReadText(output), HasSubstr("in 200 ms"));
  EXPECT_THAT(ReadText(output), HasSubstr("too many starts in a row"));
}

}  // namespace
}  // namespace sticky::testing
