// Build: one build of a state by this process, and the connection that is the build.
//
// Thread: one thread at a time.

#ifndef STICKY_SHIM_BUILD_H_
#define STICKY_SHIM_BUILD_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "flatbuffers/wire_blob.h"
#include "flatbuffers/wire_codec.h"
#include "flatbuffers/wire_manifest.h"

namespace sticky::shim {

struct BuildOptions {
  wire::BuildRequest request;
  std::string cpu;
  std::uint32_t connect_ms = 0;
  std::optional<std::string> socket_path;  // absent: as wire::DefaultSocketPath
};

// Memory of an arena, mapped writable and shared until it is let go. Move-only.
class ArenaMemory {
 public:
  static Result<ArenaMemory> Map(int fd, std::uint64_t size_bytes);
  ArenaMemory(ArenaMemory&& other) noexcept : bytes_(other.bytes_) { other.bytes_ = {}; }
  ArenaMemory& operator=(ArenaMemory&&) = delete;
  ~ArenaMemory();
  void* data() const { return bytes_.data(); }
  // Puts private zeros of this process in its place, until this ends: whoever still has a pointer
  // into it then touches nothing of anybody else's.
  void LetGo();

 private:
  explicit ArenaMemory(std::span<std::uint8_t> bytes) : bytes_(bytes) {}
  std::span<std::uint8_t> bytes_;
};

class Build {
 public:
  // Asks the daemon, or takes over the build that `stickyctl build` began for this process
  // ($STICKYINVOC_BUILD: the number of its connection). Errors: as sti_build_begin.
  static Result<Build> Begin(const std::optional<BuildOptions>& options);

  bool is_there() const { return is_there_; }

  struct Arena {
    std::uint32_t index = 0;
    void* memory = nullptr;
  };
  // Waits for room for wait_ms, or for as long as `stickyctl build --wait` says if that is longer.
  Result<Arena> AddArena(std::uint64_t size_bytes, std::uint32_t wait_ms);
  // Errors: kInvalidArgument: it does not lie in its arena, or is malformed.
  Status AddTensor(wire::ManifestTensor tensor);
  Status AddAsset(wire::ManifestAsset asset);
  Status Commit();
  // Ends the build unless it was committed. Addresses of arenas stay valid, as after a commit.
  void GiveUp();

 private:
  Build(UniqueFd connection, std::uint32_t connect_ms)
      : connection_(std::move(connection)), connect_ms_(connect_ms) {}
  static Result<Build> Adopt();
  // Errors: kInvalidArgument: committed or given up, so that the daemon is no longer asked.
  Status CheckOpen() const;
  Status CheckPlace(const std::string& name, std::uint32_t arena, std::uint64_t offset,
                    std::uint64_t size_bytes) const;
  // The answer to one request, progress passed over. Errors: the daemon's own, too.
  Result<wire::Received> Ask(wire::Body request, std::span<const int> fds, std::int64_t wait_ms);

  UniqueFd connection_;
  std::uint32_t connect_ms_;
  std::uint32_t least_wait_ms_ = 0;  // for room, of every arena
  std::uint32_t next_request_ = 1;
  bool is_there_ = false;
  bool is_committed_ = false;
  bool is_given_up_ = false;
  wire::Manifest draft_;
  std::vector<ArenaMemory> memory_;
};

}  // namespace sticky::shim

#endif  // STICKY_SHIM_BUILD_H_
