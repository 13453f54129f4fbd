// Runs one function on several threads, the caller's among them.
//
// Thread: any thread.

#ifndef STICKY_DAEMON_LOAD_WORKER_THREADS_H_
#define STICKY_DAEMON_LOAD_WORKER_THREADS_H_

#include <algorithm>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

namespace sticky::load {

inline constexpr int kThreadCountMax = 64;

// Calls work(0) on this thread and work(1), work(2), ... on others; returns when all have. Work is
// shared by taking from a common counter, so it is done even when fewer threads can be made than
// were asked for.
// Blocking: until the work is done.
template <typename Work>
void RunOnThreads(int thread_count, const Work& work) {
  std::vector<std::jthread> threads;
  try {
    for (int i = 1; i < std::min(thread_count, kThreadCountMax); ++i) {
      threads.emplace_back(std::cref(work), i);
    }
  } catch (const std::system_error&) {  // the limit of threads is reached
  }
  work(0);
}

}  // namespace sticky::load

#endif  // STICKY_DAEMON_LOAD_WORKER_THREADS_H_
