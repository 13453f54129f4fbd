// What holds of every plan of a load, whatever the files were.
//
// Thread: one thread.

#ifndef STICKY_TESTS_FUZZ_PLAN_CHECKS_H_
#define STICKY_TESTS_FUZZ_PLAN_CHECKS_H_

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/fuzzer.h"
#include "weights/load_plan.h"
#include "weights/model_config.h"
#include "weights/vocabulary.h"

namespace sticky::fuzz {

// The input itself as a file of a model.
class InputSource : public weights::ByteSource {
 public:
  InputSource(const std::uint8_t* bytes, std::size_t size) : bytes_(Copy(bytes, size)) {}

  Status ReadAt(std::uint64_t offset, std::span<std::uint8_t> out) const override {
    // Whoever knows a file's size never reads past it.
    FUZZ_CHECK(offset <= bytes_.size() && out.size() <= bytes_.size() - offset);
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return Ok{};
  }
  weights::SourceFile File(const char* name) const { return {name, bytes_.size(), this}; }

 private:
  std::vector<std::uint8_t> bytes_;
};

inline std::string_view TextOf(std::span<const std::uint8_t> bytes) {
  return Text(bytes.data(), bytes.size());
}

// A tensor's bytes are in its file, its place in the arena, and its rows convert.
inline void CheckTensor(std::span<const weights::SourceFile> files,
                        const weights::PlannedTensor& tensor, std::uint64_t arena_bytes) {
  FUZZ_CHECK(tensor.offset % weights::kPlanAlignment == 0);
  FUZZ_CHECK(tensor.offset <= arena_bytes && tensor.size_bytes <= arena_bytes - tensor.offset);
  FUZZ_CHECK(tensor.file < files.size());
  std::uint64_t elements = 1;
  for (const std::int64_t extent : tensor.shape) {
    FUZZ_CHECK(extent >= 0);
    elements *= static_cast<std::uint64_t>(extent);
  }
  FUZZ_CHECK(elements * SizeBytes(tensor.dtype) == tensor.size_bytes);
  FUZZ_CHECK(weights::RowCount(tensor) * weights::StoredRowBytes(tensor) == tensor.stored_bytes);
  std::vector<std::uint8_t> stored(tensor.stored_bytes);
  FUZZ_CHECK(files[tensor.file].bytes->ReadAt(tensor.file_offset, stored).ok());
  std::vector<std::uint8_t> out(tensor.size_bytes);
  const Status done =
      weights::ConvertRows(tensor, 0, weights::RowCount(tensor), stored, std::span(out));
  if (!done.ok()) CheckRefusal(done.error(), {Code::kInvalidArgument});  // a value is too large
}

// What an invocation will read in the arena, it can read.
inline void CheckAssets(const weights::LoadPlan& plan) {
  std::string_view config;
  std::string_view generation;
  for (const weights::PlannedAsset& asset : plan.assets) {
    FUZZ_CHECK(asset.offset % weights::kPlanAlignment == 0);
    FUZZ_CHECK(asset.bytes.size() <= plan.arena_bytes - asset.offset);
    if (asset.name == "config.json") config = TextOf(asset.bytes);
    if (asset.name == "generation_config.json") generation = TextOf(asset.bytes);
    if (asset.name == "vocabulary") FUZZ_CHECK(weights::Vocabulary::Open(asset.bytes).ok());
  }
  if (!config.empty()) FUZZ_CHECK(weights::ParseModelConfig(config, generation).ok());
}

// Places of tensors and assets do not overlap, but those of tied tensors, which are the same.
inline void CheckApart(const weights::LoadPlan& plan) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
  for (const weights::PlannedTensor& tensor : plan.tensors) {
    if (tensor.alias_of) {
      FUZZ_CHECK(*tensor.alias_of < plan.tensors.size());
      FUZZ_CHECK(plan.tensors[*tensor.alias_of].offset == tensor.offset);
      FUZZ_CHECK(plan.tensors[*tensor.alias_of].size_bytes == tensor.size_bytes);
    } else if (tensor.size_bytes > 0) {
      places.emplace_back(tensor.offset, tensor.offset + tensor.size_bytes);
    }
  }
  for (const weights::PlannedAsset& asset : plan.assets) {
    places.emplace_back(asset.offset, asset.offset + asset.bytes.size());
  }
  std::sort(places.begin(), places.end());
  for (std::size_t i = 1; i < places.size(); ++i) {
    FUZZ_CHECK(places[i - 1].second <= places[i].first);
  }
}

inline void CheckPlan(std::span<const weights::SourceFile> files,
                      const weights::PlanOptions& options) {
  const Result<weights::LoadPlan> plan = weights::PlanLoad(files, options);
  if (!plan.ok()) {
    return CheckRefusal(plan.error(), {Code::kCorrupt, Code::kInvalidArgument});
  }
  FUZZ_CHECK(plan.value().arena_bytes % weights::kPlanAlignment == 0);
  std::set<std::string_view> names;
  for (const weights::PlannedTensor& tensor : plan.value().tensors) {
    // A manifest has no room for other names, and would refuse two that are the same.
    FUZZ_CHECK(!tensor.name.empty() && tensor.name.size() <= weights::kTensorNameBytesMax);
    FUZZ_CHECK(tensor.name.find('\0') == std::string::npos);
    FUZZ_CHECK(tensor.shape.size() <= weights::kRankMax);
    FUZZ_CHECK(names.insert(tensor.name).second);
    CheckTensor(files, tensor, plan.value().arena_bytes);
  }
  CheckApart(plan.value());
  CheckAssets(plan.value());
}

}  // namespace sticky::fuzz

#endif  // STICKY_TESTS_FUZZ_PLAN_CHECKS_H_
