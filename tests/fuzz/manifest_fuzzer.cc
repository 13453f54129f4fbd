// Manifests of a loader, a builder or a keeper: whatever the view gives of one that it opened lies
// where it says, and the manifest as a value is the same as the view.

#include <algorithm>
#include <string>

#include "flatbuffers/wire_manifest.h"
#include "tests/fuzz/fuzzer.h"

using namespace sticky;  // NOLINT(google-build-using-namespace): a program of one function

namespace {

template <typename Ref>
void CheckPlace(const wire::ManifestView& view, const Ref& ref) {
  FUZZ_CHECK(!ref.name.empty() && ref.name.size() <= wire::kTensorNameBytesMax);
  FUZZ_CHECK(ref.name.find('\0') == std::string_view::npos);
  FUZZ_CHECK(ref.offset % wire::kTensorAlignment == 0);
  FUZZ_CHECK(ref.arena < view.arena_count());
  FUZZ_CHECK(ref.offset + ref.size_bytes >= ref.offset);
  FUZZ_CHECK(ref.offset + ref.size_bytes <= view.arena_bytes(ref.arena));
}

void CheckTensors(const wire::ManifestView& view) {
  for (std::uint32_t i = 0; i < view.tensor_count(); ++i) {
    const wire::TensorRef tensor = view.tensor(i);
    CheckPlace(view, tensor);
    std::uint64_t elements = 1;
    FUZZ_CHECK(tensor.shape.size() <= static_cast<std::size_t>(wire::kRankMax));
    for (const std::int64_t extent : tensor.shape) {
      FUZZ_CHECK(extent >= 0);
      elements *= static_cast<std::uint64_t>(extent);
    }
    FUZZ_CHECK(elements * SizeBytes(tensor.dtype) == tensor.size_bytes);
    const auto found = view.FindTensor(tensor.name);
    FUZZ_CHECK(found.has_value() && found->name.data() == tensor.name.data());
    FUZZ_CHECK(!view.FindTensor(std::string(tensor.name) + '\0').has_value());
  }
  FUZZ_CHECK(!view.FindTensor("").has_value());
}

void CheckAssets(const wire::ManifestView& view) {
  std::uint64_t file_bytes = 0;
  for (std::uint32_t i = 0; i < view.asset_count(); ++i) {
    const wire::AssetRef asset = view.asset(i);
    CheckPlace(view, asset);
    const auto found = view.FindAsset(asset.name);
    FUZZ_CHECK(found.has_value() && found->name.data() == asset.name.data());
    file_bytes += asset.size_bytes;
  }
  FUZZ_CHECK(!view.FindAsset("").has_value());
  if (!view.whole_files()) return;
  FUZZ_CHECK(view.tensor_count() == 0);
  std::uint64_t arena_bytes = 0;
  for (std::uint32_t i = 0; i < view.arena_count(); ++i) arena_bytes += view.arena_bytes(i);
  FUZZ_CHECK(file_bytes == arena_bytes || file_bytes == 0);
}

// Every byte of every text. Texts may be shared: together they may be longer than the input.
void ReadTexts(const wire::ManifestView& view) {
  std::string all;
  for (const auto text : {view.state(), view.device(), view.base(), view.builder(), view.cpu()}) {
    all += text;
  }
  for (std::uint32_t i = 0; i < view.note_count(); ++i) all += view.note(i);
  for (std::uint32_t i = 0; i < view.source_count(); ++i) all += view.source(i).name;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::vector<std::uint8_t> copy = fuzz::Copy(bytes, size);
  const Result<wire::ManifestView> view = wire::ManifestView::Open(copy);
  const Result<wire::Manifest> manifest = wire::DecodeManifest(copy);
  FUZZ_CHECK(view.ok() == manifest.ok());
  if (!view.ok()) {
    fuzz::CheckRefusal(view.error(), {Code::kCorrupt});
    return 0;
  }
  CheckTensors(view.value());
  CheckAssets(view.value());
  ReadTexts(view.value());
  static_cast<void>(wire::ArenaMemoryBytes(manifest.value()));

  const Result<wire::Manifest> again = wire::DecodeManifest(wire::EncodeManifest(manifest.value()));

  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(again.value() == manifest.value());
  return 0;
}
