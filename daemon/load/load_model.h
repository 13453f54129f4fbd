// Fills an arena from a model's files: the body of sticky-loader, and of `sticky-llm --model`,
// which loads the same bytes privately.
//
// Thread: FillArena uses worker threads of its own and returns when they have ended.

#ifndef STICKY_DAEMON_LOAD_LOAD_MODEL_H_
#define STICKY_DAEMON_LOAD_LOAD_MODEL_H_

#include <cstdint>
#include <functional>
#include <span>

#include "base/digest.h"
#include "base/result.h"
#include "daemon/load/present_pages.h"
#include "weights/byte_source.h"
#include "weights/load_plan.h"

namespace sticky::load {

struct FillOptions {
  int thread_count = 1;                  // 1 to 64; as many reads are in flight
  std::uint64_t piece_bytes = 1u << 20;  // stored bytes read at a time, per thread
  // Called with every part of the arena before it is written; may be empty.
  MakePresent make_present = {};
  int maker_count = 1;  // threads that do so, beside those that fill
  // Called with the arena bytes done so far, on any of the threads, one at a time; may be empty.
  std::function<void(std::uint64_t bytes_done)> progress = {};
};

struct FillResult {
  Digest content_digest;  // of the whole arena, see DigestArena; or see FillWholeFiles
  std::uint64_t bytes_read = 0;
};

// Writes every tensor, asset and padding byte of `plan` to `arena` (plan.arena_bytes long, zeroed
// or not), and digests it in the same pass. Proves that every byte was written exactly once, and
// that no file changed meanwhile.
// Errors: kCorrupt when a file ends early, changed or cannot be read; kInvalidArgument when a value
//   is too large for the dtype asked for; those of make_present; `arena` is then half-written.
Result<FillResult> FillArena(const weights::LoadPlan& plan,
                             std::span<const weights::SourceFile> files,
                             std::span<std::uint8_t> arena, const FillOptions& options);

// xxh3-128 over the xxh3-128 of each 8 MiB block of the arena, so that threads can share the work;
// the bytes as stored, padding included.
Digest DigestArena(std::span<const std::uint8_t> arena, int thread_count);

}  // namespace sticky::load

#endif  // STICKY_DAEMON_LOAD_LOAD_MODEL_H_
