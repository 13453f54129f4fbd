// Digest: 128 bits that stand for some bytes, shown as 32 lower-case hexadecimal digits.
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

std::string ToHex(const Digest& digest);

// Errors: kInvalidArgument unless `text` is exactly 32 hexadecimal digits of either case.
Result<Digest> DigestFromHex(std::string_view text);

}  // namespace sticky

#endif  // STICKY_BASE_DIGEST_H_
