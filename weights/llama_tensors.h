// Which tensors a model of the llama family has, and of which shape.
//
// Thread: any thread.
// Source: Hugging Face transformers, modeling_llama.py.

#ifndef STICKY_WEIGHTS_LLAMA_TENSORS_H_
#define STICKY_WEIGHTS_LLAMA_TENSORS_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "weights/model_config.h"
#include "weights/stored_model.h"

namespace sticky::weights {

inline constexpr std::string_view kEmbeddingName = "model.embed_tokens.weight";
inline constexpr std::string_view kHeadName = "lm_head.weight";

struct ExpectedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};

// All but the output head, which may be tied.
std::vector<ExpectedTensor> ExpectedLlamaTensors(const ModelConfig& config);

// Checks `model` against `config`: nothing missing, every shape right, dtypes that can be read;
// lm_head.weight may be absent. Leaves out, with a note, tensors that the family does not use:
// rotary_emb.inv_freq (computed from the configuration), and those outside of the family's names.
// Errors: kCorrupt naming the tensor, expected and found; a tensor within model.layers that the
//   configuration does not account for is one too: without it the results would be wrong.
//   kInvalidArgument for a needed tensor whose dtype is not supported.
Status CheckLlamaTensors(const ModelConfig& config, StoredModel& model);

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_LLAMA_TENSORS_H_
