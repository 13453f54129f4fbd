// Descriptors that cannot be closed keep threads, up to a number, and nobody who asks.

#include "daemon/io/closer.h"

#include <condition_variable>
#include <mutex>
#include <set>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/deadline.h"
#include "tests/testing/process.h"

namespace sticky::daemon {
namespace {

using sticky::testing::WaitUntil;

constexpr std::uint32_t kGood = 1000;
constexpr std::uint32_t kHung = 2000;

UniqueFd Some() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

// A close that hangs for chosen descriptors, until they are let go.
class Gate {
 public:
  Closer::CloseOne AsClose() {
    return [this](int fd) { Close(fd); };
  }
  std::vector<UniqueFd> Hanging(int count) {
    const std::lock_guard lock(mutex_);
    std::vector<UniqueFd> fds;
    for (int i = 0; i < count; ++i) {
      fds.push_back(Some());
      hanging_.insert(fds.back().get());
    }
    return fds;
  }
  void LetGo() {
    const std::lock_guard lock(mutex_);
    hanging_.clear();
    changed_.notify_all();
  }
  int in_close() {
    const std::lock_guard lock(mutex_);
    return in_close_;
  }
  int closed() {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  void Close(int fd) {
    std::unique_lock lock(mutex_);
    ++in_close_;
    changed_.wait(lock, [&] { return hanging_.count(fd) == 0; });
    --in_close_;
    ++closed_;
    ::close(fd);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<int> hanging_;
  int in_close_ = 0;
  int closed_ = 0;
};

std::vector<UniqueFd> Several(int count) {
  std::vector<UniqueFd> fds;
  for (int i = 0; i < count; ++i) fds.push_back(Some());
  return fds;
}

TEST(Closer, ClosesWhatItIsGiven) {
  Closer closer;
  std::vector<UniqueFd> fds = Several(20);
  const int first = fds.front().get();
  const int last = fds.back().get();

  closer.Close(kGood, std::move(fds));

  EXPECT_TRUE(WaitUntil([&] { return ::fcntl(first, F_GETFD) < 0 && ::fcntl(last, F_GETFD) < 0; }));
}

TEST(Closer, WhatOneUserHangsInKeepsTwoThreadsAndNobodyElsesOpen) {
  Gate gate;
  Closer closer(Closer::kWaitingMax, gate.AsClose());

  closer.Close(kHung, gate.Hanging(50));
  ASSERT_TRUE(WaitUntil([&] { return gate.in_close() == Closer::kThreadsPerOwnerMax; }));
  closer.Close(kGood, Several(100));

  EXPECT_TRUE(WaitUntil([&] { return gate.closed() == 100; }));
  EXPECT_EQ(gate.in_close(), Closer::kThreadsPerOwnerMax);
  gate.LetGo();
  EXPECT_TRUE(WaitUntil([&] { return gate.closed() == 150; }));
}

TEST(Closer, ManyUsersWhoHangKeepNoMoreThreadsThanThereMayBe) {
  Gate gate;
  Closer closer(Closer::kWaitingMax, gate.AsClose());

  for (std::uint32_t user = 0; user < 100; ++user) closer.Close(user, gate.Hanging(3));

  EXPECT_TRUE(WaitUntil([&] { return gate.in_close() == Closer::kThreadsMax; }));
  gate.LetGo();
  EXPECT_TRUE(WaitUntil([&] { return gate.closed() == 300; }));
}

TEST(Closer, IsStuckForAUserOfWhomTooManyHaveWaitedTooLongAndForNobodyElse) {
  Gate gate;
  Closer closer(/*waiting_max=*/100, gate.AsClose());
  closer.Close(kHung, gate.Hanging(50));
  EXPECT_EQ(closer.PressureOf(kHung), Closer::Pressure::kNone);
  closer.Close(kHung, gate.Hanging(100));
  EXPECT_EQ(closer.PressureOf(kHung), Closer::Pressure::kHigh);

  EXPECT_TRUE(WaitUntil([&] { return closer.PressureOf(kHung) == Closer::Pressure::kStuck; }));

  EXPECT_EQ(closer.PressureOf(kGood), Closer::Pressure::kNone);
  gate.LetGo();
  EXPECT_TRUE(WaitUntil([&] { return gate.closed() == 150; }));
  EXPECT_EQ(closer.PressureOf(kHung), Closer::Pressure::kNone);
}

TEST(Closer, EndsInTimeThoughItHangs) {
  Gate gate;
  const std::int64_t start_ns = MonotonicNs();
  {
    Closer closer(Closer::kWaitingMax, gate.AsClose());
    closer.Close(kHung, gate.Hanging(3));
    ASSERT_TRUE(WaitUntil([&] { return gate.in_close() == Closer::kThreadsPerOwnerMax; }));
  }

  EXPECT_LT(MonotonicNs() - start_ns, (Closer::kPatienceMs + 2000) * 1'000'000);
  gate.LetGo();
  EXPECT_TRUE(WaitUntil([&] { return gate.closed() == Closer::kThreadsPerOwnerMax; }));
}

TEST(Closer, ClosesWhatStillWaitsWhenItEnds) {
  Gate gate;
  {
    Closer closer(Closer::kWaitingMax, gate.AsClose());
    closer.Close(kGood, Several(200));
  }
  EXPECT_EQ(gate.closed(), 200);
}

TEST(ForeignFds, GoToTheCloserWhenTheyAreDroppedAndNotBefore) {
  Gate gate;
  Closer closer(Closer::kWaitingMax, gate.AsClose());
  ForeignFds all;
  all.Append(ForeignFds(closer, kGood, Several(2)));
  all.Append(ForeignFds(closer, kGood, Several(3)));
  EXPECT_EQ(all.size(), 5u);

  {
    const ForeignFds some = all.TakeFirst(2);
    EXPECT_EQ(some.size(), 2u);
    EXPECT_GE(::fcntl(some.get(0), F_GETFD), 0);
  }

  EXPECT_TRUE(WaitUntil([&] { return gate.closed() == 2; }));
  EXPECT_EQ(all.size(), 3u);
  EXPECT_GE(::fcntl(all.get(2), F_GETFD), 0);
  all = ForeignFds();
  EXPECT_TRUE(WaitUntil([&] { return gate.closed() == 5; }));
}

}  // namespace
}  // namespace sticky::daemon
