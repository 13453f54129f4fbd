// An attached state: its manifest and arenas, checked against what the daemon said and mapped
// read-only, and the connection that is the lease. Constant once it is made.
//
// Thread: made and destroyed by one thread; any thread may read it in between.

#ifndef STICKY_SHIM_STATE_H_
#define STICKY_SHIM_STATE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "base/digest.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "flatbuffers/wire_blob.h"
#include "flatbuffers/wire_manifest.h"

namespace sticky::shim {

class State {
 public:
  // What came with a lease, from the daemon or from the process that made this one.
  struct Lease {
    UniqueFd connection;
    UniqueFd manifest;
    std::vector<UniqueFd> arenas;
    std::optional<std::uint64_t> epoch;      // as the daemon's reply has it, when there was one
    std::vector<std::uint64_t> arena_bytes;  // likewise
    std::uint64_t lease_id = 0;
    bool adopted = false;
  };

  // Checks everything and maps it. name: the state that was asked for. digest: the only content
  // that will do, or nothing.
  // Errors: kCorrupt when descriptors, manifest and reply do not agree, or the digest is another;
  //   kUnavailable for a device that this library does not know; kOutOfMemory.
  static Result<State> Open(std::string_view name, const std::optional<Digest>& digest,
                            Lease lease);

  const wire::ManifestView& manifest() const { return manifest_; }
  const std::uint8_t* arena(std::uint32_t index) const { return arenas_[index].bytes().data(); }
  pid_t pid() const { return pid_; }  // of the process that the lease belongs to
  std::uint64_t lease_id() const { return lease_id_; }
  bool connected() const;  // asks the kernel; one system call
  bool adopted() const { return adopted_; }
  std::uint64_t arena_bytes() const;  // of all arenas

 private:
  State(wire::SealedView manifest_bytes, const wire::ManifestView& manifest)
      : manifest_bytes_(std::move(manifest_bytes)), manifest_(manifest) {}

  wire::SealedView manifest_bytes_;
  wire::ManifestView manifest_;  // into manifest_bytes_
  std::vector<wire::SealedView> arenas_;
  UniqueFd connection_;
  pid_t pid_ = 0;
  std::uint64_t lease_id_ = 0;
  bool adopted_ = false;
};

}  // namespace sticky::shim

#endif  // STICKY_SHIM_STATE_H_
