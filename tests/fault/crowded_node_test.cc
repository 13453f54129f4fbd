// Many users, many states, little memory, with the real daemon: what one of them does, or fails to
// do, is nobody else's trouble.

#include <csignal>
#include <functional>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/testing/daemon_process.h"
#include "tests/testing/matchers.h"

namespace sticky::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using wire::StatePhase;

constexpr std::uint32_t kNobody = 65534;

DaemonOptions WithMemory(const std::string& budget, const std::string& config = "") {
  DaemonOptions options;
  options.arguments = {"--memory", budget};
  options.config = config;
  return options;
}

// Lets every user of the node reach the daemon, as a service's socket does.
void LetEverybodyIn(const DaemonProcess& daemon) {
  ::chmod(daemon.folder().path().c_str(), 0755);
  ::chmod((daemon.folder() / "run").c_str(), 0755);
  ::chmod(daemon.socket_path().c_str(), 0666);
}

// Runs `body` as the user nobody, in a process of its own, and gives its exit code.
int AsNobody(const std::function<int()>& body) {
  Process child = Process::Fork([&] {
    if (::setgroups(0, nullptr) != 0 || ::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) {
      return 100;
    }
    return body();
  });
  return child.Wait().value_or(ExitStatus{101}).code;
}

TEST(CrowdedNode, TheStateThatWasNotUsedForLongestMakesRoom) {
  const DaemonProcess daemon(WithMemory("5MiB"));
  const std::string path = daemon.folder() / "m.safetensors";
  WriteTensorFile(path, 2u << 20);
  WireClient client = daemon.Client();
  ASSERT_THAT(client.Load(LoadRequestFor("old"), path), IsOk());
  ASSERT_THAT(client.Load(LoadRequestFor("used"), path), IsOk());
  {
    WireClient user = daemon.Client();
    ASSERT_THAT(user.Ask(wire::AttachRequest{"old", {}, 0, false}), IsOk());
  }
  ASSERT_TRUE(daemon.LeaseCountBecomes(0));

  ASSERT_THAT(client.Load(LoadRequestFor("new"), path), IsOk());

  EXPECT_THAT(client.Show("used"), FailsWith(Code::kNotFound)) << "old was used after it";
  EXPECT_THAT(client.Show("old"), IsOk());
  EXPECT_THAT(daemon.log(), HasSubstr("evicted to make room for 'new'"));
}

TEST(CrowdedNode, AStateInUseNeverMakesRoomAndItsHolderIsNamed) {
  const DaemonProcess daemon(WithMemory("3MiB"));
  const std::string path = daemon.folder() / "m.safetensors";
  WriteTensorFile(path, 2u << 20);
  WireClient holder = daemon.Client();
  ASSERT_THAT(holder.Load(LoadRequestFor("held"), path), IsOk());
  ASSERT_THAT(holder.Ask(wire::AttachRequest{"held", {}, 0, false}), IsOk());
  WireClient client = daemon.Client();

  const Result<wire::LoadReply> late = client.Load(LoadRequestFor("new", /*wait_ms=*/100), path);

  ASSERT_THAT(late, FailsWith(Code::kOutOfMemory));
  EXPECT_THAT(late.error().message,
              AllOf(HasSubstr("at place 1 of the queue"),
                    HasSubstr("'held' 2.00 MiB (leased by pid " + std::to_string(::getpid()))));
  EXPECT_EQ(holder.Show("held").value().phase, StatePhase::kReady);
}

TEST(CrowdedNode, AWaitingLoadGoesOnWhenTheLeaseEndsAndWhenTheHeadOfTheQueueDies) {
  const DaemonProcess daemon(WithMemory("3MiB"));
  const std::string large = daemon.folder() / "large.safetensors";
  const std::string small = daemon.folder() / "small.safetensors";
  WriteTensorFile(large, 2u << 20);
  WriteTensorFile(small, 1u << 20);
  WireClient holder = daemon.Client();
  ASSERT_THAT(holder.Load(LoadRequestFor("held"), large), IsOk());
  ASSERT_THAT(holder.Ask(wire::AttachRequest{"held", {}, 0, false}), IsOk());
  WireClient head = daemon.Client();
  WireClient next = daemon.Client();
  ASSERT_THAT(head.SendLoad(LoadRequestFor("head"), large), IsOk());
  ASSERT_TRUE(WaitUntil([&] { return next.Status().value().queue_count == 1; }));
  const Result<std::uint32_t> asked = next.SendLoad(LoadRequestFor("next"), large);
  WireClient third = daemon.Client();
  ASSERT_TRUE(WaitUntil([&] { return third.Status().value().queue_count == 2; }));

  head.Close();
  ASSERT_TRUE(WaitUntil([&] { return third.Status().value().queue_count == 1; }));
  holder.Close();

  EXPECT_THAT(next.Answer(asked.value()), IsOk());
  EXPECT_EQ(third.Show("next").value().phase, StatePhase::kReady);
}

