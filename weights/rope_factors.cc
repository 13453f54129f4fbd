#include "weights/rope_factors.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sticky::weights {
namespace {

constexpr double kTolerance = 1e-4;  // relative

// Waves per position of frequency `index`.
double InverseWavelength(double theta, int index, int head_dim) {
  return std::pow(theta, -2.0 * index / head_dim) / (2 * std::numbers::pi);
}

bool Fits(const RopeConfig& rope, std::span<const float> factors, int head_dim) {
  const std::vector<double> expected = Llama3Factors(rope, head_dim);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (!(std::abs(factors[i] - expected[i]) <= kTolerance * expected[i])) return false;
  }
  return true;
}

// The interpolated frequencies lie on the line smooth = slope / wavelength - low / (high - low).
// A least-squares line through them gives the parameters; two are enough.
std::optional<RopeConfig> Solve(std::span<const float> factors, double theta, int head_dim,
                                double factor) {
  double count = 0, sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double smooth = (1 / static_cast<double>(factors[i]) - 1 / factor) / (1 - 1 / factor);
    if (smooth < 1e-6 || smooth > 1 - 1e-6) continue;
    const double x = InverseWavelength(theta, static_cast<int>(i), head_dim);
    count += 1;
    sum_x += x;
    sum_y += smooth;
    sum_xx += x * x;
    sum_xy += x * smooth;
  }
  const double spread = count * sum_xx - sum_x * sum_x;
  if (count < 2 || !(spread > 0)) return std::nullopt;
  const double slope = (count * sum_xy - sum_x * sum_y) / spread;
  const double intercept = (sum_y - slope * sum_x) / count;
  if (!(slope > 0) || !(intercept < 0)) return std::nullopt;
  RopeConfig rope{.kind = RopeKind::kLlama3, .theta = theta, .factor = factor};
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 1 - 1 / intercept;
  rope.original_context = slope * (rope.high_freq_factor - 1);
  return rope;
}

}  // namespace

std::vector<double> Llama3Factors(const RopeConfig& rope, int head_dim) {
  std::vector<double> factors(static_cast<std::size_t>(head_dim / 2));
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double waves =
        rope.original_context * InverseWavelength(rope.theta, static_cast<int>(i), head_dim);
    const double smooth =
        (waves - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    const double kept = std::clamp(smooth, 0.0, 1.0);
    factors[i] = 1 / ((1 - kept) / rope.factor + kept);
  }
  return factors;
}

std::optional<RopeConfig> RopeFromFactors(std::span<const float> factors, double theta,
                                          int head_dim) {
  if (factors.size() != static_cast<std::size_t>(head_dim / 2) || factors.empty()) {
    return std::nullopt;
  }
  const double factor = *std::max_element(factors.begin(), factors.end());
  if (!std::isfinite(factor)) return std::nullopt;
  if (std::all_of(factors.begin(), factors.end(), [](float f) { return f == 1.0f; })) {
    return RopeConfig{.kind = RopeKind::kDefault, .theta = theta};
  }
  if (!(factor > 1)) return std::nullopt;
  const RopeConfig published{.kind = RopeKind::kLlama3,
                             .theta = theta,
                             .factor = factor,
                             .low_freq_factor = 1,
                             .high_freq_factor = 4,
                             .original_context = 8192};
  if (Fits(published, factors, head_dim)) return published;
  const std::optional<RopeConfig> solved = Solve(factors, theta, head_dim, factor);
  if (solved && Fits(*solved, factors, head_dim)) return solved;
  return std::nullopt;
}

}  // namespace sticky::weights
