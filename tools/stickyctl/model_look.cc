#include "tools/stickyctl/model_look.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "weights/model_config.h"
#include "weights/small_file.h"
#include "weights/sniff.h"

namespace sticky::stickyctl {
namespace {

const char* StoredName(const weights::PlannedTensor& tensor) {
  switch (tensor.encoding) {
    case weights::Encoding::kQ8_0:
      return "q8_0";
    case weights::Encoding::kQ4_0:
      return "q4_0";
    case weights::Encoding::kQ4_1:
      return "q4_1";
    case weights::Encoding::kPlain:
      break;
  }
  return Name(tensor.stored_dtype);
}

using Shares = std::map<std::string, DtypeShare>;

void Count(Shares& shares, const char* dtype, std::uint64_t size_bytes) {
  DtypeShare& share = shares[dtype];
  share.dtype = dtype;
  ++share.tensor_count;
  share.size_bytes += size_bytes;
}

std::vector<DtypeShare> LargestFirst(const Shares& shares) {
  std::vector<DtypeShare> out;
  for (const auto& [dtype, share] : shares) out.push_back(share);
  std::stable_sort(out.begin(), out.end(), [](const DtypeShare& a, const DtypeShare& b) {
    return a.size_bytes > b.size_bytes;
  });
  return out;
}

void CountTensors(const weights::LoadPlan& plan, ModelLook& look) {
  Shares stored;
  Shares arena;
  for (const weights::PlannedTensor& tensor : plan.tensors) {
    if (tensor.alias_of) continue;
    Count(stored, StoredName(tensor), tensor.stored_bytes);
    Count(arena, Name(tensor.dtype), tensor.size_bytes);
  }
  look.tensor_count = static_cast<std::uint32_t>(plan.tensors.size());
  look.stored = LargestFirst(stored);
  look.arena = LargestFirst(arena);
}

std::string_view AssetText(const weights::LoadPlan& plan, std::string_view name) {
  for (const weights::PlannedAsset& asset : plan.assets) {
    if (asset.name != name) continue;
    return {reinterpret_cast<const char*>(asset.bytes.data()), asset.bytes.size()};
  }
  return {};
}

Status AddArchitecture(const weights::LoadPlan& plan, ModelLook& look) {
  const std::string_view config_json = AssetText(plan, "config.json");
  if (config_json.empty()) return Ok{};
  STICKY_ASSIGN(const weights::ModelConfig config,
                weights::ParseModelConfig(config_json, AssetText(plan, "generation_config.json")));
  look.architecture = config.family;
  look.context_length = config.context_length;
  return Ok{};
}

Status AddFormat(std::span<const weights::SourceFile> files, ModelLook& look) {
  const auto weights_file = std::find_if(
      files.begin(), files.end(),
      [](const weights::SourceFile& file) { return !weights::IsSmallFileName(file.name); });
  if (weights_file == files.end()) return Ok{};
  STICKY_ASSIGN(const weights::WeightFormat format, weights::SniffFormat(*weights_file));
  look.format = format == weights::WeightFormat::kGguf ? "GGUF" : "safetensors";
  return Ok{};
}

}  // namespace

ReadableFiles::ReadableFiles(std::vector<weights::OpenFile> files) {
  for (weights::OpenFile& file : files) {
    sources_.push_back(std::make_unique<load::FdByteSource>(std::move(file.fd), file.name));
    files_.push_back({file.name, file.size_bytes, sources_.back().get()});
  }
}

Result<ModelLook> LookAtModel(std::span<const weights::SourceFile> files,
                              const weights::PlanOptions& options) {
  STICKY_ASSIGN(weights::LoadPlan plan, weights::PlanLoad(files, options));
  ModelLook look;
  STICKY_TRY(AddFormat(files, look));
  STICKY_TRY(AddArchitecture(plan, look));
  CountTensors(plan, look);
  look.arena_bytes = plan.arena_bytes;
  look.notes = std::move(plan.notes);
  return look;
}

}  // namespace sticky::stickyctl
