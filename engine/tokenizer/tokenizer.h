// Tokenizer: text to token ids and back, for byte-level BPE, on a compiled vocabulary.
//
// Thread: Encode from one thread at a time.
// Source: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units";
// the pre-tokenizer patterns are the model's own.

#ifndef STICKY_ENGINE_TOKENIZER_TOKENIZER_H_
#define STICKY_ENGINE_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "weights/vocabulary.h"

namespace sticky::engine {

// What markup such as <|im_end|> inside a text is.
enum class Markup : std::int8_t {
  kLiteral = 0,  // ordinary characters: what user input must be
  kSpecial,      // control tokens: for text of our own templates
};

// A part of a text. Parts are encoded as one text: only markup is looked for within its own part.
struct TextPiece {
  std::string text;
  Markup markup = Markup::kLiteral;
};

inline constexpr std::size_t kTextBytesMax = 64u << 20;

class Tokenizer {
 public:
  // `vocabulary`'s bytes must outlive the tokenizer.
  // Errors: kCorrupt when a pre-tokenizer pattern does not compile, with the pattern.
  static Result<Tokenizer> Open(const weights::Vocabulary& vocabulary);

  // Ids of the pieces' text, any bytes (invalid UTF-8 and NUL included). No BOS or EOS is added.
  // Errors: kInvalidArgument past kTextBytesMax, or for a byte that the vocabulary cannot write.
  Result<std::vector<std::int32_t>> Encode(std::span<const TextPiece> pieces) const;
  Result<std::vector<std::int32_t>> Encode(std::string_view text, Markup markup) const;

  const weights::Vocabulary& vocabulary() const;

  // The bytes of `ids` joined. Decode(Encode(x)) == x when no normalisation applies.
  std::string Decode(const std::vector<std::int32_t>& ids) const;

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Joins the bytes of streamed tokens and lets only whole UTF-8 characters out.
class StreamDecoder {
 public:
  explicit StreamDecoder(const weights::Vocabulary& vocabulary) : vocabulary_(vocabulary) {}
  // The characters that `id` completes; bytes that can never become one are U+FFFD.
  std::string Feed(std::int32_t id);
  // What is left, an unfinished character as U+FFFD.
  std::string Finish();

 private:
  weights::Vocabulary vocabulary_;
  std::string pending_;
};

}  // namespace sticky::engine

#endif  // STICKY_ENGINE_TOKENIZER_TOKENIZER_H_
