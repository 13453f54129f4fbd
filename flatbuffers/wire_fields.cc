#include "flatbuffers/wire_fields.h"

#include <algorithm>

#include "flatbuffers/wire_manifest.h"

namespace sticky::wire {

TextOffset PackText(Builder& builder, const std::string& text) {
  std::size_t size = std::min<std::size_t>(text.size(), kTextBytesMax);
  const auto continues = [&] { return (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80; };
  while (size > 0 && size < text.size() && continues()) --size;
  return builder.CreateString(text.data(), size);
}

BytesOffset PackDigest(Builder& builder, const std::optional<Digest>& digest) {
  if (!digest.has_value()) return 0;
  return builder.CreateVector(digest->bytes.data(), digest->bytes.size());
}

BytesOffset PackDigest(Builder& builder, const std::optional<Sha256>& sha256) {
  if (!sha256.has_value()) return 0;
  return builder.CreateVector(sha256->bytes.data(), sha256->bytes.size());
}

Error Corrupt(const char* field, const char* reason) {
  return Error{Code::kCorrupt, Format("decode frame: %s %s", field, reason)};
}

Status ReadText(const Text* text, const char* field, std::string& out) {
  if (text == nullptr) return Ok{};
  if (text->size() > kTextBytesMax) return Corrupt(field, "is too long");
  out.assign(text->c_str(), text->size());
  return Ok{};
}

Status ReadStateName(const Text* text, std::string& out) {
  if (text == nullptr) return Corrupt("state name", "is missing");
  out.assign(text->c_str(), std::min(text->size(), kStateNameBytesMax + 1));
  if (!CheckStateName(out).ok()) return Corrupt("state name", "is not allowed");
  return Ok{};
}

Status ReadFileName(const Text* text, std::string& out) {
  if (text == nullptr) return Corrupt("file name", "is missing");
  if (text->size() == 0 || text->size() > kFileNameBytesMax) {
    return Corrupt("file name", "is empty or too long");
  }
  out.assign(text->c_str(), text->size());
  const bool plain = out.find('/') == std::string::npos && out.find('\0') == std::string::npos &&
                     out != "." && out != "..";
  if (!plain) return Corrupt("file name", "is not a plain name");
  return Ok{};
}

Status ReadDigest(const Bytes* bytes, const char* field, std::optional<Digest>& out) {
  if (bytes == nullptr) return Ok{};
  Digest digest;
  if (bytes->size() != digest.bytes.size()) return Corrupt(field, "is not 16 bytes");
  std::copy(bytes->begin(), bytes->end(), digest.bytes.begin());
  out = digest;
  return Ok{};
}

Status ReadDigest(const Bytes* bytes, const char* field, Digest& out) {
  std::optional<Digest> digest;
  STICKY_TRY(ReadDigest(bytes, field, digest));
  if (!digest.has_value()) return Corrupt(field, "is missing");
  out = *digest;
  return Ok{};
}

Status ReadDigest(const Bytes* bytes, const char* field, std::optional<Sha256>& out) {
  if (bytes == nullptr) return Ok{};
  Sha256 sha256;
  if (bytes->size() != sha256.bytes.size()) return Corrupt(field, "is not 32 bytes");
  std::copy(bytes->begin(), bytes->end(), sha256.bytes.begin());
  out = sha256;
  return Ok{};
}

Status ReadDtype(fb::DtypeChoice value, DtypeChoice& out) {
  return ReadEnum(value, fb::DtypeChoice::MAX, "dtype choice", out);
}

Status ReadArenaBytes(std::uint64_t bytes, std::uint64_t& out) {
  if (bytes > kArenaBytesMax) return Corrupt("arena_bytes", "is past the maximum");
  out = bytes;
  return Ok{};
}

}  // namespace sticky::wire
