// Llama 3's rotary scaling, as GGUF stores it: one factor a frequency instead of four parameters.
//
// Thread: any thread.
// Source: Hugging Face transformers, modeling_rope_utils.py, "llama3": a frequency of wavelength w
// is kept when w < context / high, divided by `factor` when w > context / low, and between the two
// it is interpolated by (context / w - low) / (high - low).

#ifndef STICKY_WEIGHTS_ROPE_FACTORS_H_
#define STICKY_WEIGHTS_ROPE_FACTORS_H_

#include <optional>
#include <span>
#include <vector>

#include "weights/model_config.h"

namespace sticky::weights {

// What each of head_dim / 2 frequencies is divided by. rope.kind is kLlama3.
std::vector<double> Llama3Factors(const RopeConfig& rope, int head_dim);

// The parameters that give `factors` (float32 [head_dim / 2]) to within 1e-4 of each: the published
// ones (low 1, high 4, context 8192) when they fit, else solved for with low = 1, since only the
// ratios of low, high and context matter. kDefault when every factor is 1.
// None when no such parameters exist: another kind of scaling.
std::optional<RopeConfig> RopeFromFactors(std::span<const float> factors, double theta,
                                          int head_dim);

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_ROPE_FACTORS_H_