// Case: a load storm, as when a job array starts everywhere at once.
TEST(CrowdedNode, AHundredRequestersShareOneLoadAndThoseWhoGiveUpDisturbNobody) {
  const DaemonProcess daemon;
  const std::string path = daemon.folder() / "m.safetensors";
  WriteTensorFile(path, 64u << 20);
  std::vector<WireClient> clients;
  std::vector<std::uint32_t> asked;
  clients.push_back(daemon.Client());
  asked.push_back(clients[0].SendLoad(LoadRequestFor("m"), path).value());
  ASSERT_TRUE(WaitUntil([&] { return daemon.LoaderPid().has_value(); }));
  const pid_t loader = *daemon.LoaderPid();
  ASSERT_EQ(::kill(loader, SIGSTOP), 0);
  for (int i = 1; i < 100; ++i) {
    clients.push_back(daemon.Client());
    asked.push_back(clients.back().SendLoad(LoadRequestFor("m"), path).value());
    ASSERT_THAT(clients.back().Status(), IsOk());  // so the load before it has been taken on
  }

  for (std::size_t i = 0; i < 90; ++i) clients[i].Close();  // the one who began it among them
  ASSERT_TRUE(WaitUntil([&] { return clients[99].Status().value().connection_count == 10; }));
  ASSERT_EQ(::kill(loader, SIGCONT), 0);

  for (std::size_t i = 90; i < 100; ++i) {
    const Result<wire::Received> answer = clients[i].Answer(asked[i]);
    ASSERT_THAT(answer, IsOk());
    const auto* reply = std::get_if<wire::LoadReply>(&answer.value().message.body);
    ASSERT_NE(reply, nullptr);
    EXPECT_TRUE(reply->joined);
    EXPECT_EQ(reply->state.epoch, 1u);
  }
}

TEST(CrowdedNode, AFloodOfLoadsByOneUserDoesNotKeepAnotherFromWorking) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become two users";
  const DaemonProcess daemon(WithMemory("64MiB", "limits: {per_user: {loads: 2}}\n"));
  LetEverybodyIn(daemon);
  const std::string path = daemon.folder() / "m.safetensors";
  WriteTensorFile(path, 1u << 20);
  ::chmod(path.c_str(), 0644);

  const int code = AsNobody([&] {
    Result<WireClient> client = WireClient::Connect(daemon.socket_path());
    if (!client.ok()) return 1;
    int refused = 0;
    for (int i = 0; i < 200; ++i) {
      const auto asked =
          client.value().SendLoad(LoadRequestFor("n" + std::to_string(i), 60'000), path);
      if (!asked.ok()) return 2;
    }
    // The node's owner works meanwhile: this one only reads what it is told.
    for (int i = 0; i < 200; ++i) {
      const Result<wire::Received> answer = client.value().Receive();
      if (!answer.ok()) return 3;
      const auto* failure = std::get_if<wire::Failure>(&answer.value().message.body);
      if (std::get_if<wire::LoadProgress>(&answer.value().message.body) != nullptr) --i;
      refused += failure != nullptr && failure->code == Code::kUnavailable ? 1 : 0;
    }
    return refused > 0 ? 0 : 4;
  });

  EXPECT_EQ(code, 0);
  WireClient owner = daemon.Client();
  EXPECT_THAT(owner.Load(LoadRequestFor("mine"), path), IsOk());
  EXPECT_THAT(owner.Ask(wire::AttachRequest{"mine", {}, 0, false}), IsOk());
}

TEST(CrowdedNode, WhatOneUserMayNotReadItDoesNotGetThroughTheDaemonThatMay) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become two users";
  const DaemonProcess daemon;
  LetEverybodyIn(daemon);
  const std::string secret = daemon.folder() / "secret.safetensors";
  WriteTensorFile(secret, 1u << 20);
  ::chmod(secret.c_str(), 0600);
  const UniqueFd path_only(::open(secret.c_str(), O_PATH | O_CLOEXEC));

  const int code = AsNobody([&] {
    Result<WireClient> client = WireClient::Connect(daemon.socket_path());
    if (!client.ok()) return 1;
    if (::open(secret.c_str(), O_RDONLY) >= 0) return 2;
    // A descriptor without the right to read names the file, and carries nothing else.
    wire::LoadRequest request = LoadRequestFor("m");
    if (!client.value().Send(request).ok()) return 3;
    wire::FilesPart part;
    part.files.push_back({"secret.safetensors", wire::FileRole::kWeights, 1u << 20});
    if (!client.value().Send(part, {path_only.get()}).ok()) return 4;
    const Result<wire::Received> answer = client.value().Receive();
    if (!answer.ok()) return 5;
    return std::holds_alternative<wire::Failure>(answer.value().message.body) ? 0 : 6;
  });

  EXPECT_EQ(code, 0);
  EXPECT_NE(daemon.Client().Show("m").ok() &&
                daemon.Client().Show("m").value().phase == StatePhase::kReady,
            true);
}

TEST(CrowdedNode, NamesThatATerminalWouldObeyAreRefusedAndNeverLoggedRaw) {
  const DaemonProcess daemon;
  const std::string path = daemon.folder() / "m.safetensors";
  WriteTensorFile(path, 4096);
  for (const std::string& name : {std::string("\x1b[2J"), std::string("a\nb"),
                                  std::string(10'000, 'x'), std::string("../m"), std::string()}) {
    WireClient client = daemon.Client();
    EXPECT_FALSE(client.Load(LoadRequestFor(name), path).ok());
  }
  WireClient client = daemon.Client();
  wire::LoadRequest request = LoadRequestFor("m");
  request.source = "/models/\x1b]0;owned\a\nstickyd error: all is lost";
  ASSERT_THAT(client.Load(request, path), IsOk());

  const std::string log = daemon.log();

  EXPECT_EQ(log.find('\x1b'), std::string::npos);
  EXPECT_EQ(log.find("\nstickyd error"), std::string::npos);
}

}  // namespace
}  // namespace sticky::testing
