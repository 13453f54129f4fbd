// A small published state made of real sealed memory, for tests of whoever attaches to one.
//
// Thread: one thread at a time.

#ifndef STICKY_TESTS_TESTING_SAMPLE_STATE_H_
#define STICKY_TESTS_TESTING_SAMPLE_STATE_H_

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "device/host_arena.h"
#include "flatbuffers/wire_codec.h"
#include "flatbuffers/wire_manifest.h"

namespace sticky::testing {

// One arena with a tensor of every dtype, tied tensors, a scalar, an empty tensor and two assets.
class SampleState {
 public:
  explicit SampleState(const std::string& name = "sample") : SampleState(name, Tensors(), 4096) {}

  // `tensors` with offsets and sizes already set, in one arena of `arena_bytes`; every byte of it
  // is its own offset modulo 251.
  SampleState(const std::string& name, std::vector<wire::ManifestTensor> tensors,
              std::uint64_t arena_bytes)
      : arena_(device::HostArena::Create(name, arena_bytes, /*want_huge=*/false).value()) {
    manifest_.state = name;
    manifest_.device = "host";
    manifest_.arena_bytes = {arena_bytes};
    manifest_.tensors = std::move(tensors);
    manifest_.assets = {{"config.json", 0, 3840, 11}, {"vocabulary", 0, 3584, 256}};
    for (std::uint8_t i = 0; i < 16; ++i) {
      if (!manifest_.content_digest.has_value()) manifest_.content_digest.emplace();
      manifest_.content_digest->bytes[i] = i;
    }
    manifest_.template_digest = manifest_.content_digest;
    manifest_.epoch = 3;
    manifest_.daemon_nonce = 77;
    Fill();
  }

  const wire::Manifest& manifest() const { return manifest_; }
  const device::HostArena& arena() const { return arena_; }
  static std::uint8_t ByteAt(std::uint64_t offset) {
    return static_cast<std::uint8_t>(offset % 251);
  }

  UniqueFd LendArena() const { return arena_.Lend().value(); }
  UniqueFd ManifestFd() const { return ManifestFd(manifest_); }
  static UniqueFd ManifestFd(const wire::Manifest& manifest) {
    return device::SealedCopy("manifest", wire::EncodeManifest(manifest)).value();
  }
  wire::AttachReply Reply() const { return {42, manifest_.epoch, manifest_.arena_bytes}; }

 private:
  static std::vector<wire::ManifestTensor> Tensors() {
    std::vector<wire::ManifestTensor> tensors;
    for (int i = 0; i < kDtypeCount; ++i) {
      const auto dtype = static_cast<Dtype>(i);
      tensors.push_back({std::string("dtype.") + Name(dtype),
                         dtype,
                         {2, 3},
                         0,
                         static_cast<std::uint64_t>(i) * 256,
                         6 * SizeBytes(dtype)});
    }
    tensors.push_back({"a.scalar", Dtype::kF32, {}, 0, 256, 4});
    tensors.push_back({"an.empty", Dtype::kF32, {0, 5}, 0, 512, 0});
    tensors.push_back({"tied", Dtype::kF64, {6}, 0, 12 * 256, 48});
    return tensors;
  }

  void Fill() {
    auto mapping = device::Mapping::Writable(arena_.fd(), arena_.size_bytes()).value();
    const std::span<std::uint8_t> bytes = mapping.writable_bytes();
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = ByteAt(i);
    if (bytes.size() >= 4096) std::memcpy(bytes.data() + 3840, "{\"layers\":1}", 11);
    { const auto unmapped = std::move(mapping); }
    STICKY_CHECK(arena_.Prefault().ok());
    STICKY_CHECK(arena_.Seal().ok());
  }

  device::HostArena arena_;
  wire::Manifest manifest_;
};

}  // namespace sticky::testing

#endif  // STICKY_TESTS_TESTING_SAMPLE_STATE_H_
