// Sha256Check: holds files against the SHA-256 that they are expected to have, beside a fill that
// reads the same bytes.
//
// Thread: one thread at a time; it reads on threads of its own.

#ifndef STICKY_DAEMON_LOAD_SHA256_CHECK_H_
#define STICKY_DAEMON_LOAD_SHA256_CHECK_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/digest.h"
#include "base/result.h"
#include "weights/byte_source.h"

namespace sticky::load {

struct ExpectedFile {
  weights::SourceFile file;
  Sha256 sha256;
};

class Sha256Check {
 public:
  // Begins. on_bytes: called on any of its threads when so many more bytes have been read.
  // thread_count: as RunOnThreads; more than there are files are of no use.
  Sha256Check(std::vector<ExpectedFile> files, int thread_count,
              std::function<void(std::uint64_t more_bytes)> on_bytes);
  // Stops, when Finish was not called. Blocking: until a piece of a file has been read.
  ~Sha256Check();
  Sha256Check(const Sha256Check&) = delete;
  Sha256Check& operator=(const Sha256Check&) = delete;

  // Waits until every file was read; call it once.
  // Errors: kCorrupt naming the file, what was expected and what was found; as weights::Sha256Of,
  //   and when a file has changed meanwhile.
  Status Finish();

 private:
  void Work();
  Status CheckOne(const ExpectedFile& expected);

  const std::vector<ExpectedFile> files_;
  const std::function<void(std::uint64_t)> on_bytes_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;
  std::optional<Error> error_;  // the first; guarded by mutex_
  std::thread thread_;          // last: it uses the others
};

}  // namespace sticky::load

#endif  // STICKY_DAEMON_LOAD_SHA256_CHECK_H_
