// PresentPages: makes an arena's pages present beside the threads that write them, who wait for the
// part that they want and not for all.
//
// Thread: any thread, many at once.

#ifndef STICKY_DAEMON_LOAD_PRESENT_PAGES_H_
#define STICKY_DAEMON_LOAD_PRESENT_PAGES_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/result.h"

namespace sticky::load {

// Makes the pages of this part of an arena present. Called on several threads at once.
using MakePresent = std::function<Status(std::span<std::uint8_t> part)>;

class PresentPages {
 public:
  // One call for so much: each waits for every CPU of the node once (docs/performance.md).
  static constexpr std::uint64_t kStretchBytes = 64u << 20;

  // make: may be empty; then nothing is done. maker_count: threads that make pages at once; they
  // begin now. What they cannot be made for is left to those who wait.
  PresentPages(std::span<std::uint8_t> arena, MakePresent make, int maker_count);
  // Stops. Blocking: for the stretches that are being made.
  ~PresentPages();
  PresentPages(const PresentPages&) = delete;
  PresentPages& operator=(const PresentPages&) = delete;

  // Returns when the pages of the stretch of `offset` are there. Blocking: for that.
  // Errors: the first of any MakePresent, to all.
  Status WaitFor(std::uint64_t offset);

 private:
  void MakeAll();
  void MakeNext(std::unique_lock<std::mutex>& lock);

  const std::span<std::uint8_t> arena_;
  const MakePresent make_;
  const int maker_count_max_;  // those who wait included
  std::mutex mutex_;           // guards all below
  std::condition_variable changed_;
  std::vector<bool> is_there_;  // by stretch
  std::size_t next_ = 0;        // those before it are there, or being made
  int maker_count_ = 0;
  bool stopped_ = false;
  std::optional<Error> error_;
  std::vector<std::jthread> makers_;  // last: they use the others
};

}  // namespace sticky::load

#endif  // STICKY_DAEMON_LOAD_PRESENT_PAGES_H_
