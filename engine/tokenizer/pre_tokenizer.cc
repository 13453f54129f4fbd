#include "engine/tokenizer/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <pcre2.h>
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>

#include "base/text.h"

namespace sticky::engine {
namespace {

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};

std::string Pcre2Message(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

struct Pattern {
  std::unique_ptr<pcre2_code, FreeCode> code;
  std::unique_ptr<pcre2_match_data, FreeMatch> match;
};

Result<Pattern> Compile(std::string_view text) {
  int error = 0;
  PCRE2_SIZE at = 0;
  Pattern pattern;
  // Texts are short and processes live for a moment: interpreting beats compiling to machine code.
  pattern.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error, &at,
                                   nullptr));
  if (pattern.code == nullptr) {
    return Error{Code::kCorrupt, Format("compile pre-tokenizer pattern '%s': at %zu: %s",
                                        Escape(text).c_str(), at, Pcre2Message(error).c_str())};
  }
  pattern.match.reset(pcre2_match_data_create(1, nullptr));
  return pattern;
}

// Appends the matches of `pattern` in `text` and the gaps between them. An empty match ends a gap,
// but not where another match has just ended: so does the tokenizers library.
Status SplitBy(const Pattern& pattern, std::string_view text,
               std::vector<std::string_view>& pieces) {
  std::size_t done = 0;
  std::size_t from = 0;
  std::optional<std::size_t> matched_to;
  while (from < text.size()) {
    const int count = pcre2_match(pattern.code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), from, 0, pattern.match.get(), nullptr);
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) {
      return Error{Code::kInvalidArgument, "split a text into words: " + Pcre2Message(count)};
    }
    const PCRE2_SIZE* const found = pcre2_get_ovector_pointer(pattern.match.get());
    if (found[1] == found[0] && matched_to == found[1]) {
      from += static_cast<std::size_t>(std::max(Utf8CharacterBytes(text.substr(from)), 1));
      continue;
    }
    if (found[0] > done) pieces.push_back(text.substr(done, found[0] - done));
    if (found[1] > found[0]) pieces.push_back(text.substr(found[0], found[1] - found[0]));
    done = from = found[1];
    matched_to = done;
  }
  if (done < text.size()) pieces.push_back(text.substr(done));
  return Ok{};
}

// Length of the run of valid (or, when !valid, invalid) UTF-8 at the front of `text`.
std::size_t RunLength(std::string_view text, bool valid) {
  std::size_t at = 0;
  while (at < text.size()) {
    const int length = Utf8CharacterBytes(text.substr(at));
    if ((length > 0) != valid) break;
    at += valid ? static_cast<std::size_t>(length) : 1;
  }
  return at;
}

}  // namespace

struct PreTokenizer::Impl {
  std::vector<Pattern> patterns;
};

PreTokenizer::PreTokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::Open(const weights::Vocabulary& vocabulary) {
  auto impl = std::make_unique<Impl>();
  for (std::uint32_t i = 0; i < vocabulary.split_count(); ++i) {
    STICKY_ASSIGN(Pattern pattern, Compile(vocabulary.split_pattern(i)));
    impl->patterns.push_back(std::move(pattern));
  }
  return PreTokenizer(std::move(impl));
}

Result<std::vector<std::string_view>> PreTokenizer::Split(std::string_view text) const {
  std::vector<std::string_view> pieces;
  if (!text.empty()) pieces.push_back(text);
  for (const Pattern& pattern : impl_->patterns) {
    std::vector<std::string_view> finer;
    for (const std::string_view piece : pieces) STICKY_TRY(SplitBy(pattern, piece, finer));
    pieces = std::move(finer);
  }
  return pieces;
}

Result<std::string> NormalizeNfc(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* const nfc = icu::Normalizer2::getNFCInstance(status);
  std::string out;
  icu::StringByteSink<std::string> sink(&out);
  while (!text.empty() && U_SUCCESS(status)) {
    const std::size_t valid = RunLength(text, /*valid=*/true);
    nfc->normalizeUTF8(0, {text.data(), static_cast<std::int32_t>(valid)}, sink, nullptr, status);
    text.remove_prefix(valid);
    const std::size_t invalid = RunLength(text, /*valid=*/false);
    out += text.substr(0, invalid);
    text.remove_prefix(invalid);
  }
  if (U_FAILURE(status)) {
    return Error{Code::kInternal, std::string("normalize a text: ICU: ") + u_errorName(status)};
  }
  return out;
}

}  // namespace sticky::engine
