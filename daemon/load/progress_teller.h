// ProgressTeller: one number for how far a load is, from the three things that it does: making
// pages present, filling them, and reading files for their SHA-256.
//
// Thread: any thread, many at once; it tells on the thread that called it.

#ifndef STICKY_DAEMON_LOAD_PROGRESS_TELLER_H_
#define STICKY_DAEMON_LOAD_PROGRESS_TELLER_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

namespace sticky::load {

class ProgressTeller {
 public:
  struct Options {
    std::uint64_t memory_bytes = 0;   // to be filled
    std::uint64_t checked_bytes = 0;  // to be read for their SHA-256 beside that
    std::int64_t interval_ns = 0;     // least time between two tellings
  };
  // bytes_done: of memory_bytes. While files are left to be read it is below what has been filled,
  // so that a load that only checks any more is seen to move.
  using Tell = std::function<void(std::uint64_t bytes_done, std::uint64_t bytes_present)>;

  ProgressTeller(const Options& options, Tell tell) : options_(options), tell_(std::move(tell)) {}

  void Present(std::uint64_t more_bytes);
  void Filled(std::uint64_t bytes);  // so many are filled by now, and so at least are there
  void Checked(std::uint64_t more_bytes);

 private:
  void TellSometimes();

  const Options options_;
  const Tell tell_;
  std::mutex mutex_;  // guards all below
  std::uint64_t present_ = 0;
  std::uint64_t filled_ = 0;
  std::uint64_t checked_ = 0;
  std::int64_t told_ns_ = 0;
};

}  // namespace sticky::load

#endif  // STICKY_DAEMON_LOAD_PROGRESS_TELLER_H_
