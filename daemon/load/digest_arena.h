// The content digest of an arena, block by block, so that threads can share the work and a block
// can be digested while it is written.
//
// Thread: one thread at a time per BlockDigester.
// Source: https://github.com/Cyan4973/xxHash, XXH3 with 128 bits, in canonical (big-endian) form.

#ifndef STICKY_DAEMON_LOAD_DIGEST_ARENA_H_
#define STICKY_DAEMON_LOAD_DIGEST_ARENA_H_

#include <cstdint>
#include <memory>
#include <span>

#include "base/digest.h"

namespace sticky::load {

inline constexpr std::uint64_t kDigestBlockBytes = 8u << 20;

class BlockDigester {
 public:
  BlockDigester();
  ~BlockDigester();
  BlockDigester(const BlockDigester&) = delete;
  BlockDigester& operator=(const BlockDigester&) = delete;

  void Update(std::span<const std::uint8_t> bytes);
  // The digest of everything since the last Finish; begins anew.
  Digest Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The digest of the whole arena from those of its blocks, in order.
Digest CombineBlockDigests(std::span<const Digest> blocks);

inline std::uint64_t DigestBlockCount(std::uint64_t arena_bytes) {
  return (arena_bytes + kDigestBlockBytes - 1) / kDigestBlockBytes;
}

}  // namespace sticky::load

#endif  // STICKY_DAEMON_LOAD_DIGEST_ARENA_H_
