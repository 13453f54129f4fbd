#include "engine/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/text.h"
#include "engine/tokenizer/bpe.h"
#include "engine/tokenizer/pre_tokenizer.h"

namespace sticky::engine {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD

// Of a text that does not begin with a character: how many bytes are one mistake, which is the
// longest beginning of a character, at least one byte. So it does not matter how the bytes were
// streamed. Source: The Unicode Standard, section 3.9, "substitution of maximal subparts".
std::size_t BrokenBytes(std::string_view text) {
  std::size_t size = 1;
  while (size < text.size() && Utf8CharacterBytes(text.substr(0, size + 1)) == 0) ++size;
  return size;
}

// A whole token within a text.
struct Found {
  std::size_t at, size;
  std::uint32_t id;
};

}  // namespace

struct Tokenizer::Impl {
  weights::Vocabulary vocabulary;
  PreTokenizer pre_tokenizer;
  std::array<std::vector<std::uint32_t>, 256> added_by_byte;  // longest first

  std::optional<Found> FindAdded(std::string_view text, std::size_t from, std::size_t to,
                                 bool special) const;
  std::vector<Found> FindAllAdded(std::string_view text, std::span<const TextPiece> pieces) const;
  Status EncodePlain(std::string_view text, std::vector<std::int32_t>& ids) const;
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

const weights::Vocabulary& Tokenizer::vocabulary() const { return impl_->vocabulary; }

Result<Tokenizer> Tokenizer::Open(const weights::Vocabulary& vocabulary) {
  STICKY_ASSIGN(PreTokenizer pre_tokenizer, PreTokenizer::Open(vocabulary));
  auto impl = std::unique_ptr<Impl>(new Impl{vocabulary, std::move(pre_tokenizer), {}});
  for (const std::uint32_t id : vocabulary.added_tokens()) {
    const std::string_view bytes = vocabulary.token_bytes(id);
    if (bytes.empty()) continue;
    impl->added_by_byte[static_cast<unsigned char>(bytes[0])].push_back(id);
  }
  for (auto& ids : impl->added_by_byte) {
    std::stable_sort(ids.begin(), ids.end(), [&](std::uint32_t a, std::uint32_t b) {
      return vocabulary.token_bytes(a).size() > vocabulary.token_bytes(b).size();
    });
  }
  return Tokenizer(std::move(impl));
}

// The first, and there the longest, added token in text[from, to); control tokens only when asked.
std::optional<Found> Tokenizer::Impl::FindAdded(std::string_view text, std::size_t from,
                                                std::size_t to, bool special) const {
  for (std::size_t at = from; at < to; ++at) {
    for (const std::uint32_t id : added_by_byte[static_cast<unsigned char>(text[at])]) {
      if (!special && vocabulary.is_special(id)) continue;
      const std::string_view bytes = vocabulary.token_bytes(id);
      if (text.substr(at, std::min(bytes.size(), to - at)) == bytes) {
        return Found{at, bytes.size(), id};
      }
    }
  }
  return std::nullopt;
}

std::vector<Found> Tokenizer::Impl::FindAllAdded(std::string_view text,
                                                 std::span<const TextPiece> pieces) const {
  std::vector<Found> all;
  std::size_t begin = 0;
  for (const TextPiece& piece : pieces) {
    const std::size_t end = begin + piece.text.size();
    const bool special = piece.markup == Markup::kSpecial;
    while (const auto found = FindAdded(text, begin, end, special)) {
      all.push_back(*found);
      begin = found->at + found->size;
    }
    begin = end;
  }
  return all;
}

Status Tokenizer::Impl::EncodePlain(std::string_view text, std::vector<std::int32_t>& ids) const {
  if (text.empty()) return Ok{};
  std::string changed;
  if (vocabulary.normalize_nfc()) {
    STICKY_ASSIGN(changed, NormalizeNfc(text));
    text = changed;
  }
  std::string prefixed;
  if (vocabulary.add_prefix_space() && text[0] != ' ') {
    prefixed = " " + std::string(text);
    text = prefixed;
  }
  STICKY_ASSIGN(const std::vector<std::string_view> pieces, pre_tokenizer.Split(text));
  for (const std::string_view piece : pieces) STICKY_TRY(EncodePiece(vocabulary, piece, ids));
  return Ok{};
}

Result<std::vector<std::int32_t>> Tokenizer::Encode(std::span<const TextPiece> pieces) const {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  if (text.size() > kTextBytesMax) {
    return Error{Code::kInvalidArgument,
                 Format("encode a text of %zu bytes: at most %zu", text.size(), kTextBytesMax)};
  }
  std::vector<std::int32_t> ids;
  std::size_t done = 0;
  const std::string_view view(text);
  for (const Found& found : impl_->FindAllAdded(view, pieces)) {
    STICKY_TRY(impl_->EncodePlain(view.substr(done, found.at - done), ids));
    ids.push_back(static_cast<std::int32_t>(found.id));
    done = found.at + found.size;
  }
  STICKY_TRY(impl_->EncodePlain(view.substr(done), ids));
  return ids;
}

Result<std::vector<std::int32_t>> Tokenizer::Encode(std::string_view text, Markup markup) const {
  const TextPiece piece{std::string(text), markup};
  return Encode(std::span(&piece, 1));
}

std::string Tokenizer::Decode(const std::vector<std::int32_t>& ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    if (id < 0 || static_cast<std::uint32_t>(id) >= impl_->vocabulary.token_count()) continue;
    text += impl_->vocabulary.token_bytes(static_cast<std::uint32_t>(id));
  }
  return text;
}

std::string StreamDecoder::Feed(std::int32_t id) {
  if (id >= 0 && static_cast<std::uint32_t>(id) < vocabulary_.token_count()) {
    pending_ += vocabulary_.token_bytes(static_cast<std::uint32_t>(id));
  }
  std::string out;
  std::size_t done = 0;
  while (done < pending_.size()) {
    const int length = Utf8CharacterBytes(std::string_view(pending_).substr(done));
    if (length == 0) break;
    if (length < 0) {
      out += kReplacement;
      done += BrokenBytes(std::string_view(pending_).substr(done));
      continue;
    }
    out.append(pending_, done, static_cast<std::size_t>(length));
    done += static_cast<std::size_t>(length);
  }
  pending_.erase(0, done);
  return out;
}

std::string StreamDecoder::Finish() {
  const bool unfinished = !pending_.empty();
  pending_.clear();
  return unfinished ? kReplacement : "";
}

}  // namespace sticky::engine
