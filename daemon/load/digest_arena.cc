#include "daemon/load/digest_arena.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#define XXH_INLINE_ALL  // the vector loop is worth inlining, and there is no library to link
#include <xxhash.h>

#include "base/check.h"
#include "daemon/load/load_model.h"
#include "daemon/load/worker_threads.h"

namespace sticky::load {
namespace {

Digest ToDigest(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  Digest digest;
  static_assert(sizeof canonical.digest == sizeof digest.bytes);
  std::memcpy(digest.bytes.data(), canonical.digest, sizeof canonical.digest);
  return digest;
}

}  // namespace

struct BlockDigester::State {
  XXH3_state_t xxh;  // over-aligned: new takes care of it
};

BlockDigester::BlockDigester() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->xxh);
}

BlockDigester::~BlockDigester() = default;

void BlockDigester::Update(std::span<const std::uint8_t> bytes) {
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

Digest BlockDigester::Finish() {
  const Digest digest = ToDigest(XXH3_128bits_digest(&state_->xxh));
  XXH3_128bits_reset(&state_->xxh);
  return digest;
}

Digest CombineBlockDigests(std::span<const Digest> blocks) {
  static_assert(sizeof(Digest) == 16);  // so that blocks lie end to end
  return ToDigest(XXH3_128bits(blocks.data(), blocks.size_bytes()));
}

Digest DigestArena(std::span<const std::uint8_t> arena, int thread_count) {
  std::vector<Digest> blocks(static_cast<std::size_t>(DigestBlockCount(arena.size())));
  std::atomic<std::size_t> next{0};
  RunOnThreads(thread_count, [&](int) {
    for (std::size_t i = next++; i < blocks.size(); i = next++) {
      const std::size_t begin = i * kDigestBlockBytes;
      const std::size_t size = std::min<std::size_t>(kDigestBlockBytes, arena.size() - begin);
      blocks[i] = ToDigest(XXH3_128bits(arena.data() + begin, size));
    }
  });
  return CombineBlockDigests(blocks);
}

}  // namespace sticky::load
