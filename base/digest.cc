#include "base/digest.h"

#include <span>

#include "base/text.h"

namespace sticky {
namespace {

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string HexOf(std::span<const std::uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

// Whether `text` was two digits for each byte of `out`, which is then filled.
bool ReadHex(std::string_view text, std::span<std::uint8_t> out) {
  if (text.size() != 2 * out.size()) return false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int high = HexValue(text[2 * i]);
    const int low = HexValue(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return true;
}

}  // namespace

std::string ToHex(const Digest& digest) { return HexOf(digest.bytes); }

std::string ToHex(const Sha256& sha256) { return HexOf(sha256.bytes); }

Result<Digest> DigestFromHex(std::string_view text) {
  Digest digest;
  if (ReadHex(text, digest.bytes)) return digest;
  return Error{Code::kInvalidArgument,
               "read digest '" + Escape(text) + "': want 32 hexadecimal digits"};
}

Result<Sha256> Sha256FromHex(std::string_view text) {
  Sha256 sha256;
  if (ReadHex(text, sha256.bytes)) return sha256;
  return Error{Code::kInvalidArgument,
               "read SHA-256 '" + Escape(text) + "': want 64 hexadecimal digits"};
}

}  // namespace sticky
