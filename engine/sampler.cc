#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/text.h"

namespace sticky::engine {
namespace {

std::int32_t Greedy(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

Result<Sampler> Sampler::Create(const SamplerOptions& options) {
  const auto refuse = [](const std::string& what) {
    return Error{Code::kInvalidArgument, "choose how to sample: " + what};
  };
  if (!(options.temperature >= 0 && options.temperature <= 100)) {
    return refuse(Format("temperature is %g, want 0 to 100", options.temperature));
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return refuse(Format("top_p is %g, want more than 0, at most 1", options.top_p));
  }
  if (options.top_k < 0) return refuse(Format("top_k is %d, want 0 or more", options.top_k));
  return Sampler(options);
}

std::int32_t Sampler::Next(std::span<const float> logits) {
  if (options_.temperature == 0 || options_.top_k == 1) return Greedy(logits);
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto better = [&](std::int32_t a, std::int32_t b) {
    const float la = logits[static_cast<std::size_t>(a)];
    const float lb = logits[static_cast<std::size_t>(b)];
    return la != lb ? la > lb : a < b;
  };
  const auto kept = options_.top_k > 0
                        ? std::min(ids.size(), static_cast<std::size_t>(options_.top_k))
                        : ids.size();
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(kept), ids.end(),
                    better);
  ids.resize(kept);
  const double most = logits[static_cast<std::size_t>(ids[0])];
  std::vector<double> weights;
  double sum = 0;
  for (const std::int32_t id : ids) {
    weights.push_back(
        std::exp((logits[static_cast<std::size_t>(id)] - most) / options_.temperature));
    sum += weights.back();
  }
  // The smallest set of the best tokens that has at least top_p of the probability.
  double kept_sum = 0;
  std::size_t count = 0;
  while (count < weights.size() && (count == 0 || kept_sum < options_.top_p * sum)) {
    kept_sum += weights[count++];
  }
  // 53 random bits make a double in [0, 1); std::uniform_real_distribution is not the same
  // everywhere.
  double left = static_cast<double>(rng_() >> 11) * 0x1p-53 * kept_sum;
  for (std::size_t i = 0; i < count; ++i) {
    left -= weights[i];
    if (left < 0) return ids[i];
  }
  return ids[count - 1];
}

double LogProbability(std::span<const float> logits, std::int32_t token) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - most);
  return logits[static_cast<std::size_t>(token)] - most - std::log(sum);
}

}  // namespace sticky::engine
