// A compiled vocabulary in a state that somebody else built: what opens is read within its bytes,
// and encodes text to tokens that it has.

#include "tests/fuzz/tokenizer_checks.h"
#include "weights/vocabulary.h"

using namespace sticky;  // NOLINT(google-build-using-namespace): a program of one function

namespace {

void CheckTable(const weights::Vocabulary& vocabulary) {
  const std::uint32_t count = vocabulary.token_count();
  for (std::uint32_t id = 0; id < count; ++id) {
    const auto found = vocabulary.Find(vocabulary.token_bytes(id));
    FUZZ_CHECK(!found || vocabulary.token_bytes(*found) == vocabulary.token_bytes(id));
    static_cast<void>(vocabulary.is_special(id));
    static_cast<void>(vocabulary.is_added(id));
    const auto merge = vocabulary.FindMerge(id, id / 2);
    FUZZ_CHECK(!merge || merge->result < count);
  }
  for (const std::uint32_t id : vocabulary.added_tokens()) FUZZ_CHECK(id < count);
  FUZZ_CHECK(vocabulary.bos().value_or(0) < std::max(count, 1u));
  FUZZ_CHECK(vocabulary.eos().value_or(0) < std::max(count, 1u));
  FUZZ_CHECK(!vocabulary.add_bos() || vocabulary.bos());
  std::string all;
  for (std::uint32_t i = 0; i < vocabulary.split_count(); ++i) all += vocabulary.split_pattern(i);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::vector<std::uint8_t> copy = fuzz::Copy(bytes, size);
  const auto vocabulary = weights::Vocabulary::Open(copy);
  if (!vocabulary.ok()) {
    fuzz::CheckRefusal(vocabulary.error(), {Code::kCorrupt});
    return 0;
  }
  CheckTable(vocabulary.value());
  fuzz::CheckTokenizer(vocabulary.value());
  return 0;
}
