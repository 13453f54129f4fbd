#include "daemon/load/whole_files.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/check.h"
#include "daemon/load/digest_arena.h"

namespace sticky::load {
namespace {

using weights::SourceFile;

std::array<std::uint8_t, 8> LowestFirst(std::uint64_t number) {
  std::array<std::uint8_t, 8> bytes{};
  for (std::uint8_t& byte : bytes) {
    byte = static_cast<std::uint8_t>(number);
    number >>= 8;
  }
  return bytes;
}

// The file as a model with one tensor: all its bytes, as they are.
weights::LoadPlan PlanOf(const SourceFile& file) {
  weights::PlannedTensor all;
  all.name = file.name;
  all.dtype = all.stored_dtype = Dtype::kU8;
  all.shape = {static_cast<std::int64_t>(file.size_bytes)};
  all.size_bytes = all.stored_bytes = file.size_bytes;
  weights::LoadPlan plan;
  plan.arena_bytes = file.size_bytes;
  plan.tensors.push_back(std::move(all));
  return plan;
}

bool IsEmpty(const SourceFile& file) { return file.size_bytes == 0; }

}  // namespace

std::vector<std::uint64_t> WholeFileArenas(std::span<const SourceFile> files) {
  std::vector<std::uint64_t> sizes;
  for (const SourceFile& file : files) {
    if (!IsEmpty(file)) sizes.push_back(file.size_bytes);
  }
  if (sizes.empty()) sizes.push_back(weights::kPlanAlignment);
  return sizes;
}

Result<FillResult> FillWholeFiles(std::span<const SourceFile> files,
                                  std::span<const std::span<std::uint8_t>> arenas,
                                  const FillOptions& options) {
  STICKY_CHECK(arenas.size() == WholeFileArenas(files).size());
  if (std::all_of(files.begin(), files.end(), IsEmpty)) {
    // The pages of an arena must be there all the same.
    if (options.make_present) STICKY_TRY(options.make_present(arenas[0]));
    std::ranges::fill(arenas[0], 0);
  }
  FillResult whole;
  std::vector<Digest> contents;
  std::size_t next_arena = 0;
  for (const SourceFile& file : files) {
    const std::span<std::uint8_t> arena =
        IsEmpty(file) ? std::span<std::uint8_t>() : arenas[next_arena++];
    FillOptions part = options;
    if (options.progress) {
      part.progress = [&options, before = whole.bytes_read](std::uint64_t bytes_done) {
        options.progress(before + bytes_done);
      };
    }
    STICKY_ASSIGN(const FillResult filled, FillArena(PlanOf(file), {&file, 1}, arena, part));
    contents.push_back(filled.content_digest);
    whole.bytes_read += filled.bytes_read;
  }
  for (const SourceFile& file : files) STICKY_TRY(file.bytes->CheckUnchanged());
  whole.content_digest = WholeFilesDigest(files, contents);
  return whole;
}

Digest WholeFilesDigest(std::span<const SourceFile> files, std::span<const Digest> contents) {
  STICKY_CHECK(files.size() == contents.size());
  BlockDigester digester;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string_view name = files[i].name;
    digester.Update(LowestFirst(name.size()));
    digester.Update({reinterpret_cast<const std::uint8_t*>(name.data()), name.size()});
    digester.Update(LowestFirst(files[i].size_bytes));
    digester.Update(contents[i].bytes);
  }
  return digester.Finish();
}

}  // namespace sticky::load
