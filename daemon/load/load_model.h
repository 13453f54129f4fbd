// Fills an arena from a model's files: the body of sticky-loader, and of `sticky-llm --model`,
// which loads the same bytes privately.
//
// Thread: FillArena uses worker threads of its own and returns when they have ended.

#ifndef STICKY_DAEMON_LOAD_LOAD_MODEL_H_
#define STICKY_DAEMON_LOAD_LOAD_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "weights/byte_source.h"
#include "weights/load_plan.h"

namespace sticky::load {

// Reads a regular file with pread, never through a mapping: a file that is cut short meanwhile is
// an error and not a SIGBUS. Owns the descriptor.
class FdByteSource : public weights::ByteSource {
 public:
  FdByteSource(UniqueFd fd, std::string name);  // notes the file's size and time of change
  Status ReadAt(std::uint64_t offset, std::span<std::uint8_t> out) const override;
  Status CheckUnchanged() const override;
  int fd() const { return fd_.get(); }
  std::int64_t modified_ns() const { return modified_ns_; }

 private:
  UniqueFd fd_;
  std::string name_;  // for messages
  std::int64_t size_bytes_ = 0;
  std::int64_t modified_ns_ = 0;  // since the epoch
};

struct FillOptions {
  int thread_count = 1;                    // 1 to 64
  std::uint64_t piece_bytes = 256u << 10;  // stored bytes read at a time, per thread: fits the L2
  // Called on the calling thread with the arena bytes done so far; may be empty.
  std::function<void(std::uint64_t bytes_done)> progress;
};

struct FillResult {
  Digest content_digest;  // of the whole arena, see DigestArena; or see FillWholeFiles
  std::uint64_t bytes_read = 0;
};

// Writes every tensor, asset and padding byte of `plan` to `arena` (plan.arena_bytes long, zeroed
// or not), and digests it in the same pass. Proves that every byte was written exactly once, and
// that no file changed meanwhile.
// Errors: kCorrupt when a file ends early, changed or cannot be read; kInvalidArgument when a value
//   is too large for the dtype asked for; `arena` is then half-written.
Result<FillResult> FillArena(const weights::LoadPlan& plan,
                             std::span<const weights::SourceFile> files,
                             std::span<std::uint8_t> arena, const FillOptions& options);

// xxh3-128 over the xxh3-128 of each 8 MiB block of the arena, so that threads can share the work;
// the bytes as stored, padding included.
Digest DigestArena(std::span<const std::uint8_t> arena, int thread_count);

}  // namespace sticky::load

#endif  // STICKY_DAEMON_LOAD_LOAD_MODEL_H_
