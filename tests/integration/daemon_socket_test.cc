// Where stickyd listens, and where it refuses to: one daemon a path, nothing planted is followed,
// and what a dead daemon left is no obstacle.

#include <cstring>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sysexits.h>
#include <unistd.h>

#include "tests/testing/daemon_process.h"
#include "tests/testing/matchers.h"

namespace sticky::testing {
namespace {

using ::testing::HasSubstr;

// Runs stickyd with these arguments until it exits by itself.
struct Outcome {
  int code = -1;
  std::string output;
};
Outcome RunDaemon(const TempFolder& folder, const std::vector<std::string>& arguments) {
  Process::Options options;
  options.command = {ProgramPrefix() + "/bin/stickyd"};
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  options.output_path = folder / "output";
  Process process = Process::Start(options);
  const std::optional<ExitStatus> exit = process.Wait();
  return {exit ? exit->code : -1, ReadText(folder / "output")};
}

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// A listening socket of `type` at `path`.
UniqueFd ListenAt(const std::string& path, int type) {
  UniqueFd fd(::socket(AF_UNIX, type, 0));
  const sockaddr_un address = AddressOf(path);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_TRUE(type == SOCK_DGRAM || ::listen(fd.get(), 16) == 0);
  return fd;
}

// Case 10.
TEST(DaemonSocket, SecondDaemonIsRefusedByTheFirstOnesPid) {
  DaemonProcess daemon;

  const Outcome second = RunDaemon(daemon.folder(), {"--socket", daemon.socket_path()});

  EXPECT_EQ(second.code, EX_UNAVAILABLE);
  EXPECT_THAT(second.output, HasSubstr("already running, pid " + std::to_string(daemon.pid())));
  EXPECT_THAT(daemon.Client().Status(), IsOk());
}

TEST(DaemonSocket, SecondDaemonIsRefusedAlsoWhenTheLockFileWasRemoved) {
  DaemonProcess daemon;
  ASSERT_EQ(::unlink((daemon.socket_path() + ".lock").c_str()), 0);

  const Outcome second = RunDaemon(daemon.folder(), {"--socket", daemon.socket_path()});

  EXPECT_EQ(second.code, EX_UNAVAILABLE);
  EXPECT_THAT(second.output, HasSubstr("already running, pid " + std::to_string(daemon.pid())));
  EXPECT_THAT(daemon.Client().Status(), IsOk());
}

TEST(DaemonSocket, SocketAndItsFolderAreForTheirOwnerAlone) {
  DaemonProcess daemon;
  struct stat status {};

  ASSERT_EQ(::stat(daemon.socket_path().c_str(), &status), 0);

  EXPECT_EQ(status.st_mode & 07777, 0600u);
}

TEST(DaemonSocket, MissingFolderIsMadeForItsOwnerAlone) {
  TempFolder folder;
  Process::Options start;
  start.command = {ProgramPrefix() + "/bin/stickyd", "--socket", folder / "new/stickyd.sock"};
  start.output_path = folder / "output";
  const Process process = Process::Start(start);
  struct stat status {};

  ASSERT_TRUE(WaitUntil([&] { return WireClient::Connect(folder / "new/stickyd.sock").ok(); }));
  ASSERT_EQ(::stat((folder / "new").c_str(), &status), 0);

  EXPECT_EQ(status.st_mode & 07777, 0700u);
}

TEST(DaemonSocket, SomethingElseAtThePathIsLeftAlone) {
  TempFolder folder;
  WriteText(folder / "s", "precious");

  const Outcome outcome = RunDaemon(folder, {"--socket", folder / "s"});

  EXPECT_EQ(outcome.code, EX_NOPERM);
  EXPECT_THAT(outcome.output, HasSubstr("not a socket"));
  EXPECT_EQ(ReadText(folder / "s"), "precious");
}

TEST(DaemonSocket, LinkAtThePathIsNotFollowed) {
  TempFolder folder;
  WriteText(folder / "target", "precious");
  ASSERT_EQ(::symlink((folder / "target").c_str(), (folder / "s").c_str()), 0);

  const Outcome outcome = RunDaemon(folder, {"--socket", folder / "s"});

  EXPECT_EQ(outcome.code, EX_NOPERM);
  EXPECT_EQ(ReadText(folder / "target"), "precious");
}

TEST(DaemonSocket, LinkAtTheLockIsNotFollowed) {
  TempFolder folder;
  WriteText(folder / "target", "precious");
  ASSERT_EQ(::symlink((folder / "target").c_str(), (folder / "s.lock").c_str()), 0);

  const Outcome outcome = RunDaemon(folder, {"--socket", folder / "s"});

  EXPECT_NE(outcome.code, 0);
  EXPECT_EQ(ReadText(folder / "target"), "precious");
}

TEST(DaemonSocket, FolderThatOthersMayWriteToIsRefused) {
  TempFolder folder;
  ASSERT_EQ(::mkdir((folder / "open").c_str(), 0700), 0);
  ASSERT_EQ(::chmod((folder / "open").c_str(), 01777), 0);

  const Outcome outcome = RunDaemon(folder, {"--socket", folder / "open/s"});

  EXPECT_EQ(outcome.code, EX_NOPERM);
  EXPECT_THAT(outcome.output, HasSubstr("1777"));
}

TEST(DaemonSocket, FolderThatOthersCouldReplaceIsRefused) {
  TempFolder folder;
  ASSERT_EQ(::mkdir((folder / "open").c_str(), 0700), 0);
  ASSERT_EQ(::mkdir((folder / "open/run").c_str(), 0700), 0);
  ASSERT_EQ(::chmod((folder / "open").c_str(), 0777), 0);

  const Outcome outcome = RunDaemon(folder, {"--socket", folder / "open/run/s"});

  EXPECT_EQ(outcome.code, EX_NOPERM);
  EXPECT_THAT(outcome.output, HasSubstr("could replace it"));
}

TEST(DaemonSocket, LinkToAFolderIsRefused) {
  TempFolder folder;
  ASSERT_EQ(::mkdir((folder / "real").c_str(), 0700), 0);
  ASSERT_EQ(::symlink((folder / "real").c_str(), (folder / "link").c_str()), 0);

  EXPECT_EQ(RunDaemon(folder, {"--socket", folder / "link/s"}).code, EX_NOPERM);
}

// Case 23: a path that is too long fails where it is derived.
TEST(DaemonSocket, PathThatIsTooLongIsRefusedWithItsLength) {
  TempFolder folder;

  const Outcome outcome = RunDaemon(folder, {"--socket", folder / std::string(120, 'x')});

  EXPECT_EQ(outcome.code, EX_USAGE);
  EXPECT_THAT(outcome.output, HasSubstr("107"));
}

// Case 23: two jobs of one user have a daemon each.
TEST(DaemonSocket, TwoDaemonsOfOneUserKnowNothingOfEachOther) {
  DaemonProcess one;
  DaemonProcess two;
  const std::string path = one.folder() / "m.safetensors";
  WriteTensorFile(path, 4096);
  ASSERT_THAT(one.Client().Load(LoadRequestFor("m"), path), IsOk());

  EXPECT_THAT(one.Client().Show("m"), IsOk());
  EXPECT_THAT(two.Client().Show("m"), FailsWith(Code::kNotFound));
  EXPECT_NE(one.Client().Status().value().nonce, two.Client().Status().value().nonce);
}

TEST(DaemonSocket, WhoeverSeesTheSocketsFileCanConnect) {
  for (int round = 0; round < 20; ++round) {
    const TempFolder folder;
    const std::string path = folder / "s.sock";
    Process daemon = Process::Start(
        {{ProgramPrefix() + "/bin/stickyd", "--socket", path}, {}, folder / "log", {}});
    while (::access(path.c_str(), F_OK) != 0) {
    }
    const Result<UniqueFd> connected = wire::Connect(path, Deadline::AfterMs(5000));
    ASSERT_TRUE(connected.ok()) << connected.error().message;
  }
}

TEST(DaemonSocket, RemovedSocketComesBack) {
  DaemonProcess daemon;
  ASSERT_EQ(::unlink(daemon.socket_path().c_str()), 0);

  EXPECT_TRUE(WaitUntil([&] {
    Result<WireClient> client = WireClient::Connect(daemon.socket_path());
    return client.ok() && client.value().Status().ok();
  }));
  EXPECT_THAT(daemon.log(), HasSubstr("the socket file is gone"));
}

TEST(DaemonSocket, RemovedFolderComesBack) {
  DaemonProcess daemon;
  ASSERT_EQ(::unlink(daemon.socket_path().c_str()), 0);
  ASSERT_EQ(::unlink((daemon.socket_path() + ".lock").c_str()), 0);
  ASSERT_EQ(::rmdir((daemon.folder() / "run").c_str()), 0);

  EXPECT_TRUE(WaitUntil([&] { return WireClient::Connect(daemon.socket_path()).ok(); }));
}

TEST(DaemonSocket, SomeoneElsesSocketAtThePathIsNotTakenFromThem) {
  DaemonProcess daemon;
  ASSERT_EQ(::unlink(daemon.socket_path().c_str()), 0);
  const UniqueFd other = ListenAt(daemon.socket_path(), SOCK_SEQPACKET);
  struct stat before {};
  ASSERT_EQ(::stat(daemon.socket_path().c_str(), &before), 0);

  ASSERT_TRUE(WaitUntil([&] { return daemon.log().find("already running") != std::string::npos; }));

  struct stat after {};
  ASSERT_EQ(::stat(daemon.socket_path().c_str(), &after), 0);
  EXPECT_EQ(after.st_ino, before.st_ino);
}

// --- the service manager's part --------------------------------------------------------------

TEST(DaemonSocket, ReadinessIsToldToTheServiceManager) {
  TempFolder folder;
  const UniqueFd manager = ListenAt(folder / "notify", SOCK_DGRAM);
  DaemonOptions options;
  options.environment = {{"NOTIFY_SOCKET", folder / "notify"}, {"WATCHDOG_USEC", "300000"}};

  const DaemonProcess daemon(options);

  std::string heard;
  EXPECT_TRUE(WaitUntil([&] {
    char text[512];
    const ssize_t length = ::recv(manager.get(), text, sizeof text, MSG_DONTWAIT);
    if (length > 0) heard += std::string(text, static_cast<std::size_t>(length)) + "\n";
    return heard.find("READY=1") != std::string::npos &&
           heard.find("WATCHDOG=1") != std::string::npos;
  })) << heard;
}

// What systemd does: descriptor 3 listens, and LISTEN_PID is the receiver's (a shell knows it).
std::vector<std::string> CommandWithSocket(int fd) {
  return {"/bin/sh", "-c",
          "exec 3<&" + std::to_string(fd) + "; LISTEN_PID=$$ LISTEN_FDS=1 exec " + ProgramPrefix() +
              "/bin/stickyd"};
}

TEST(DaemonSocket, InheritedSocketIsServedAndLeftInPlace) {
  TempFolder folder;
  const std::string path = folder / "inherited.sock";
  const UniqueFd listening = ListenAt(path, SOCK_SEQPACKET);
  Process::Options start;
  start.command = CommandWithSocket(listening.get());
  start.output_path = folder / "output";
  Process process = Process::Start(start);

  ASSERT_TRUE(WaitUntil([&] {
    Result<WireClient> client = WireClient::Connect(path);
    return client.ok() && client.value().Status().ok() &&
           client.value().Status().value().socket_path == path;
  })) << ReadText(folder / "output");
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait().value_or(ExitStatus{}).code, 0);
  EXPECT_EQ(::access(path.c_str(), F_OK), 0) << "it belongs to the service manager";
}

// A socket that everyone may connect to, as a service manager can make one.
TEST(DaemonSocket, AnotherUserSeesAndGetsOnlyWhatIsForIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  TempFolder folder;
  const std::string path = folder / "open.sock";
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  const UniqueFd listening = ListenAt(path, SOCK_SEQPACKET);
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  Process::Options start;
  start.command = CommandWithSocket(listening.get());
  start.output_path = folder / "output";
  const Process process = Process::Start(start);
  ASSERT_TRUE(WaitUntil([&] { return WireClient::Connect(path).value().Status().ok(); }));
  WriteTensorFile(folder / "m.safetensors", 4096);
  WireClient owner = WireClient::Connect(path).value();
  ASSERT_THAT(owner.Load(LoadRequestFor("private"), folder / "m.safetensors"), IsOk());
  wire::LoadRequest shared = LoadRequestFor("shared");
  shared.policy.access.mode = AccessMode::kNode;
  ASSERT_THAT(owner.Load(shared, folder / "m.safetensors"), IsOk());

  Process child = Process::Fork([&] {
    if (::setgroups(0, nullptr) != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0) return 1;
    Result<WireClient> client = WireClient::Connect(path);
    if (!client.ok()) return 2;
    const auto list = client.value().AskFor<wire::ListReply>(wire::ListRequest{});
    if (!list.ok() || list.value().states.size() != 1) return 3;
    if (list.value().states[0].name != "shared") return 4;
    const auto refused =
        client.value().AskFor<wire::AttachReply>(wire::AttachRequest{.state = "private"});
    if (refused.ok() || refused.error().code != Code::kPermissionDenied) return 5;
    if (!client.value().AskFor<wire::AttachReply>(wire::AttachRequest{.state = "shared"}).ok())
      return 6;
    const auto evicted = client.value().AskFor<wire::EvictReply>(wire::EvictRequest{"shared", 0});
    return evicted.ok() ? 7 : 0;
  });

  EXPECT_EQ(child.Wait().value_or(ExitStatus{}).code, 0);
  EXPECT_THAT(ReadText(folder / "output"), HasSubstr("refused user 65534"));
}

// --- options ----------------------------------------------------------------------------------

TEST(DaemonOptionsTest, WrongOptionsAreUsageErrors) {
  TempFolder folder;
  EXPECT_EQ(RunDaemon(folder, {"--sockt", "/x"}).code, EX_USAGE);
  EXPECT_EQ(RunDaemon(folder, {"word"}).code, EX_USAGE);
  EXPECT_EQ(RunDaemon(folder, {"--memory", "lots"}).code, EX_USAGE);
  EXPECT_EQ(RunDaemon(folder, {"--memory", "8"}).code, EX_USAGE);  // 8 bytes: a forgotten unit
  EXPECT_EQ(RunDaemon(folder, {"--log-level", "loud"}).code, EX_USAGE);
}

TEST(DaemonOptionsTest, ConfigThatDoesNotParseIsBadInputAndAMissingOneNoInput) {
  TempFolder folder;
  WriteText(folder / "bad.yaml", "limits:\n  statez: 3\n");

  const Outcome bad =
      RunDaemon(folder, {"--config", folder / "bad.yaml", "--socket", folder / "s"});
  const Outcome missing =
      RunDaemon(folder, {"--config", folder / "none.yaml", "--socket", folder / "s"});

  EXPECT_EQ(bad.code, EX_DATAERR) << bad.output;
  EXPECT_THAT(bad.output, HasSubstr("states"));
  EXPECT_EQ(missing.code, EX_NOINPUT) << missing.output;
}

TEST(DaemonOptionsTest, VersionAndHelpAreAnsweredWithoutASocket) {
  TempFolder folder;
  EXPECT_THAT(RunDaemon(folder, {"--version"}).output, HasSubstr("stickyd "));
  const Outcome help = RunDaemon(folder, {"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.output, HasSubstr("--socket PATH"));
}

}  // namespace
}  // namespace sticky::testing
