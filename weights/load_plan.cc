#include "weights/load_plan.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "weights/convert.h"
#include "weights/gguf_model.h"
#include "weights/json_text.h"
#include "weights/llama_tensors.h"
#include "weights/model_config.h"
#include "weights/safetensors_model.h"
#include "weights/small_file.h"
#include "weights/sniff.h"
#include "weights/stored_model.h"

namespace sticky::weights {
namespace {

constexpr std::size_t kCompareBytes = 1u << 20;

std::uint64_t AlignUp(std::uint64_t value) {
  return (value + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment;
}

Result<StoredModel> ReadModel(std::span<const SourceFile> files) {
  std::vector<std::uint32_t> weight_files;
  std::vector<std::uint32_t> gguf_files;
  for (std::uint32_t i = 0; i < files.size(); ++i) {
    if (IsSmallFileName(files[i].name)) continue;
    weight_files.push_back(i);
    // A file too short to tell is safetensors by name or not at all: its reader says what is wrong.
    STICKY_ASSIGN(const WeightFormat format, SniffFormat(files[i]));
    if (format == WeightFormat::kGguf) gguf_files.push_back(i);
  }
  if (weight_files.empty()) {
    return Error{Code::kInvalidArgument, "plan a load: none of the files has weights"};
  }
  if (gguf_files.empty()) return ReadSafetensorsModel(files, weight_files);
  if (weight_files.size() > 1) {
    return Error{Code::kInvalidArgument,
                 Format("plan a load: %zu weight files, '%s' among them; a GGUF model is one file",
                        weight_files.size(), Escape(files[gguf_files[0]].name).c_str())};
  }
  return ReadGgufModel(files, gguf_files[0]);
}

StoredTensor* FindTensor(StoredModel& model, std::string_view name) {
  const auto found = std::find_if(model.tensors.begin(), model.tensors.end(),
                                  [&](const StoredTensor& tensor) { return tensor.name == name; });
  return found == model.tensors.end() ? nullptr : &*found;
}

Result<bool> SameBytes(std::span<const SourceFile> files, const StoredTensor& a,
                       const StoredTensor& b) {
  if (a.encoding != b.encoding || a.dtype != b.dtype || a.stored_bytes != b.stored_bytes) {
    return false;
  }
  std::vector<std::uint8_t> left(kCompareBytes);
  std::vector<std::uint8_t> right(kCompareBytes);
  for (std::uint64_t done = 0; done < a.stored_bytes; done += kCompareBytes) {
    const auto some =
        static_cast<std::size_t>(std::min<std::uint64_t>(kCompareBytes, a.stored_bytes - done));
    const std::span some_left = std::span(left).first(some);
    const std::span some_right = std::span(right).first(some);
    STICKY_TRY(files[a.file].bytes->ReadAt(a.file_offset + done, some_left));
    STICKY_TRY(files[b.file].bytes->ReadAt(b.file_offset + done, some_right));
    if (!std::equal(some_left.begin(), some_left.end(), some_right.begin())) return false;
  }
  return true;
}

Status SetTied(StoredModel& model, bool tied) {
  STICKY_ASSIGN(nlohmann::json config, ParseJson(model.config_json, "config.json"));
  config["tie_word_embeddings"] = tied;
  model.config_json = config.dump(2);
  return Ok{};
}

// Makes the tensors and `tie_word_embeddings` agree. Returns whether the head is the embedding:
// lm_head.weight is then not among the tensors, and LayOut makes an alias of that name. When a
// tied model's file has a head of its own with other bytes, the file's head is what was trained.
Result<bool> ResolveHead(std::span<const SourceFile> files, const ModelConfig& config,
                         StoredModel& model) {
  const StoredTensor* head = FindTensor(model, kHeadName);
  const StoredTensor* embedding = FindTensor(model, kEmbeddingName);
  if (head == nullptr) {
    if (config.tied_output) return true;
    model.notes.push_back(
        "lm_head.weight is not in the files although tie_word_embeddings is not true: the "
        "embedding is used as the head");
    STICKY_TRY(SetTied(model, true));
    return true;
  }
  if (!config.tied_output) return false;
  STICKY_ASSIGN(const bool same, SameBytes(files, *head, *embedding));
  if (same) {
    std::erase_if(model.tensors,
                  [](const StoredTensor& tensor) { return tensor.name == kHeadName; });
    return true;
  }
  model.notes.push_back(
      "tie_word_embeddings is true, but lm_head.weight is in the files and differs from the "
      "embedding: the files' head is used");
  STICKY_TRY(SetTied(model, false));
  return false;
}

// The dtype of the tensor in the arena. Errors: kInvalidArgument for one that cannot be read.
Result<Dtype> ArenaDtype(const StoredTensor& tensor, bool language_model,
                         const PlanOptions& options) {
  const bool quantised = tensor.encoding != Encoding::kPlain;
  if (!quantised && !tensor.dtype) {
    return Error{Code::kInvalidArgument,
                 "plan tensor '" + Escape(tensor.name) + "': it has " + tensor.dtype_trouble};
  }
  const bool is_float = quantised || IsFloat(*tensor.dtype);
  if (!is_float) return *tensor.dtype;
  if (language_model && tensor.shape.size() < 2) return Dtype::kF32;
  switch (options.dtype) {
    case DtypeChoice::kBf16:
      return Dtype::kBf16;
    case DtypeChoice::kF16:
      return Dtype::kF16;
    case DtypeChoice::kF32:
      return Dtype::kF32;
    case DtypeChoice::kAuto:
      break;
  }
  if (language_model) return options.best_matrix_dtype;
  return quantised ? Dtype::kF32 : *tensor.dtype;
}

Status AppendTensor(const StoredTensor& stored, Dtype dtype, std::uint64_t& end, LoadPlan& plan) {
  PlannedTensor tensor;
  tensor.name = stored.name;
  tensor.dtype = dtype;
  tensor.shape = stored.shape;
  tensor.file = stored.file;
  tensor.file_offset = stored.file_offset;
  tensor.stored_bytes = stored.stored_bytes;
  tensor.encoding = stored.encoding;
  tensor.stored_dtype = stored.dtype.value_or(Dtype::kF32);
  tensor.interleaved_head_count = stored.interleaved_head_count;
  // Bytes that a file really has times at most 16: no overflow before 2^59 bytes of file.
  const std::uint64_t blocks =
      stored.stored_bytes / BlockBytes(stored.encoding, tensor.stored_dtype);
  tensor.size_bytes = blocks * BlockElements(stored.encoding) * SizeBytes(dtype);
  tensor.offset = AlignUp(end);
  end = tensor.offset + tensor.size_bytes;
  if (end < tensor.offset || end > (1ull << 60)) {
    return Error{Code::kInvalidArgument, "plan tensor '" + Escape(tensor.name) +
                                             "': the arena would be larger than any machine"};
  }
  plan.tensors.push_back(std::move(tensor));
  return Ok{};
}

void AppendAsset(const char* name, std::span<const std::uint8_t> bytes, std::uint64_t& end,
                 LoadPlan& plan) {
  if (bytes.empty()) return;
  PlannedAsset asset;
  asset.name = name;
  asset.offset = AlignUp(end);
  asset.bytes.assign(bytes.begin(), bytes.end());
  end = asset.offset + asset.bytes.size();
  plan.assets.push_back(std::move(asset));
}

std::span<const std::uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// Tensors lie in the order of the files, so that a load reads and writes forwards.
Result<LoadPlan> LayOut(const StoredModel& model, bool head_is_embedding,
                        const PlanOptions& options) {
  if (model.tensors.size() >= kTensorCountMax) {
    return Error{Code::kInvalidArgument, Format("plan a load: %zu tensors, limit %u",
                                                model.tensors.size(), kTensorCountMax)};
  }
  LoadPlan plan;
  plan.notes = model.notes;
  const bool language_model = !model.config_json.empty();
  std::uint64_t end = 0;
  for (const StoredTensor& stored : model.tensors) {
    STICKY_ASSIGN(const Dtype dtype, ArenaDtype(stored, language_model, options));
    STICKY_TRY(AppendTensor(stored, dtype, end, plan));
  }
  if (head_is_embedding) {
    const auto embedding =
        std::find_if(plan.tensors.begin(), plan.tensors.end(),
                     [](const PlannedTensor& tensor) { return tensor.name == kEmbeddingName; });
    PlannedTensor head = *embedding;
    head.name = kHeadName;
    head.alias_of = static_cast<std::uint32_t>(embedding - plan.tensors.begin());
    plan.tensors.push_back(std::move(head));
  }
  AppendAsset("config.json", Bytes(model.config_json), end, plan);
  AppendAsset("generation_config.json", Bytes(model.generation_config_json), end, plan);
  AppendAsset("chat_template", Bytes(model.chat_template), end, plan);
  AppendAsset("vocabulary", model.vocabulary, end, plan);
  // A file may have no tensor at all; an arena has at least one block.
  plan.arena_bytes = std::max(AlignUp(end), kPlanAlignment);
  return plan;
}

}  // namespace

Result<LoadPlan> PlanLoad(std::span<const SourceFile> files, const PlanOptions& options) {
  STICKY_ASSIGN(StoredModel model, ReadModel(files));
  if (model.config_json.empty()) return LayOut(model, /*head_is_embedding=*/false, options);
  STICKY_ASSIGN(const ModelConfig config,
                ParseModelConfig(model.config_json, model.generation_config_json));
  STICKY_TRY(CheckLlamaTensors(config, model));
  STICKY_ASSIGN(const bool head_is_embedding, ResolveHead(files, config, model));
  return LayOut(model, head_is_embedding, options);
}

}  // namespace sticky::weights
