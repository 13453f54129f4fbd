#include "base/text.h"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace sticky {
namespace {

constexpr std::size_t kEscapedBytesMax = 512;
constexpr std::size_t kPrintableBytesMax = 8192;

// U+0080 to U+009F are control characters too; some terminals obey them.
bool IsC1Control(std::string_view sequence) {
  return sequence.size() == 2 && sequence[0] == '\xC2' &&
         static_cast<unsigned char>(sequence[1]) < 0xA0;
}

// Writes out what is unsafe to print; also quotes and backslashes when the text goes into quotes.
std::string WriteOut(std::string_view text, bool quoted, std::size_t bytes_max) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (out.size() >= bytes_max) return out + "...";
    const int character_bytes = Utf8CharacterBytes(text.substr(i));
    const auto length = static_cast<std::size_t>(std::max(character_bytes, 0));
    const char c = text[i];
    if (length > 1 && !IsC1Control(text.substr(i, length))) {
      out += text.substr(i, length);
      i += length;
      continue;
    }
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (quoted && (c == '\\' || c == '\'')) {
      out += '\\';
      out += c;
    } else if (length == 1 && c >= 0x20 && c != 0x7F) {
      out += c;
    } else {
      out += Format("\\x%02x", static_cast<unsigned char>(c));
    }
    ++i;
  }
  return out;
}

// How many letters must be put in, left out or changed to make one word of the other.
std::size_t EditDistance(std::string_view word, std::string_view other) {
  std::vector<std::size_t> row(other.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= word.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j < row.size(); ++j) {
      const std::size_t changed = diagonal + (word[i - 1] == other[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string Format(const char* format, ...) {
  va_list args;
  va_start(args, format);
  va_list again;
  va_copy(again, args);
  const int size = std::vsnprintf(nullptr, 0, format, args);
  va_end(args);
  std::string text(static_cast<std::size_t>(std::max(size, 0)), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  return text;
}

bool IsUtf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const int character_bytes = Utf8CharacterBytes(text.substr(i));
    const auto length = static_cast<std::size_t>(std::max(character_bytes, 0));
    if (length == 0) return false;
    i += length;
  }
  return true;
}

int Utf8CharacterBytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return -1;
  const int length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  for (std::size_t i = 1; i < static_cast<std::size_t>(length); ++i) {
    if (i >= text.size()) return 0;
    const auto byte = static_cast<unsigned char>(text[i]);
    // The second byte decides about overlong forms, surrogates and what lies past the end.
    const bool second = i == 1;
    const unsigned char low = second && lead == 0xE0 ? 0xA0 : second && lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = second && lead == 0xED ? 0x9F : second && lead == 0xF4 ? 0x8F : 0xBF;
    if (byte < low || byte > high) return -1;
  }
  return length;
}

std::string Escape(std::string_view text) {
  return WriteOut(text, /*quoted=*/true, kEscapedBytesMax);
}

std::string Printable(std::string_view text) {
  return WriteOut(text, /*quoted=*/false, kPrintableBytesMax);
}

std::string ByteCount(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return Format("%llu B", static_cast<unsigned long long>(bytes));
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return Format("%.2f %s", value, kUnits[unit]);
}

Result<std::uint64_t> ParseByteCount(std::string_view text) {
  const Error error{Code::kInvalidArgument,
                    "read byte count '" + Escape(text) + "': want a number and B, K, M, G or T"};
  const std::string copy(text);
  char* end = nullptr;
  if (copy.empty() || copy[0] < '0' || copy[0] > '9') return error;
  const double number = std::strtod(copy.c_str(), &end);
  std::string unit;
  for (; *end != '\0'; ++end) {
    if (*end != ' ') unit.push_back(static_cast<char>(*end | 0x20));
  }
  double factor = 1;
  if (!unit.empty() && unit != "b") {
    const std::size_t power = std::string_view("kmgt").find(unit[0]);
    if (power == std::string_view::npos) return error;
    const std::string rest = unit.substr(1);
    if (!rest.empty() && rest != "b" && rest != "ib") return error;
    for (std::size_t i = 0; i <= power; ++i) factor *= 1024;
  }
  const double bytes = number * factor;
  if (!(bytes >= 0 && bytes < 9223372036854775808.0)) return error;
  return static_cast<std::uint64_t>(bytes);
}

Error ErrnoError(std::string what, int errno_value, const char* file, int line) {
  Code code = Code::kInternal;
  switch (errno_value) {
    case ENOENT:
    case ENOTDIR:
      code = Code::kNotFound;
      break;
    case EACCES:
    case EPERM:
      code = Code::kPermissionDenied;
      break;
    case ELOOP:
    case ENAMETOOLONG:
    case EISDIR:
    case ENXIO:  // a device without a driver behind it
      code = Code::kInvalidArgument;
      break;
    case ENOMEM:
    case ENOSPC:
    case EMFILE:
    case ENFILE:
      code = Code::kOutOfMemory;
      break;
    case EAGAIN:
    case ECONNREFUSED:
    case ETIMEDOUT:
      code = Code::kUnavailable;
      break;
    case EIO:
      code = Code::kCorrupt;
      break;
    default:
      break;
  }
  char buffer[128];
  what += ": ";
  what += ::strerror_r(errno_value, buffer, sizeof buffer);
  return Error{code, std::move(what), errno_value, file, line};
}

std::string_view NearestWord(std::string_view word, const std::string_view* known,
                             std::size_t known_count) {
  std::string_view best;
  std::size_t best_distance = std::min<std::size_t>(3, word.size() / 2 + 1);
  for (std::size_t k = 0; k < known_count; ++k) {
    const std::size_t distance = EditDistance(word, known[k]);
    if (distance >= best_distance) continue;
    best_distance = distance;
    best = known[k];
  }
  return best;
}

}  // namespace sticky
