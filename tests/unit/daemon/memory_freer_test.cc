// Memory is told to be free when it is, and the loop goes on until then.

#include "daemon/io/memory_freer.h"

#include <atomic>

#include <gtest/gtest.h>
#include <unistd.h>

namespace sticky::daemon {
namespace {

device::HostArena Arena() {
  return device::HostArena::Create("memory", 1 << 20, /*want_huge=*/false).value();
}

TEST(MemoryFreer, TellsWhenAllIsFreeAndTheLoopGoesOnMeanwhile) {
  std::atomic<bool> may_close = false;
  std::atomic<int> closed = 0;
  Closer closer(Closer::kWaitingMax, [&](int fd) {
    may_close.wait(false);
    ::close(fd);
    ++closed;
  });
  Loop loop;
  MemoryFreer freer(loop, closer);
  std::vector<device::HostArena> arenas;
  for (int i = 0; i < 3; ++i) arenas.push_back(Arena());
  int closed_when_told = -1;
  freer.Free(std::move(arenas), [&] {
    closed_when_told = closed;
    loop.Stop();
  });
  Timer turn(loop, [&] {  // the loop goes on, and nobody was told too early
    EXPECT_EQ(closed_when_told, -1);
    may_close = true;
    may_close.notify_all();
  });
  turn.Start(/*after_ms=*/50, /*repeat_ms=*/0);
  loop.Run();
  EXPECT_EQ(closed_when_told, 3);
}

TEST(MemoryFreer, NothingIsFreeAtOnceAndNobodyIsToldAfterItsEnd) {
  Closer closer;
  Loop loop;
  bool is_told = false;
  {
    MemoryFreer freer(loop, closer);
    freer.Free({}, [&] { is_told = true; });
  }
  MemoryFreer freer(loop, closer);
  freer.Free({}, [&] { loop.Stop(); });
  loop.Run();
  EXPECT_FALSE(is_told);
}

}  // namespace
}  // namespace sticky::daemon
