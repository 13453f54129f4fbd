#include "flatbuffers/wire_manifest.h"

#include <algorithm>
#include <cstring>

#include <unistd.h>

#include "base/text.h"
#include "flatbuffers/wire_align.h"
#include "flatbuffers/wire_codec.h"
#include "flatbuffers/wire_manifest_generated.h"

namespace sticky::wire {
namespace {

using Builder = ::flatbuffers::FlatBufferBuilder;
template <typename T>
using Offset = ::flatbuffers::Offset<T>;
using Text = ::flatbuffers::String;

std::string_view View(const Text* text) {
  return text == nullptr ? std::string_view() : std::string_view(text->c_str(), text->size());
}

Error Corrupt(const std::string& what) { return Error{Code::kCorrupt, "read manifest: " + what}; }

// "tensor 'a.b' needs ...": built only when something is wrong.
Error CorruptEntry(const char* kind, const Text* name, const char* reason) {
  return Corrupt(std::string(kind) + " '" + Escape(View(name)) + "' " + reason);
}

Status CheckDigest(const ::flatbuffers::Vector<std::uint8_t>* bytes, const char* field) {
  if (bytes == nullptr || bytes->size() == Digest{}.bytes.size()) return Ok{};
  return Corrupt(std::string(field) + " is not 16 bytes");
}

std::optional<Digest> ReadDigest(const ::flatbuffers::Vector<std::uint8_t>* bytes) {
  if (bytes == nullptr) return std::nullopt;
  Digest digest;
  std::memcpy(digest.bytes.data(), bytes->data(), digest.bytes.size());
  return digest;
}

// Whether the product of `shape` times `element_bytes` is exactly `size_bytes`, and stays below
// 2^63 even when an extent of 0 hides the others: whoever computes strides must not overflow.
bool ShapeMatches(const ::flatbuffers::Vector<std::int64_t>* shape, std::size_t element_bytes,
                  std::uint64_t size_bytes) {
  std::int64_t product = static_cast<std::int64_t>(element_bytes);
  bool empty = false;
  const std::uint32_t rank = shape == nullptr ? 0 : shape->size();
  for (std::uint32_t i = 0; i < rank; ++i) {
    const std::int64_t extent = shape->Get(i);
    if (extent < 0) return false;
    empty = empty || extent == 0;
    if (extent != 0 && __builtin_mul_overflow(product, extent, &product)) return false;
  }
  return size_bytes == (empty ? 0 : static_cast<std::uint64_t>(product));
}

// What tensors and assets have in common: a name, and a place in an arena.
template <typename Table>
Status CheckPlace(const fb::Manifest& manifest, const char* kind, const Table& entry) {
  const std::string_view name = View(entry.name());
  if (name.empty() || name.size() > kTensorNameBytesMax) {
    return Corrupt(std::string(kind) + " with an empty or overlong name");
  }
  if (name.find('\0') != std::string_view::npos) {
    return CorruptEntry(kind, entry.name(), "has a NUL in its name");
  }
  if (entry.arena() >= manifest.arena_bytes()->size()) {
    return CorruptEntry(kind, entry.name(), "is in an arena that is not there");
  }
  const std::uint64_t arena_bytes = manifest.arena_bytes()->Get(entry.arena());
  if (entry.offset() > arena_bytes || entry.size_bytes() > arena_bytes - entry.offset()) {
    return CorruptEntry(kind, entry.name(), "reaches past the end of its arena");
  }
  if (entry.offset() % kTensorAlignment != 0) {
    return CorruptEntry(kind, entry.name(), "is not aligned to 256 bytes");
  }
  return Ok{};
}

Status CheckTensor(const fb::Tensor& tensor) {
  const auto dtype = static_cast<Dtype>(tensor.dtype());
  if (!IsKnown(dtype)) return CorruptEntry("tensor", tensor.name(), "has an unknown dtype");
  if (tensor.shape() != nullptr && tensor.shape()->size() > static_cast<unsigned>(kRankMax)) {
    return CorruptEntry("tensor", tensor.name(), "has more than 8 dimensions");
  }
  if (tensor.shape() != nullptr && !IsAligned(*tensor.shape())) {
    return CorruptEntry("tensor", tensor.name(), "has a shape that is not aligned");
  }
  if (!ShapeMatches(tensor.shape(), SizeBytes(dtype), tensor.size_bytes())) {
    return CorruptEntry("tensor", tensor.name(), "has a shape that does not give its size");
  }
  return Ok{};
}

Status CheckTensor(const fb::Asset&) { return Ok{}; }

template <typename Table>
Status CheckEntries(const fb::Manifest& manifest, const char* kind,
                    const ::flatbuffers::Vector<Offset<Table>>* entries, std::uint32_t count_max) {
  if (entries == nullptr) return Ok{};
  if (entries->size() > count_max) {
    return Corrupt(
        Format("%u %ss are more than the maximum of %u", entries->size(), kind, count_max));
  }
  std::string_view last;
  for (std::uint32_t i = 0; i < entries->size(); ++i) {
    const Table& entry = *entries->Get(i);
    STICKY_TRY(CheckPlace(manifest, kind, entry));
    STICKY_TRY(CheckTensor(entry));
    const std::string_view name = View(entry.name());
    if (!(last < name)) {
      return CorruptEntry(kind, entry.name(), name == last ? "is there twice" : "is out of order");
    }
    last = name;
  }
  return Ok{};
}

Status CheckArenas(const fb::Manifest& manifest) {
  const auto* arenas = manifest.arena_bytes();
  if (arenas == nullptr || arenas->size() == 0 || arenas->size() > kArenaCountMax) {
    return Corrupt(Format("want 1 to %u arenas", kArenaCountMax));
  }
  if (!IsAligned(*arenas)) return Corrupt("its arena sizes are not aligned");
  for (std::uint32_t i = 0; i < arenas->size(); ++i) {
    if (arenas->Get(i) == 0 || arenas->Get(i) > kArenaBytesMax) {
      return Corrupt(Format("arena %u has no bytes, or more than the maximum", i));
    }
  }
  return Ok{};
}

// Whoever opens a file's descriptor must find that file in it and nothing else.
Status CheckWholeFiles(const fb::Manifest& manifest) {
  if (!manifest.whole_files()) return Ok{};
  const auto* tensors = manifest.tensors();
  const auto* assets = manifest.assets();
  if (tensors != nullptr && tensors->size() > 0)
    return Corrupt("a state of whole files has tensors");
  bool taken[kArenaCountMax] = {};
  std::uint32_t taken_count = 0;
  for (std::uint32_t i = 0; assets != nullptr && i < assets->size(); ++i) {
    const fb::Asset& asset = *assets->Get(i);
    if (asset.size_bytes() == 0) continue;
    const bool fills = asset.size_bytes() == manifest.arena_bytes()->Get(asset.arena());
    if (!fills || taken[asset.arena()]) {
      return CorruptEntry("file", asset.name(), "does not fill an arena of its own");
    }
    taken[asset.arena()] = true;
    ++taken_count;
  }
  // Where every file is empty there is still one arena: no state is without.
  if (std::max(taken_count, 1u) == manifest.arena_bytes()->size()) return Ok{};
  return Corrupt("an arena that no file fills");
}

Status CheckNotes(const fb::Manifest& manifest) {
  const auto* notes = manifest.notes();
  if (notes == nullptr) return Ok{};
  if (notes->size() > kNoteCountMax) return Corrupt("more notes than the maximum");
  for (std::uint32_t i = 0; i < notes->size(); ++i) {
    if (notes->Get(i)->size() > kTextBytesMax) return Corrupt("a note is too long");
  }
  return Ok{};
}

Status CheckSources(const fb::Manifest& manifest) {
  const auto* sources = manifest.sources();
  if (sources == nullptr) return Ok{};
  if (sources->size() > kFileCountMax) return Corrupt("more sources than the maximum");
  for (std::uint32_t i = 0; i < sources->size(); ++i) {
    const std::string_view name = View(sources->Get(i)->name());
    if (name.empty() || name.size() > kFileNameBytesMax) {
      return Corrupt("a source with an empty or overlong name");
    }
  }
  return Ok{};
}

// Only the part that no layout may change, so that a newer manifest is refused by its number and
// not as damaged.
class ManifestHeader : private ::flatbuffers::Table {
 public:
  bool Verify(::flatbuffers::Verifier& verifier) const {
    return VerifyTableStart(verifier) &&
           VerifyField<std::uint16_t>(verifier, fb::Manifest::VT_LAYOUT_VERSION, 2) &&
           verifier.EndTable();
  }
};

Result<const fb::Manifest*> CheckManifest(std::span<const std::uint8_t> bytes) {
  STICKY_CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) % 8 == 0);
  if (bytes.size() > kManifestBytesMax) return Corrupt("it is larger than the maximum");
  const char* identifier = fb::ManifestIdentifier();
  ::flatbuffers::Verifier header(bytes.data(), bytes.size());
  if (!header.VerifySizePrefixedBuffer<ManifestHeader>(identifier)) {
    return Corrupt(Format("%zu bytes are not a manifest", bytes.size()));
  }
  const fb::Manifest& manifest = *fb::GetSizePrefixedManifest(bytes.data());
  if (manifest.layout_version() != kManifestLayoutVersion) {
    return Corrupt(
        Format("its layout is version %u, this program knows version %u; install the "
               "same release on both sides",
               manifest.layout_version(), kManifestLayoutVersion));
  }
  ::flatbuffers::Verifier::Options options;
  options.max_tables = kTensorCountMax + kAssetCountMax + kFileCountMax + 1;
  ::flatbuffers::Verifier whole(bytes.data(), bytes.size(), options);
  if (!fb::VerifySizePrefixedManifestBuffer(whole)) return Corrupt("its tables do not verify");

