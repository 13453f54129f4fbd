#include "engine/rope.h"

#include <cmath>
#include <numbers>

namespace sticky::engine {
namespace {

double Llama3Scaled(const weights::RopeConfig& rope, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double long_wave = rope.original_context / rope.low_freq_factor;
  const double short_wave = rope.original_context / rope.high_freq_factor;
  if (wavelength < short_wave) return frequency;
  if (wavelength > long_wave) return frequency / rope.factor;
  const double blend = (rope.original_context / wavelength - rope.low_freq_factor) /
                       (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - blend) * frequency / rope.factor + blend * frequency;
}

}  // namespace

std::vector<float> InverseFrequencies(const weights::RopeConfig& rope, int head_dim) {
  std::vector<float> frequencies;
  for (int i = 0; i < head_dim / 2; ++i) {
    double frequency = std::pow(rope.theta, -2.0 * i / head_dim);
    if (rope.kind == weights::RopeKind::kLlama3) frequency = Llama3Scaled(rope, frequency);
    frequencies.push_back(static_cast<float>(frequency));
  }
  return frequencies;
}

}  // namespace sticky::engine
