// MemoryFreer: gives arenas back to the kernel on the closer's threads. The last close(2) of a
// memfd frees its pages one by one: seconds for a large state in small pages, in which the loop
// would answer nobody.
//
// Thread: loop thread only.

#ifndef STICKY_DAEMON_IO_MEMORY_FREER_H_
#define STICKY_DAEMON_IO_MEMORY_FREER_H_

#include <functional>
#include <memory>
#include <vector>

#include "daemon/io/closer.h"
#include "daemon/io/loop.h"
#include "device/host_arena.h"

namespace sticky::daemon {

class MemoryFreer {
 public:
  // closer: not owned; must outlive this.
  MemoryFreer(Loop& loop, Closer& closer);

  // Closes the arenas, then calls `done` from the loop; not once this is gone. Whoever else has an
  // arena open or mapped keeps its memory, and is not waited for.
  void Free(std::vector<device::HostArena> arenas, std::function<void()> done);

 private:
  struct Freeing {
    std::weak_ptr<void> token;  // held by the closer until all are closed
    std::function<void()> done;
  };
  void Look();

  Closer& closer_;
  std::vector<Freeing> freeing_;
  Timer look_;  // runs while something is being freed
};

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_IO_MEMORY_FREER_H_
