// The other side of the benches: a process that answers attach requests with a state of the
// caller's making, and a bare server that passes three descriptors, each as lean as can be.
//
// Thread: one thread at a time.

#ifndef STICKY_BENCH_PEER_H_
#define STICKY_BENCH_PEER_H_

#include <cstdint>
#include <string>

#include <sys/types.h>

#include "device/host_arena.h"
#include "flatbuffers/wire_manifest.h"

namespace sticky::bench {

// A state of one arena, shaped like a small language model: `tensor_count` tensors of equal size.
wire::Manifest ModelLikeManifest(std::uint32_t tensor_count, std::uint64_t arena_bytes);

// Both servers in one child process, which lives until this does.
class Peer {
 public:
  // arena: sealed; the child lends it out as the daemon does.
  Peer(const device::HostArena& arena, const wire::Manifest& manifest);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const std::string& attach_path() const { return attach_path_; }
  const std::string& bare_path() const { return bare_path_; }

 private:
  std::string folder_;
  std::string attach_path_;
  std::string bare_path_;
  pid_t pid_ = -1;
};

}  // namespace sticky::bench

#endif  // STICKY_BENCH_PEER_H_
