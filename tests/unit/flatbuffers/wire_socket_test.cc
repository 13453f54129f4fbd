// Frames and descriptors over real sockets: whole or not at all, with deadlines that hold, and
// nothing leaked when something is wrong.

#include "flatbuffers/wire_socket.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "flatbuffers/wire_codec.h"
#include "tests/testing/matchers.h"

namespace sticky::wire {
namespace {

using sticky::testing::FailsWith;
using sticky::testing::IsOk;
using ::testing::HasSubstr;

constexpr int kSoonMs = 2000;

std::size_t OpenFdCount() {
  const auto entries = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

struct Pair {
  UniqueFd left;
  UniqueFd right;
};

Pair MakePair() {
  int fds[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

TEST(WireSocket, AFrameArrivesWithItsDescriptors) {
  const Pair pair = MakePair();
  const std::vector<std::uint8_t> bytes(1000, 7);
  const std::vector<int> fds = {pair.left.get(), 0, 0};

  ASSERT_THAT(SendFrame(pair.left.get(), bytes, fds, Deadline::AfterMs(kSoonMs)), IsOk());
  const Result<Frame> frame = ReceiveFrame(pair.right.get(), Deadline::AfterMs(kSoonMs));

  ASSERT_THAT(frame, IsOk());
  EXPECT_EQ(frame.value().bytes, bytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(frame.value().bytes.data()) % 8, 0u);
  ASSERT_EQ(frame.value().fds.size(), 3u);
  for (const UniqueFd& fd : frame.value().fds) {
    EXPECT_EQ(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
}

TEST(WireSocket, TheLargestFrameWithTheMostDescriptorsArrives) {
  const Pair pair = MakePair();
  const std::vector<std::uint8_t> bytes(kFrameBytesMax, 9);
  const std::vector<int> fds(kFdsPerFrameMax, 0);

  ASSERT_THAT(SendFrame(pair.left.get(), bytes, fds, Deadline::AfterMs(kSoonMs)), IsOk());
  const Result<Frame> frame = ReceiveFrame(pair.right.get(), Deadline::AfterMs(kSoonMs));

  ASSERT_THAT(frame, IsOk());
  EXPECT_EQ(frame.value().bytes.size(), kFrameBytesMax);
  EXPECT_EQ(frame.value().fds.size(), kFdsPerFrameMax);
}

TEST(WireSocket, MoreThanTheLimitsIsNotSent) {
  const Pair pair = MakePair();
  const std::vector<std::uint8_t> large(kFrameBytesMax + 1);
  const std::vector<std::uint8_t> small(1);
  const std::vector<int> many(kFdsPerFrameMax + 1, 0);

  EXPECT_THAT(TrySend(pair.left.get(), large, {}), FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(TrySend(pair.left.get(), {}, {}), FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(TrySend(pair.left.get(), small, many), FailsWith(Code::kInvalidArgument));
  EXPECT_FALSE(TryReceive(pair.right.get()).value().has_value());
}

TEST(WireSocket, AnOverlongFrameIsCorruptAndItsDescriptorsAreClosed) {
  const Pair pair = MakePair();
  const std::size_t before = OpenFdCount();
  std::vector<std::uint8_t> bytes(kFrameBytesMax + 1);
  iovec part{bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = 0;
  std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  ASSERT_GT(::sendmsg(pair.left.get(), &header, 0), 0);

  EXPECT_THAT(ReceiveFrame(pair.right.get(), Deadline::AfterMs(kSoonMs)),
              FailsWith(Code::kCorrupt));

  EXPECT_EQ(OpenFdCount(), before);
}

TEST(WireSocket, DescriptorsThatDoNotFitAreCorruptAndNoneIsLeaked) {
  const Pair pair = MakePair();
  const std::vector<std::uint8_t> bytes(8);
  const std::vector<int> fds(20, 0);
  ASSERT_TRUE(TrySend(pair.left.get(), bytes, fds).value());
  const std::size_t before = OpenFdCount();
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  const int next = ::dup(0);
  ::close(next);
  const rlimit low{static_cast<rlim_t>(next) + 5, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);

  const Result<Frame> frame = ReceiveFrame(pair.right.get(), Deadline::AfterMs(kSoonMs));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);

  ASSERT_THAT(frame, FailsWith(Code::kCorrupt));
  EXPECT_THAT(frame.error().message, HasSubstr("ulimit"));
  EXPECT_EQ(OpenFdCount(), before);
}

TEST(WireSocket, TheDeadlineAndAClosedPeerAreToldApart) {
  Pair pair = MakePair();

  const Result<Frame> late = ReceiveFrame(pair.left.get(), Deadline::AfterMs(10));
  pair.right.Reset();
  const Result<Frame> closed = ReceiveFrame(pair.left.get(), Deadline::AfterMs(kSoonMs));
  const std::vector<std::uint8_t> bytes(8);
  const Status sent = SendFrame(pair.left.get(), bytes, {}, Deadline::AfterMs(kSoonMs));

  ASSERT_THAT(late, FailsWith(Code::kUnavailable));
  EXPECT_EQ(late.error().os_code, ETIMEDOUT);
  EXPECT_THAT(late.error().message, HasSubstr("deadline"));
  ASSERT_THAT(closed, FailsWith(Code::kUnavailable));
  EXPECT_EQ(closed.error().os_code, EPIPE);
  EXPECT_THAT(closed.error().message, HasSubstr("closed"));
  ASSERT_THAT(sent, FailsWith(Code::kUnavailable));
  EXPECT_EQ(sent.error().os_code, EPIPE);
}

TEST(WireSocket, AFrameSentBeforeThePeerClosedIsStillReceived) {
  Pair pair = MakePair();
  const std::vector<std::uint8_t> bytes(8);
  ASSERT_TRUE(TrySend(pair.left.get(), bytes, {}).value());
  pair.left.Reset();

  EXPECT_THAT(ReceiveFrame(pair.right.get(), Deadline::AfterMs(kSoonMs)), IsOk());
  EXPECT_THAT(ReceiveFrame(pair.right.get(), Deadline::AfterMs(kSoonMs)),
              FailsWith(Code::kUnavailable));
}

TEST(WireSocket, SendingToAPeerThatDoesNotReadEndsAtTheDeadline) {
  const Pair pair = MakePair();
  const std::vector<std::uint8_t> bytes(kFrameBytesMax);
  int sent = 0;
  while (sent < 1000 && TrySend(pair.left.get(), bytes, {}).value()) ++sent;
  ASSERT_LT(sent, 1000);

  const Status status = SendFrame(pair.left.get(), bytes, {}, Deadline::AfterMs(10));

  ASSERT_THAT(status, FailsWith(Code::kUnavailable));
  EXPECT_EQ(status.error().os_code, ETIMEDOUT);
}

class SocketFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/stkXXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  UniqueFd Listen(const std::string& path, int backlog) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd.get(), backlog), 0);
    return fd;
  }

  std::string folder_;
};

TEST_F(SocketFolder, ConnectsToAListener) {
  const std::string path = folder_ + "/s";
  const UniqueFd listener = Listen(path, 4);

  EXPECT_THAT(Connect(path, Deadline::AfterMs(kSoonMs)), IsOk());
}

TEST_F(SocketFolder, AFullBacklogEndsAtTheDeadline) {
  const std::string path = folder_ + "/s";
  const UniqueFd listener = Listen(path, 0);
  std::vector<UniqueFd> waiting;
  Result<UniqueFd> last = Connect(path, Deadline::AfterMs(kSoonMs));
  while (last.ok() && waiting.size() < 10) {
    waiting.push_back(std::move(last).value());
    last = Connect(path, Deadline::AfterMs(20));
  }

  ASSERT_THAT(last, FailsWith(Code::kUnavailable));
  EXPECT_EQ(last.error().os_code, ETIMEDOUT);
}

TEST_F(SocketFolder, NoDaemonIsUnavailableAndSaysWhatToDo) {
  const std::string path = folder_ + "/s";
  const Result<UniqueFd> absent = Connect(path, Deadline::AfterMs(kSoonMs));
  Listen(path, 1).Reset();
  const Result<UniqueFd> stale = Connect(path, Deadline::AfterMs(kSoonMs));

  ASSERT_THAT(absent, FailsWith(Code::kUnavailable));
  EXPECT_THAT(absent.error().message, HasSubstr(path));
  EXPECT_THAT(absent.error().message, HasSubstr("STICKYINVOC_SOCKET"));
  ASSERT_THAT(stale, FailsWith(Code::kUnavailable));
  EXPECT_THAT(stale.error().message, HasSubstr("no daemon is listening"));
}

TEST_F(SocketFolder, APathOf107BytesConnectsAndOneMoreIsRefusedWithItsLength) {
  std::string path = folder_ + "/" + std::string(kSocketPathBytesMax - folder_.size() - 1, 's');
  const UniqueFd listener = Listen(path, 4);
  EXPECT_THAT(Connect(path, Deadline::AfterMs(kSoonMs)), IsOk());

  path += "s";
  const Result<UniqueFd> refused = Connect(path, Deadline::AfterMs(kSoonMs));

  ASSERT_THAT(refused, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(refused.error().message, HasSubstr(path));
  EXPECT_THAT(refused.error().message, HasSubstr("108"));
}

TEST(DefaultSocketPath, TheVariablesAreTakenInOrder) {
  ::setenv("STICKYINVOC_SOCKET", "/a/s", 1);
  ::setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
  EXPECT_EQ(DefaultSocketPath().value(), "/a/s");
  ::setenv("STICKYINVOC_SOCKET", "", 1);
  EXPECT_EQ(DefaultSocketPath().value(), "/run/user/7/stickyinvoc/stickyd.sock");
  ::unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(DefaultSocketPath().value(), "/run/stickyinvoc/stickyd.sock");
  ::setenv("XDG_RUNTIME_DIR", std::string(100, 'x').c_str(), 1);
  EXPECT_THAT(DefaultSocketPath(), FailsWith(Code::kInvalidArgument));
}

}  // namespace
}  // namespace sticky::wire
