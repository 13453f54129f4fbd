// The tensors of a llama-family model, found by name and checked against its configuration.
//
// Thread: any thread.

#ifndef STICKY_ENGINE_LLAMA_WEIGHTS_H_
#define STICKY_ENGINE_LLAMA_WEIGHTS_H_

#include <vector>

#include "base/result.h"
#include "engine/model.h"
#include "engine/ops.h"
#include "weights/model_config.h"

namespace sticky::engine {

// A matrix and its bias, which may be null.
struct Linear {
  WeightMatrix weight;
  const float* bias = nullptr;
};

struct LlamaLayer {
  const float* attention_norm = nullptr;  // [hidden_size]
  const float* mlp_norm = nullptr;        // [hidden_size]
  Linear query, key, value, output;
  Linear gate, up, down;
};

struct LlamaWeights {
  WeightMatrix embedding;             // [vocab_size, hidden_size]
  WeightMatrix head;                  // [vocab_size, hidden_size]; the embedding when tied
  const float* final_norm = nullptr;  // [hidden_size]
  std::vector<LlamaLayer> layers;
};

// Finds every tensor that `config` asks for, and proves that none is left over.
// Errors: kCorrupt naming the tensor, what was expected and what was found.
Result<LlamaWeights> BindLlamaWeights(const weights::ModelConfig& config,
                                      const WeightSource& source);

}  // namespace sticky::engine

#endif  // STICKY_ENGINE_LLAMA_WEIGHTS_H_
