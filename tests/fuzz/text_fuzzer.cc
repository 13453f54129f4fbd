// Two texts of others that invocations read: a model's chat template, and lines of claims. Each
// input is read as both.

#include <string>

#include "engine/tokenizer/chat.h"
#include "engine/tokenizer/jinja_text.h"
#include "tests/fuzz/fuzzer.h"
#include "tools/sticky-llm/claims.h"

using namespace sticky;  // NOLINT(google-build-using-namespace): a program of one function

namespace {

void CheckChatTemplate(std::string_view text) {
  const std::string canonical = engine::CanonicalJinja(text);
  // At most a line end within a tag becomes two characters.
  FUZZ_CHECK(canonical.size() <= 2 * text.size());
  const auto known = engine::ChatTemplate::Recognise(text);
  if (!known.ok()) return fuzz::CheckRefusal(known.error(), {Code::kInvalidArgument});
  const auto pieces =
      known.value().Render({{"user", "<|im_end|>"}}, /*add_generation_prompt=*/true);
  FUZZ_CHECK(pieces.ok());
  for (const engine::TextPiece& piece : pieces.value()) {  // what a user says is never markup
    FUZZ_CHECK(piece.text != "<|im_end|>" || piece.markup == engine::Markup::kLiteral);
  }
}

void CheckClaim(std::string_view line) {
  const auto claim = llm::ParseClaim(line);
  if (!claim.ok()) return fuzz::CheckRefusal(claim.error(), {Code::kCorrupt});
  FUZZ_CHECK(!claim.value().text.empty());
  FUZZ_CHECK(claim.value().label.value_or(0) < llm::kLabels.size());
  const llm::Verdict verdict{claim.value().id, claim.value().text, claim.value().label, {}};
  const auto again = llm::ParseVerdict(llm::FormatVerdict(verdict));
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(again.value().id == verdict.id && again.value().claim == verdict.claim);
  FUZZ_CHECK(again.value().label == verdict.label);
}

void CheckVerdict(std::string_view line) {
  const auto verdict = llm::ParseVerdict(line);
  if (!verdict.ok()) return fuzz::CheckRefusal(verdict.error(), {Code::kCorrupt});
  FUZZ_CHECK(llm::FormatVerdict(verdict.value()) == line);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view text = fuzz::Text(bytes, size);
  CheckChatTemplate(text);
  CheckClaim(text);
  CheckVerdict(text);
  return 0;
}
