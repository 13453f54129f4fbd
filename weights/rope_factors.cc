#include "weights/rope_factors.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sticky::weights {
namespace {

constexpr double kTolerance = 1e-4;  // relative
constexpr double kEdge = 1e-6;       // closer to 0 or 1 than this is 0 or 1, in float32

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

// smooth = slope / wavelength + intercept, between 0 and 1.
struct Line {
  double slope, intercept;
};

// The line through the interpolated frequencies: least squares through two or more. Through one or
// none many lines give the same factors: the flattest one that keeps its neighbours as they are.
std::optional<Line> FindLine(std::span<const float> factors, double theta, int head_dim,
                             double factor) {
  double count = 0, sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
  double kept_x = 0;    // the lowest frequency that is kept whole; 0: none
  double scaled_x = 0;  // the highest that is scaled in full; 0: none
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double smooth = (1 / static_cast<double>(factors[i]) - 1 / factor) / (1 - 1 / factor);
    const double x = InverseWavelength(theta, static_cast<int>(i), head_dim);
    if (smooth > 1 - kEdge) {
      kept_x = x;
    } else if (smooth < kEdge) {
      scaled_x = std::max(scaled_x, x);
    } else {
      count += 1;
      sum_x += x;
      sum_y += smooth;
      sum_xx += x * x;
      sum_xy += x * smooth;
    }
  }
  Line line{};
  if (count >= 2) {
    line.slope = (count * sum_xy - sum_x * sum_y) / (count * sum_xx - sum_x * sum_x);
    line.intercept = (sum_y - line.slope * sum_x) / count;
  } else if (count == 1) {
    const double to_kept = kept_x > 0 ? (1 - sum_y) / (kept_x - sum_x) : 0;
    line.slope = std::max(to_kept, sum_y / (sum_x - scaled_x));
    line.intercept = sum_y - line.slope * sum_x;
  } else if (kept_x > scaled_x && scaled_x > 0) {
    line.slope = 1 / (kept_x - scaled_x);
    line.intercept = -line.slope * scaled_x;
  }
  if (!(line.slope > 0) || !(line.intercept < 0)) return std::nullopt;
  return line;
}

// smooth is (context / wavelength - low) / (high - low): with low = 1 the line gives the others.
std::optional<RopeConfig> Solve(std::span<const float> factors, double theta, int head_dim,
                                double factor) {
  const std::optional<Line> line = FindLine(factors, theta, head_dim, factor);
  if (!line) return std::nullopt;
  RopeConfig rope{.kind = RopeKind::kLlama3, .theta = theta, .factor = factor};
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 1 - 1 / line->intercept;
  rope.original_context = line->slope * (rope.high_freq_factor - 1);
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