  const std::string_view state = View(manifest.state());
  if (!CheckStateName(state).ok()) return Corrupt("it names no state");
  if (View(manifest.device()).size() > kTextBytesMax) return Corrupt("its device is too long");
  STICKY_TRY(CheckDigest(manifest.content_digest(), "content_digest"));
  STICKY_TRY(CheckDigest(manifest.template_digest(), "template_digest"));
  STICKY_TRY(CheckDigest(manifest.base_digest(), "base_digest"));
  for (const Text* text : {manifest.base(), manifest.builder(), manifest.cpu()}) {
    if (View(text).size() > kTextBytesMax) return Corrupt("base, builder or cpu is too long");
  }
  STICKY_TRY(CheckArenas(manifest));
  STICKY_TRY(CheckEntries(manifest, "tensor", manifest.tensors(), kTensorCountMax));
  STICKY_TRY(CheckEntries(manifest, "asset", manifest.assets(), kAssetCountMax));
  STICKY_TRY(CheckWholeFiles(manifest));
  STICKY_TRY(CheckNotes(manifest));
  STICKY_TRY(CheckSources(manifest));
  return &manifest;
}

TensorRef ToRef(const fb::Tensor& tensor) {
  const auto* shape = tensor.shape();
  std::span<const std::int64_t> extents;
  if (shape != nullptr) extents = std::span(shape->data(), shape->size());
  return {View(tensor.name()),
          static_cast<Dtype>(tensor.dtype()),
          extents,
          tensor.arena(),
          tensor.offset(),
          tensor.size_bytes()};
}

