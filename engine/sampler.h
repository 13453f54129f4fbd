// Sampler: picks the next token from a row of logits; the same seed gives the same tokens.
//
// Thread: one thread at a time.

#ifndef STICKY_ENGINE_SAMPLER_H_
#define STICKY_ENGINE_SAMPLER_H_

#include <cstdint>
#include <random>
#include <span>

#include "base/result.h"

namespace sticky::engine {

struct SamplerOptions {
  double temperature = 0;  // 0: greedy; ties go to the lowest id
  double top_p = 1;        // in (0, 1]
  int top_k = 0;           // 0: all
  std::uint64_t seed = 0;
};

class Sampler {
 public:
  // Errors: kInvalidArgument naming the option, its value and its range.
  static Result<Sampler> Create(const SamplerOptions& options);

  // logits: float32 [vocab], finite. Returns a token id.
  std::int32_t Next(std::span<const float> logits);

 private:
  explicit Sampler(const SamplerOptions& options) : options_(options), rng_(options.seed) {}
  SamplerOptions options_;
  std::mt19937_64 rng_;
};

// The natural logarithm of softmax(logits)[token], in double precision.
double LogProbability(std::span<const float> logits, std::int32_t token);

}  // namespace sticky::engine

#endif  // STICKY_ENGINE_SAMPLER_H_
