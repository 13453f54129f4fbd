#include "daemon/load/reading.h"

#include <algorithm>

namespace sticky::load {

Reading ChooseReading(std::uint64_t cached_bytes, std::uint64_t all_bytes, int cpu_count) {
  // Each makes about 8 GB/s present; on a virtual machine more of them hinder each other.
  constexpr int kMakersMost = 4;
  const int maker_count = std::clamp(cpu_count / 4, 1, kMakersMost);
  constexpr int kCopyThreadsMost = 8;  // more than memory needs
  if (cached_bytes >= all_bytes - all_bytes / 2) {
    return {std::clamp(cpu_count, 1, kCopyThreadsMost), 256u << 10, maker_count};
  }
  constexpr int kReadsLeast = 16;  // what a disk with several queues wants, or one behind a network
  constexpr int kReadsMost = 32;
  return {std::clamp(cpu_count, kReadsLeast, kReadsMost), 1u << 20, maker_count};
}

}  // namespace sticky::load
