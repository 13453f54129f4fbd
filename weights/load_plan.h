// The plan of a load: what a model's files become in an arena, decided from headers alone, before
// one byte of the arena exists.
//
// Every format becomes one canonical state, so that whoever attaches sees no difference:
//   - tensors have Hugging Face names (model.layers.0.self_attn.q_proj.weight, ...), row-major
//     [out, in]; GGUF names are mapped and llama's rotary-interleaved q and k rows put back;
//   - of a language model, matrices have the dtype asked for and tensors of rank 0 or 1 (norms,
//     biases) are float32;
//     of any other file, floating-point tensors are converted only when a dtype is asked for;
//   - tied tensors are stored once (lm_head.weight is then an alias or absent, see load_plan.cc);
//   - assets: `config.json` in Hugging Face's spelling (made from GGUF metadata when need be),
//     `generation_config.json`, `chat_template` (text), and `vocabulary` (weights/vocabulary.h).
//
// Thread: any thread.

#ifndef STICKY_WEIGHTS_LOAD_PLAN_H_
#define STICKY_WEIGHTS_LOAD_PLAN_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "weights/byte_source.h"

namespace sticky::weights {

inline constexpr std::uint64_t kPlanAlignment = 256;  // bytes, for every tensor and asset
// What a manifest can hold (tests/layout checks that they agree).
inline constexpr std::uint32_t kTensorCountMax = 1u << 20;
inline constexpr std::size_t kTensorNameBytesMax = 1024;
inline constexpr std::size_t kRankMax = 8;

// How one tensor's stored bytes become the state's bytes.
enum class Encoding : std::int8_t {
  kPlain = 0,  // elements of `stored_dtype`
  kQ8_0,
  kQ4_0,
  kQ4_1,
};

struct PlannedTensor {
  std::string name;
  Dtype dtype = Dtype::kF32;        // in the arena
  std::vector<std::int64_t> shape;  // outermost first
  std::uint64_t offset = 0;         // bytes into the arena
  std::uint64_t size_bytes = 0;     // in the arena

  std::uint32_t file = 0;         // index into the files that were planned from
  std::uint64_t file_offset = 0;  // bytes from the start of that file
  std::uint64_t stored_bytes = 0;
  Encoding encoding = Encoding::kPlain;
  Dtype stored_dtype = Dtype::kF32;  // when kPlain
  // 0: rows as stored. Else the number of heads of a rotary-interleaved q or k tensor: within each
  // head of R rows, stored row 2i+j is canonical row j*R/2+i (j = 0, 1).
  std::uint32_t interleaved_head_count = 0;
  // Index of the tensor whose bytes these are (tied); offset and size_bytes are then that one's.
  std::optional<std::uint32_t> alias_of;
};

struct PlannedAsset {
  std::string name;
  std::uint64_t offset = 0;
  std::vector<std::uint8_t> bytes;
};

struct LoadPlan {
  std::uint64_t arena_bytes = 0;  // a multiple of kPlanAlignment; padding between tensors is zero
  std::vector<PlannedTensor> tensors;
  std::vector<PlannedAsset> assets;
  std::vector<std::string> notes;  // oddities that were survived, for people
};

struct PlanOptions {
  DtypeChoice dtype = DtypeChoice::kAuto;
  Dtype best_matrix_dtype = Dtype::kF32;  // what kAuto means for a language model on this node
};

// Reads and validates every header, completely, and lays the arena out. `files`: all weight files
// of the model, then its small files (config.json, tokenizer.json, ...), by name.
// Errors: kCorrupt naming file, tensor, expected and found values; kInvalidArgument for what is
//   valid but not supported (a ggml type, an architecture, a split GGUF) naming it and the choices.
Result<LoadPlan> PlanLoad(std::span<const SourceFile> files, const PlanOptions& options);

// Writes rows [row_begin, row_end) of `tensor` (rows: the product of all but its last dimension;
// a scalar or vector has one row), as they are in the arena, to `out`.
//   stored: the bytes of those same *stored* rows. out: the tensor's whole place in the arena,
//   size_bytes long: interleaved rows land where they belong.
// Cost: one pass over the bytes. Requires sizes that match (checked).
Status ConvertRows(const PlannedTensor& tensor, std::uint64_t row_begin, std::uint64_t row_end,
                   std::span<const std::uint8_t> stored, std::span<std::uint8_t> out);

// Rows of a tensor, and bytes of one stored row.
std::uint64_t RowCount(const PlannedTensor& tensor);
std::uint64_t StoredRowBytes(const PlannedTensor& tensor);

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_LOAD_PLAN_H_