AssetRef ToRef(const fb::Asset& asset) {
  return {View(asset.name()), asset.arena(), asset.offset(), asset.size_bytes()};
}

template <typename Table>
const Table* Find(const ::flatbuffers::Vector<Offset<Table>>* entries, std::string_view name) {
  std::uint32_t low = 0;
  std::uint32_t high = entries == nullptr ? 0 : entries->size();
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    const Table* entry = entries->Get(middle);
    const int order = View(entry->name()).compare(name);
    if (order == 0) return entry;
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return nullptr;
}

Offset<fb::Tensor> Pack(Builder& builder, const ManifestTensor& tensor) {
  const auto name = builder.CreateString(tensor.name);
  const auto shape = builder.CreateVector(tensor.shape);
  return fb::CreateTensor(builder, name, static_cast<fb::Dtype>(tensor.dtype), shape, tensor.arena,
                          tensor.offset, tensor.size_bytes);
}

Offset<fb::Asset> Pack(Builder& builder, const ManifestAsset& asset) {
  const auto name = builder.CreateString(asset.name);
  return fb::CreateAsset(builder, name, asset.arena, asset.offset, asset.size_bytes);
}

Offset<fb::Source> Pack(Builder& builder, const ManifestSource& source) {
  const auto name = builder.CreateString(source.name);
  return fb::CreateSource(builder, name, source.size_bytes, source.modified_ns);
}

