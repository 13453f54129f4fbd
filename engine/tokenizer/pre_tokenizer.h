// Cuts a text into the pieces that BPE works on, by the model's own patterns.
//
// Thread: one thread at a time.
// Source: PCRE2's pcre2api(3); patterns come from the vocabulary.

#ifndef STICKY_ENGINE_TOKENIZER_PRE_TOKENIZER_H_
#define STICKY_ENGINE_TOKENIZER_PRE_TOKENIZER_H_

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "weights/vocabulary.h"

namespace sticky::engine {

class PreTokenizer {
 public:
  // Errors: kCorrupt when a pattern does not compile, with the pattern.
  static Result<PreTokenizer> Open(const weights::Vocabulary& vocabulary);

  // The pieces of `text`, in order; joined they are `text`. Bytes that are not UTF-8 match no
  // pattern and so stay pieces of their own.
  // Errors: kInvalidArgument when a pattern needs too much work on this text (PCRE2's limits).
  Result<std::vector<std::string_view>> Split(std::string_view text) const;

  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

 private:
  struct Impl;
  explicit PreTokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The text in Unicode's normalization form C; bytes that are not UTF-8 stay as they are.
// Errors: kInternal when ICU fails. Source: Unicode Standard Annex 15, through ICU.
Result<std::string> NormalizeNfc(std::string_view text);

}  // namespace sticky::engine

#endif  // STICKY_ENGINE_TOKENIZER_PRE_TOKENIZER_H_
