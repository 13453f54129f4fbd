// Digest: 128 bits that stand for some bytes, shown as 32 lower-case hexadecimal digits; and
// Sha256, the 256 bits that others publish of their files, as 64.
//
// Thread: any thread.

#ifndef STICKY_BASE_DIGEST_H_
#define STICKY_BASE_DIGEST_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sticky {

struct Digest {
  std::array<std::uint8_t, 16> bytes{};
  bool operator==(const Digest&) const = default;
};

struct Sha256 {
  std::array<std::uint8_t, 32> bytes{};
  bool operator==(const Sha256&) const = default;
};

std::string ToHex(const Digest& digest);
std::string ToHex(const Sha256& sha256);

// Errors: kInvalidArgument unless `text` is exactly 32 hexadecimal digits of either case.
Result<Digest> DigestFromHex(std::string_view text);

// Errors: kInvalidArgument unless `text` is exactly 64 hexadecimal digits of either case.
Result<Sha256> Sha256FromHex(std::string_view text);

}  // namespace sticky

#endif  // STICKY_BASE_DIGEST_H_