template <typename Table, typename Value>
Offset<::flatbuffers::Vector<Offset<Table>>> PackSorted(Builder& builder,
                                                        const std::vector<Value>& values) {
  std::vector<const Value*> sorted;
  sorted.reserve(values.size());
  for (const Value& value : values) sorted.push_back(&value);
  std::sort(sorted.begin(), sorted.end(),
            [](const Value* a, const Value* b) { return a->name < b->name; });
  std::vector<Offset<Table>> offsets;
  offsets.reserve(values.size());
  for (const Value* value : sorted) offsets.push_back(Pack(builder, *value));
  return builder.CreateVector(offsets);
}

Offset<::flatbuffers::Vector<std::uint8_t>> PackDigest(Builder& builder,
                                                       const std::optional<Digest>& digest) {
  if (!digest.has_value()) return 0;
  return builder.CreateVector(digest->bytes.data(), digest->bytes.size());
}

std::uint64_t WholePages(std::uint64_t size_bytes) {
  const auto page_bytes = static_cast<std::uint64_t>(::getpagesize());
  return (size_bytes + page_bytes - 1) / page_bytes * page_bytes;
}

const fb::Manifest& Root(const void* root) { return *static_cast<const fb::Manifest*>(root); }

}  // namespace

std::vector<std::uint8_t> EncodeManifest(const Manifest& manifest) {
  Builder builder(/*initial_size=*/std::size_t{64} * 1024);
  const auto state = builder.CreateString(manifest.state);
  const auto device = builder.CreateString(manifest.device);
  const auto arena_bytes = builder.CreateVector(manifest.arena_bytes);
  const auto tensors = PackSorted<fb::Tensor>(builder, manifest.tensors);
  const auto assets = PackSorted<fb::Asset>(builder, manifest.assets);
  const auto content_digest = PackDigest(builder, manifest.content_digest);
  const auto template_digest = PackDigest(builder, manifest.template_digest);
  const auto notes = builder.CreateVectorOfStrings(manifest.notes);
  std::vector<Offset<fb::Source>> packed_sources;
  for (const ManifestSource& source : manifest.sources) {
    packed_sources.push_back(Pack(builder, source));
  }
  const auto sources = builder.CreateVector(packed_sources);
  const auto base = builder.CreateString(manifest.base);
  const auto base_digest = PackDigest(builder, manifest.base_digest);
  const auto built_by = builder.CreateString(manifest.builder);
  const auto cpu = builder.CreateString(manifest.cpu);

  fb::ManifestBuilder table(builder);
  table.add_layout_version(kManifestLayoutVersion);
  table.add_state(state);
  table.add_device(device);
  table.add_arena_bytes(arena_bytes);
  table.add_tensors(tensors);
  table.add_assets(assets);
  table.add_content_digest(content_digest);
  table.add_template_digest(template_digest);
  table.add_epoch(manifest.epoch);
  table.add_daemon_nonce(manifest.daemon_nonce);
  table.add_notes(notes);
  table.add_sources(sources);
  table.add_base(base);
  table.add_base_digest(base_digest);
  table.add_builder(built_by);
  table.add_cpu(cpu);
  table.add_whole_files(manifest.whole_files);
  fb::FinishSizePrefixedManifestBuffer(builder, table.Finish());
  return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

std::uint64_t ArenaMemoryBytes(const Manifest& manifest) {
  std::uint64_t sum = 0;
  for (const std::uint64_t size_bytes : manifest.arena_bytes) {
    sum += manifest.whole_files ? WholePages(size_bytes) : size_bytes;
  }
  return sum;
}

Result<Manifest> DecodeManifest(std::span<const std::uint8_t> bytes) {
  STICKY_ASSIGN(const ManifestView view, ManifestView::Open(bytes));
  Manifest out;
  out.state = view.state();
  out.device = view.device();
  for (std::uint32_t i = 0; i < view.arena_count(); ++i) {
    out.arena_bytes.push_back(view.arena_bytes(i));
  }
  out.tensors.reserve(view.tensor_count());
  for (std::uint32_t i = 0; i < view.tensor_count(); ++i) {
    const TensorRef ref = view.tensor(i);
    out.tensors.push_back({std::string(ref.name),
                           ref.dtype,
                           {ref.shape.begin(), ref.shape.end()},
                           ref.arena,
                           ref.offset,
                           ref.size_bytes});
  }
  for (std::uint32_t i = 0; i < view.asset_count(); ++i) {
    const AssetRef ref = view.asset(i);
    out.assets.push_back({std::string(ref.name), ref.arena, ref.offset, ref.size_bytes});
  }
  out.content_digest = view.content_digest();
  out.template_digest = view.template_digest();
  out.epoch = view.epoch();
  out.daemon_nonce = view.daemon_nonce();
  for (std::uint32_t i = 0; i < view.note_count(); ++i) out.notes.emplace_back(view.note(i));
  for (std::uint32_t i = 0; i < view.source_count(); ++i) {
    const SourceRef ref = view.source(i);
    out.sources.push_back({std::string(ref.name), ref.size_bytes, ref.modified_ns});
  }
  out.base = view.base();
  out.base_digest = view.base_digest();
  out.builder = view.builder();
  out.cpu = view.cpu();
  out.whole_files = view.whole_files();
  return out;
}

Result<ManifestView> ManifestView::Open(std::span<const std::uint8_t> bytes) {
  STICKY_ASSIGN(const fb::Manifest* manifest, CheckManifest(bytes));
  return ManifestView(manifest);
}

std::string_view ManifestView::state() const { return View(Root(root_).state()); }
std::string_view ManifestView::device() const { return View(Root(root_).device()); }
std::optional<Digest> ManifestView::content_digest() const {
  return ReadDigest(Root(root_).content_digest());
}
std::optional<Digest> ManifestView::template_digest() const {
  return ReadDigest(Root(root_).template_digest());
}
std::uint64_t ManifestView::epoch() const { return Root(root_).epoch(); }
std::uint64_t ManifestView::daemon_nonce() const { return Root(root_).daemon_nonce(); }

std::uint32_t ManifestView::arena_count() const { return Root(root_).arena_bytes()->size(); }
std::uint64_t ManifestView::arena_bytes(std::uint32_t arena) const {
  STICKY_CHECK(arena < arena_count());
  return Root(root_).arena_bytes()->Get(arena);
}

bool ManifestView::whole_files() const { return Root(root_).whole_files(); }

std::uint32_t ManifestView::tensor_count() const {
  const auto* tensors = Root(root_).tensors();
  return tensors == nullptr ? 0 : tensors->size();
}
TensorRef ManifestView::tensor(std::uint32_t index) const {
  STICKY_CHECK(index < tensor_count());
  return ToRef(*Root(root_).tensors()->Get(index));
}
std::optional<TensorRef> ManifestView::FindTensor(std::string_view name) const {
  const fb::Tensor* tensor = Find(Root(root_).tensors(), name);
  if (tensor == nullptr) return std::nullopt;
  return ToRef(*tensor);
}

std::uint32_t ManifestView::asset_count() const {
  const auto* assets = Root(root_).assets();
  return assets == nullptr ? 0 : assets->size();
}
AssetRef ManifestView::asset(std::uint32_t index) const {
  STICKY_CHECK(index < asset_count());
  return ToRef(*Root(root_).assets()->Get(index));
}
std::optional<AssetRef> ManifestView::FindAsset(std::string_view name) const {
  const fb::Asset* asset = Find(Root(root_).assets(), name);
  if (asset == nullptr) return std::nullopt;
  return ToRef(*asset);
}

std::uint32_t ManifestView::note_count() const {
  const auto* notes = Root(root_).notes();
  return notes == nullptr ? 0 : notes->size();
}
std::string_view ManifestView::note(std::uint32_t index) const {
  STICKY_CHECK(index < note_count());
  return View(Root(root_).notes()->Get(index));
}

std::string_view ManifestView::base() const { return View(Root(root_).base()); }
std::optional<Digest> ManifestView::base_digest() const {
  return ReadDigest(Root(root_).base_digest());
}
std::string_view ManifestView::builder() const { return View(Root(root_).builder()); }
std::string_view ManifestView::cpu() const { return View(Root(root_).cpu()); }

std::uint32_t ManifestView::source_count() const {
  const auto* sources = Root(root_).sources();
  return sources == nullptr ? 0 : sources->size();
}
SourceRef ManifestView::source(std::uint32_t index) const {
  STICKY_CHECK(index < source_count());
  const fb::Source& source = *Root(root_).sources()->Get(index);
  return {View(source.name()), source.size_bytes(), source.modified_ns()};
}

}  // namespace sticky::wire
