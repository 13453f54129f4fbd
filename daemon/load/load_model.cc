#include "daemon/load/load_model.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>

#include "base/text.h"
#include "daemon/load/digest_arena.h"
#include "daemon/load/worker_threads.h"
#include "weights/convert.h"

namespace sticky::load {
namespace {

using weights::LoadPlan;
using weights::PlannedTensor;
using weights::SourceFile;

// A stretch of the arena that one tensor or asset fills; what is between them is zero.
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
  const PlannedTensor* tensor = nullptr;  // else an asset
  std::span<const std::uint8_t> asset;

  std::uint64_t end() const { return offset + size_bytes; }
};

Error BadPlan(const std::string& what) { return Error{Code::kInternal, "fill an arena: " + what}; }

Status CheckTensor(const PlannedTensor& tensor, const LoadPlan& plan,
                   std::span<const SourceFile> files) {
  const std::string name = "tensor '" + Escape(tensor.name) + "' ";
  if (tensor.alias_of) {
    if (*tensor.alias_of >= plan.tensors.size()) return BadPlan(name + "is an alias of none");
    const PlannedTensor& target = plan.tensors[*tensor.alias_of];
    if (target.alias_of || target.offset != tensor.offset ||
        target.size_bytes != tensor.size_bytes) {
      return BadPlan(name + "is an alias of another place");
    }
    return Ok{};
  }
  if (tensor.offset % weights::kPlanAlignment != 0) return BadPlan(name + "is not aligned");
  if (tensor.file >= files.size()) return BadPlan(name + "is in no file");
  const std::uint64_t file_bytes = files[tensor.file].size_bytes;
  if (tensor.file_offset > file_bytes || tensor.stored_bytes > file_bytes - tensor.file_offset) {
    return BadPlan(name + "lies beyond its file");
  }
  const std::uint64_t block_bytes = weights::BlockBytes(tensor.encoding, tensor.stored_dtype);
  const std::uint64_t elements =
      tensor.stored_bytes / block_bytes * weights::BlockElements(tensor.encoding);
  if (tensor.stored_bytes % block_bytes != 0 ||
      tensor.size_bytes != elements * SizeBytes(tensor.dtype)) {
    return BadPlan(name + "does not have the size that its elements take");
  }
  if (tensor.interleaved_head_count != 0) {
    const std::uint64_t rows = tensor.shape.size() < 2 ? elements : weights::RowCount(tensor);
    if (rows % (std::uint64_t{2} * tensor.interleaved_head_count) != 0) {
      return BadPlan(name + "does not divide into its heads");
    }
  }
  return Ok{};
}

// The stretches in order, after a check that they lie apart and inside the arena.
Result<std::vector<Extent>> MakeExtents(const LoadPlan& plan, std::span<const SourceFile> files) {
  std::vector<Extent> extents;
  for (const PlannedTensor& tensor : plan.tensors) {
    STICKY_TRY(CheckTensor(tensor, plan, files));
    if (tensor.alias_of || tensor.size_bytes == 0) continue;
    extents.push_back(
        {.offset = tensor.offset, .size_bytes = tensor.size_bytes, .tensor = &tensor, .asset = {}});
  }
  for (const weights::PlannedAsset& asset : plan.assets) {
    if (asset.bytes.empty()) continue;
    extents.push_back({.offset = asset.offset,
                       .size_bytes = asset.bytes.size(),
                       .tensor = nullptr,
                       .asset = asset.bytes});
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  std::uint64_t covered = 0;
  for (const Extent& extent : extents) {
    if (extent.offset < covered) return BadPlan("two of its parts overlap");
    if (extent.offset > plan.arena_bytes || extent.size_bytes > plan.arena_bytes - extent.offset) {
      return BadPlan("a part lies beyond its end");
    }
    covered = extent.end();
  }
  return extents;
}

// What the threads of one FillArena share.
struct Shared {
  Shared(std::span<std::uint8_t> arena_to_fill, const FillOptions& fill_options)
      : arena(arena_to_fill),
        options(fill_options),
        pages(arena, options.make_present, options.maker_count) {}

  std::span<const SourceFile> files;
  const std::span<std::uint8_t> arena;
  const FillOptions& options;
  PresentPages pages;
  std::vector<Extent> extents;
  std::vector<Digest> block_digests;
  std::atomic<std::uint64_t> next_block{0};
  std::atomic<std::uint64_t> bytes_done{0};
  std::atomic<std::uint64_t> bytes_read{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::optional<Error> error;  // the first; guarded by mutex
  std::mutex progress_mutex;   // held by whoever tells the progress
};

// Fills one digest block of the arena at a time, front to back: every function below writes the
// bytes from cursor_ on and moves it past them, so each byte is written once and in order.
class BlockFiller {
 public:
  explicit BlockFiller(Shared& shared) : shared_(shared) {}

  Status Fill(std::uint64_t block);

 private:
  void Advance(std::uint64_t size);
  std::span<std::uint8_t> Next(std::uint64_t size) { return shared_.arena.subspan(cursor_, size); }

  Status FillExtent(const Extent& extent, std::uint64_t end);
  void FillZeros(std::uint64_t end);
  Status FillTensor(const PlannedTensor& tensor, std::uint64_t end);
  Status FillConverted(const PlannedTensor& tensor, std::uint64_t end);
  Status FillInterleaved(const PlannedTensor& tensor, std::uint64_t end);
  Status Read(const PlannedTensor& tensor, std::uint64_t offset, std::span<std::uint8_t> out);
  Status CheckNotStopped() const;

  Shared& shared_;
  BlockDigester digester_;
  std::uint64_t cursor_ = 0;  // bytes into the arena
  std::vector<std::uint8_t> stored_;
  std::vector<std::uint8_t> unit_;
};

// The next `size` bytes were just written.
void BlockFiller::Advance(std::uint64_t size) {
  digester_.Update(shared_.arena.subspan(cursor_, size));
  cursor_ += size;
  shared_.bytes_done += size;
  if (!shared_.options.progress) return;
  const std::unique_lock lock(shared_.progress_mutex, std::try_to_lock);
  if (lock) shared_.options.progress(shared_.bytes_done);
}

Status BlockFiller::Fill(std::uint64_t block) {
  static_assert(PresentPages::kStretchBytes % kDigestBlockBytes == 0);  // a block is in one of them
  cursor_ = block * kDigestBlockBytes;
  STICKY_TRY(shared_.pages.WaitFor(cursor_));
  const std::uint64_t block_end =
      std::min<std::uint64_t>(cursor_ + kDigestBlockBytes, shared_.arena.size());
  auto extent =
      std::partition_point(shared_.extents.begin(), shared_.extents.end(),
                           [&](const Extent& candidate) { return candidate.end() <= cursor_; });
  for (; extent != shared_.extents.end() && extent->offset < block_end; ++extent) {
    if (cursor_ < extent->offset) FillZeros(extent->offset);
    const std::uint64_t end = std::min(extent->end(), block_end);
    STICKY_TRY(FillExtent(*extent, end));
    if (cursor_ != end) return BadPlan("a part was not filled to its end");
  }
  if (cursor_ < block_end) FillZeros(block_end);
  shared_.block_digests[block] = digester_.Finish();
  return Ok{};
}

Status BlockFiller::FillExtent(const Extent& extent, std::uint64_t end) {
  if (extent.tensor != nullptr) return FillTensor(*extent.tensor, end);
  const auto bytes = extent.asset.subspan(cursor_ - extent.offset, end - cursor_);
  std::memcpy(Next(bytes.size()).data(), bytes.data(), bytes.size());
  Advance(bytes.size());
  return Ok{};
}

void BlockFiller::FillZeros(std::uint64_t end) {
  const std::uint64_t size = end - cursor_;
  std::memset(Next(size).data(), 0, size);
  Advance(size);
}

Status BlockFiller::CheckNotStopped() const {
  if (!shared_.failed.load(std::memory_order_relaxed)) return Ok{};
  return Error{Code::kUnavailable, "fill an arena: another thread failed"};  // never reported
}

Status BlockFiller::Read(const PlannedTensor& tensor, std::uint64_t offset,
                         std::span<std::uint8_t> out) {
  STICKY_TRY(CheckNotStopped());
  STICKY_TRY(shared_.files[tensor.file].bytes->ReadAt(tensor.file_offset + offset, out));
  shared_.bytes_read.fetch_add(out.size(), std::memory_order_relaxed);
  return Ok{};
}

Status BlockFiller::FillTensor(const PlannedTensor& tensor, std::uint64_t end) {
  if (tensor.interleaved_head_count != 0) return FillInterleaved(tensor, end);
  if (!weights::IsIdentity({tensor.encoding, tensor.stored_dtype, tensor.dtype})) {
    return FillConverted(tensor, end);
  }
  while (cursor_ < end) {
    const std::uint64_t size = std::min(shared_.options.piece_bytes, end - cursor_);
    STICKY_TRY(Read(tensor, cursor_ - tensor.offset, Next(size)));
    Advance(size);
  }
  return Ok{};
}

// Tensors begin at multiples of 256 bytes and so do blocks: 256 bytes are whole quantised blocks
// of 32 in every dtype that they are converted to.
Status BlockFiller::FillConverted(const PlannedTensor& tensor, std::uint64_t end) {
  const std::uint64_t element = SizeBytes(tensor.dtype);
  const std::uint64_t block_elements = weights::BlockElements(tensor.encoding);
  const std::uint64_t block_stored = weights::BlockBytes(tensor.encoding, tensor.stored_dtype);
  const std::uint64_t block_bytes = block_elements * element;
  const std::uint64_t piece_blocks =
      std::max<std::uint64_t>(shared_.options.piece_bytes / block_stored, 1);
  while (cursor_ < end) {
    const std::uint64_t at = (cursor_ - tensor.offset) / block_bytes;
    const std::uint64_t blocks = std::min(piece_blocks, (end - cursor_) / block_bytes);
    if (blocks == 0) return BadPlan("a quantised block lies across a digest block");
    stored_.resize(std::max<std::size_t>(stored_.size(), blocks * block_stored));
    const auto stored = std::span(stored_).first(blocks * block_stored);
    STICKY_TRY(Read(tensor, at * block_stored, stored));
    const auto status = weights::ConvertElements(
        {tensor.encoding, tensor.stored_dtype, tensor.dtype}, stored, Next(blocks * block_bytes));
    if (!status.ok()) {
      return Error{status.error().code,
                   "convert tensor '" + Escape(tensor.name) + "': " + status.error().message};
    }
    Advance(blocks * block_bytes);
  }
  return Ok{};
}

// One head after the other (of a vector, all at once), each converted whole: its rows come from
// all over it. A head across the border of two blocks is converted for both.
Status BlockFiller::FillInterleaved(const PlannedTensor& tensor, std::uint64_t end) {
  PlannedTensor unit = tensor;
  unit.alias_of.reset();
  if (tensor.shape.size() >= 2) {
    const std::uint64_t heads = tensor.interleaved_head_count;
    unit.shape = {static_cast<std::int64_t>(weights::RowCount(tensor) / heads),
                  tensor.shape.back()};
    unit.size_bytes /= heads;
    unit.stored_bytes /= heads;
    unit.interleaved_head_count = 1;
  }
  stored_.resize(std::max<std::size_t>(stored_.size(), unit.stored_bytes));
  unit_.resize(std::max<std::size_t>(unit_.size(), unit.size_bytes));
  const auto stored = std::span(stored_).first(unit.stored_bytes);
  const auto converted = std::span(unit_).first(unit.size_bytes);
  while (cursor_ < end) {
    const std::uint64_t index = (cursor_ - tensor.offset) / unit.size_bytes;
    const std::uint64_t within = (cursor_ - tensor.offset) % unit.size_bytes;
    STICKY_TRY(Read(tensor, index * unit.stored_bytes, stored));
    STICKY_TRY(weights::ConvertRows(unit, 0, weights::RowCount(unit), stored, converted));
    const std::uint64_t size = std::min(unit.size_bytes - within, end - cursor_);
    std::memcpy(Next(size).data(), converted.data() + within, size);
    Advance(size);
  }
  return Ok{};
}

void Work(Shared& shared) {
  BlockFiller filler(shared);
  for (std::uint64_t block = shared.next_block++; block < shared.block_digests.size();
       block = shared.next_block++) {
    if (shared.failed.load(std::memory_order_relaxed)) return;
    const Status status = filler.Fill(block);
    if (status.ok()) continue;
    const std::scoped_lock lock(shared.mutex);
    if (!shared.error) shared.error = status.error();
    shared.failed = true;
    return;
  }
}

}  // namespace

Result<FillResult> FillArena(const LoadPlan& plan, std::span<const SourceFile> files,
                             std::span<std::uint8_t> arena, const FillOptions& options) {
  if (options.thread_count < 1 || options.thread_count > kThreadCountMax ||
      options.piece_bytes == 0) {
    return Error{Code::kInvalidArgument,
                 Format("fill an arena: %d threads (1 to %d) with pieces of %llu bytes (1 or more)",
                        options.thread_count, kThreadCountMax,
                        static_cast<unsigned long long>(options.piece_bytes))};
  }
  if (arena.size() != plan.arena_bytes) return BadPlan("it has not the size of the plan");
  Shared shared(arena, options);
  shared.files = files;
  STICKY_ASSIGN(shared.extents, MakeExtents(plan, files));
  shared.block_digests.resize(DigestBlockCount(arena.size()));
  for (const SourceFile& file : files) STICKY_TRY(file.bytes->CheckUnchanged());

  RunOnThreads(options.thread_count, [&](int) { Work(shared); });

  if (shared.error) return *shared.error;
  if (shared.bytes_done != arena.size()) return BadPlan("not every byte was written");
  for (const SourceFile& file : files) STICKY_TRY(file.bytes->CheckUnchanged());
  if (options.progress) options.progress(shared.bytes_done);
  return FillResult{.content_digest = CombineBlockDigests(shared.block_digests),
                    .bytes_read = shared.bytes_read};
}

}  // namespace sticky::load
