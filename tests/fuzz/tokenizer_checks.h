// What holds of every tokenizer that a vocabulary opens to.
//
// Thread: one thread.

#ifndef STICKY_TESTS_FUZZ_TOKENIZER_CHECKS_H_
#define STICKY_TESTS_FUZZ_TOKENIZER_CHECKS_H_

#include <string>

#include "engine/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzzer.h"

namespace sticky::fuzz {

// Short and of every kind that patterns tell apart: words, digits, marks, spaces, bytes that are
// no text.
inline constexpr std::string_view kSampleText =
    "It's  2,024 words:\n\t \xC3\xA9t\xC3\xA9 \xE4\xBD\xA0\xE5\xA5\xBD "
    "<|im_end|>\xFF\xC3 \xF0\x9F\x98\x80 ";

inline void CheckTokenizer(const weights::Vocabulary& vocabulary) {
  const Result<engine::Tokenizer> tokenizer = engine::Tokenizer::Open(vocabulary);
  if (!tokenizer.ok()) return CheckRefusal(tokenizer.error(), {Code::kCorrupt});
  for (const engine::Markup markup : {engine::Markup::kLiteral, engine::Markup::kSpecial}) {
    const auto ids = tokenizer.value().Encode(kSampleText, markup);
    if (!ids.ok()) {
      CheckRefusal(ids.error(), {Code::kInvalidArgument, Code::kCorrupt});
      continue;
    }
    engine::StreamDecoder decoder(vocabulary);
    for (const std::int32_t id : ids.value()) {
      FUZZ_CHECK(id >= 0 && static_cast<std::uint32_t>(id) < vocabulary.token_count());
      static_cast<void>(decoder.Feed(id));
    }
    static_cast<void>(decoder.Finish());
    static_cast<void>(tokenizer.value().Decode(ids.value()));
  }
}

}  // namespace sticky::fuzz

#endif  // STICKY_TESTS_FUZZ_TOKENIZER_CHECKS_H_
