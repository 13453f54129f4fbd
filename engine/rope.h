// Inverse frequencies of the rotary embedding, with Llama 3's scaling.
//
// Thread: any thread.

#ifndef STICKY_ENGINE_ROPE_H_
#define STICKY_ENGINE_ROPE_H_

#include <vector>

#include "weights/model_config.h"

namespace sticky::engine {

// [head_dim / 2], radians per position: theta^(-2i / head_dim), scaled as `rope` says.
// Source: Su et al. 2021; the bands of kLlama3 as in transformers' rope utilities: wavelengths
// below original_context / high_freq_factor stay, those above original_context / low_freq_factor
// are stretched by factor, those between are blended linearly.
std::vector<float> InverseFrequencies(const weights::RopeConfig& rope, int head_dim);

}  // namespace sticky::engine

#endif  // STICKY_ENGINE_ROPE_H_
