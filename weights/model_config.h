// ModelConfig: the architecture of a language model, from the canonical `config.json` asset.
//
// Thread: any thread.
// Source: Hugging Face transformers, configuration files of version 4 (rope_theta, rope_scaling,
// torch_dtype at top level) and of version 5 (rope_parameters, dtype); both are read.

#ifndef STICKY_WEIGHTS_MODEL_CONFIG_H_
#define STICKY_WEIGHTS_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sticky::weights {

enum class RopeKind : std::int8_t { kDefault = 0, kLlama3 };

struct RopeConfig {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000;  // base of the rotary frequencies, unitless
  // kLlama3 only, unitless but for the last, which is in positions:
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_context = 8192;
};

struct ModelConfig {
  std::string family;  // "llama"
  int vocab_size = 0;
  int hidden_size = 0;
  int layer_count = 0;
  int head_count = 0;
  int kv_head_count = 0;
  int head_dim = 0;
  int intermediate_size = 0;
  int context_length = 0;  // positions
  double norm_epsilon = 1e-5;
  bool tied_output = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  RopeConfig rope;
  int bos_token = -1;            // -1: none
  std::vector<int> stop_tokens;  // every id that ends a text
};

// Reads `config_json`, and `generation_config_json` (empty when the model has none) for more stop
// tokens. Unknown keys are ignored; what the family needs and is missing is an error.
// Errors: kCorrupt for text that is not JSON or values out of range; kInvalidArgument for a family
//   or rotary scaling that is not supported, naming it and the choices.
Result<ModelConfig> ParseModelConfig(std::string_view config_json,
                                     std::string_view generation_config_json);

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_MODEL_CONFIG_H_
