#include "weights/byte_alphabet.h"

#include <array>
#include <cstdint>

namespace sticky::weights {
namespace {

constexpr std::size_t kCharacterCount = 0x100 + 68;  // 68 bytes have no character of their own

constexpr std::array<std::int16_t, kCharacterCount> MakeTable() {
  std::array<std::int16_t, kCharacterCount> byte_of{};
  for (std::int16_t& byte : byte_of) byte = -1;
  std::size_t next = 0x100;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    byte_of[prints ? byte : next++] = static_cast<std::int16_t>(byte);
  }
  return byte_of;
}

constexpr std::array<std::int16_t, kCharacterCount> kByteOf = MakeTable();

}  // namespace

bool DecodeByteAlphabet(std::string_view text, std::string& bytes) {
  bytes.clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t character = static_cast<unsigned char>(text[i]);
    if (character >= 0x80) {
      const bool two_bytes = (character & 0xE0) == 0xC0 && i + 1 < text.size();
      if (!two_bytes) return false;  // longer ones are far outside the alphabet
      character = (character & 0x1F) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3F);
    }
    if (character >= kByteOf.size() || kByteOf[character] < 0) return false;
    bytes.push_back(static_cast<char>(kByteOf[character]));
  }
  return true;
}

}  // namespace sticky::weights
