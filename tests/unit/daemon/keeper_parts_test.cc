// The parts of sticky-keeper: what it understands, what it keeps, and when it starts a daemon
// again.

#include <span>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "daemon/keeper/fd_store.h"
#include "daemon/keeper/restarts.h"

namespace sticky::keeper {
namespace {

TEST(KeeperMessage, LinesInAnyOrderAndUnknownOnesPassedOver) {
  const Message message = Parse("X=1\nFDNAME=sti.s7\nFDSTORE=1\n\nSTATUS=READY=1");
  EXPECT_TRUE(message.store);
  EXPECT_FALSE(message.ready);
  EXPECT_FALSE(message.remove);
  EXPECT_EQ(message.name, "sti.s7");
  EXPECT_TRUE(Parse("READY=1\nSTATUS=x").ready);
  EXPECT_TRUE(Parse("BARRIER=1").barrier);
  EXPECT_FALSE(Parse("FDSTORE=10").store);
  EXPECT_FALSE(Parse("").store);
}

TEST(KeeperMessage, NamesThatWouldBreakTheListOfNamesAreBad) {
  for (const char* const name : {"", "a:b", "a b", "a\tb", "\x7f", "caf\xc3\xa9"}) {
    EXPECT_TRUE(Parse(std::string("FDNAME=") + name).has_bad_name) << name;
  }
  EXPECT_TRUE(Parse("FDNAME=" + std::string(kNameBytesMax + 1, 'x')).has_bad_name);
  EXPECT_FALSE(Parse("FDNAME=" + std::string(kNameBytesMax, 'x')).has_bad_name);
}

int OpenNull() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(FdStore, KeepsUntilTheNameIsRemovedAndClosesThen) {
  static FdStore store;
  const int a = OpenNull();
  const int b = OpenNull();
  const int c = OpenNull();
  const int both[] = {a, b};
  ASSERT_TRUE(store.Add("one", both));
  ASSERT_TRUE(store.Add("two", std::span(&c, 1)));
  store.Remove("none");
  store.Remove("on");
  EXPECT_EQ(store.size(), 3u);

  store.Remove("one");

  EXPECT_FALSE(IsOpen(a));
  EXPECT_FALSE(IsOpen(b));
  ASSERT_EQ(store.size(), 1u);
  EXPECT_STREQ(store.name(0), "two");
  EXPECT_EQ(store.fd(0), c);
  EXPECT_EQ(store.names_bytes(), 4u);
  store.RemoveAll();
  EXPECT_FALSE(IsOpen(c));
}

TEST(FdStore, WhatDoesNotFitIsClosedAndNothingElseIsTouched) {
  static FdStore store;
  const std::string long_name(kNameBytesMax, 'x');
  const std::size_t fits = kNamesBytesMax / (kNameBytesMax + 1);
  for (std::size_t i = 0; i < fits; ++i) {
    const int fd = ::dup(STDIN_FILENO);
    if (fd < 0) GTEST_SKIP() << "this process may open only " << i << " descriptors";
    ASSERT_TRUE(store.Add(long_name, std::span(&fd, 1)));
  }
  const int more = OpenNull();

  EXPECT_FALSE(store.Add(long_name, std::span(&more, 1)));

  EXPECT_FALSE(IsOpen(more));
  EXPECT_EQ(store.size(), fits);
}

End Killed(bool was_ready, std::int64_t lived_ms = 100) { return {true, 9, was_ready, lived_ms}; }
End Exited(int code, bool was_ready) { return {false, code, was_ready, 100}; }

TEST(Restarts, TheDelayGrowsToItsMaximumAndTheRowHasAnEnd) {
  Restarts restarts(5, 300);
  for (const std::int64_t delay_ms : {50, 100, 200, 300, 300, -1}) {
    EXPECT_EQ(restarts.DelayAfter(Killed(true)), delay_ms);
  }
}

TEST(Restarts, ADaemonThatLivedForAWhileEndsTheRow) {
  Restarts restarts(2, 10'000);
  EXPECT_EQ(restarts.DelayAfter(Killed(true)), 50);
  EXPECT_EQ(restarts.DelayAfter(Killed(true)), 100);
  EXPECT_EQ(restarts.DelayAfter(Killed(true, Restarts::kForgivenMs)), 50);
}

TEST(Restarts, WhatTheDaemonSaysByItsExitCodeIsDone) {
  Restarts restarts(5, 10'000);
  EXPECT_EQ(restarts.DelayAfter(Exited(kExitUsage, false)), -1) << "it can never serve";
  EXPECT_EQ(restarts.DelayAfter(Exited(kExitStartAgain, true)), 0);
  EXPECT_EQ(restarts.DelayAfter(Killed(true)), 50);
  EXPECT_EQ(restarts.DelayAfter(Exited(kExitUsage, false)), 100) << "it has served before";
  EXPECT_EQ(restarts.DelayAfter(Exited(kExitOk, true)), -1);
}

}  // namespace
}  // namespace sticky::keeper
