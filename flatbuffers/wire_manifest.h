// The manifest of a state: written once by the daemon (a draft of it by the loader), read in place
// by every invocation.
//
// Thread: any thread.
// Source: flatbuffers/wire_manifest.fbs.

#ifndef STICKY_FLATBUFFERS_WIRE_MANIFEST_H_
#define STICKY_FLATBUFFERS_WIRE_MANIFEST_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/dtype.h"
#include "base/result.h"

namespace sticky::wire {

inline constexpr std::uint16_t kManifestLayoutVersion = 1;
inline constexpr std::uint64_t kTensorAlignment = 256;  // bytes, for tensors and assets
inline constexpr std::uint32_t kTensorCountMax = 1u << 20;
inline constexpr std::uint32_t kAssetCountMax = 256;
inline constexpr std::uint32_t kArenaCountMax = 64;
inline constexpr std::uint64_t kArenaBytesMax = 1ULL << 48;
inline constexpr std::uint64_t kManifestBytesMax = 1ULL << 30;
inline constexpr std::uint32_t kTensorNameBytesMax = 1024;  // also of an asset's name; no NUL byte
inline constexpr std::uint32_t kNoteCountMax = 256;
inline constexpr int kRankMax = 8;

struct ManifestTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;
  std::uint32_t arena = 0;
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
  bool operator==(const ManifestTensor&) const = default;
};
struct ManifestAsset {
  std::string name;
  std::uint32_t arena = 0;
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
  bool operator==(const ManifestAsset&) const = default;
};
// A file that the state was built from, as the loader saw it.
struct ManifestSource {
  std::string name;  // within the model
  std::uint64_t size_bytes = 0;
  std::int64_t modified_ns = 0;  // since the epoch
  bool operator==(const ManifestSource&) const = default;
};
// A manifest as a value, for the few places that make one. Tensors may alias one another (tied).
struct Manifest {
  std::string state;
  std::string device;
  std::vector<std::uint64_t> arena_bytes;
  std::vector<ManifestTensor> tensors;
  std::vector<ManifestAsset> assets;
  std::optional<Digest> content_digest;
  std::optional<Digest> template_digest;
  std::uint64_t epoch = 0;
  std::uint64_t daemon_nonce = 0;
  std::vector<std::string> notes;
  std::vector<ManifestSource> sources;
  std::string base = {};  // of a derived state; see wire_manifest.fbs
  std::optional<Digest> base_digest = {};
  std::string builder = {};
  std::string cpu = {};
  bool whole_files = false;  // a file state
  bool operator==(const Manifest&) const = default;
};

// What the arenas take of memory together. Files of their own sizes are counted in whole pages; a
// model's arena as it is planned. Requires sizes of at most kArenaBytesMax.
std::uint64_t ArenaMemoryBytes(const Manifest& manifest);

// A size-prefixed buffer. Sorts tensors and assets by name as it writes.
std::vector<std::uint8_t> EncodeManifest(const Manifest& manifest);

// `bytes`: aligned to 8. Checks untrusted bytes completely: layout version, counts, sorted unique
// names, known dtypes, shapes whose product equals size_bytes, alignment, and ranges inside arenas;
// of a file state, that each file fills an arena of its own.
// Errors: kCorrupt with the reason.
Result<Manifest> DecodeManifest(std::span<const std::uint8_t> bytes);

struct TensorRef {
  std::string_view name;
  Dtype dtype;
  std::span<const std::int64_t> shape;
  std::uint32_t arena;
  std::uint64_t offset;
  std::uint64_t size_bytes;
};
struct AssetRef {
  std::string_view name;
  std::uint32_t arena;
  std::uint64_t offset;
  std::uint64_t size_bytes;
};

struct SourceRef {
  std::string_view name;
  std::uint64_t size_bytes;
  std::int64_t modified_ns;
};

// Reads a manifest in place; does not own the bytes, which must outlive it.
class ManifestView {
 public:
  // Checks `bytes` as DecodeManifest does, without allocating; linear in the number of tensors.
  // Errors: kCorrupt with the reason.
  static Result<ManifestView> Open(std::span<const std::uint8_t> bytes);

  std::string_view state() const;
  std::string_view device() const;
  std::optional<Digest> content_digest() const;
  std::optional<Digest> template_digest() const;
  std::uint64_t epoch() const;
  std::uint64_t daemon_nonce() const;

  std::uint32_t arena_count() const;
  std::uint64_t arena_bytes(std::uint32_t arena) const;

  // A file state: each asset is a whole file, and its arena's descriptor is that file. An empty
  // file has no arena: the number of its arena means nothing.
  bool whole_files() const;

  std::uint32_t tensor_count() const;
  TensorRef tensor(std::uint32_t index) const;  // in order of name; index < tensor_count()
  std::optional<TensorRef> FindTensor(std::string_view name) const;  // binary search

  std::uint32_t asset_count() const;
  AssetRef asset(std::uint32_t index) const;
  std::optional<AssetRef> FindAsset(std::string_view name) const;

  // What the loader wants people to know. Untrusted text.
  std::uint32_t note_count() const;
  std::string_view note(std::uint32_t index) const;

  // Of a derived state, and of one that a builder made; empty otherwise. Untrusted text.
  std::string_view base() const;
  std::optional<Digest> base_digest() const;
  std::string_view builder() const;
  std::string_view cpu() const;
  std::uint32_t source_count() const;  // 0 when an older loader wrote it
  SourceRef source(std::uint32_t index) const;

 private:
  explicit ManifestView(const void* root) : root_(root) {}
  const void* root_;  // the generated table
};

}  // namespace sticky::wire

#endif  // STICKY_FLATBUFFERS_WIRE_MANIFEST_H_
