// A pattern of tokenizer.json splits a text as Oniguruma, for which it was written, would; what is
// not known to mean the same in PCRE2 is refused by name.

#include "weights/split_pattern.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/text.h"
#include "engine/tokenizer/pre_tokenizer.h"
#include "tests/testing/matchers.h"
#include "weights/vocabulary.h"

namespace sticky::engine {
namespace {

using sticky::testing::FailsWith;
using sticky::testing::IsOk;

using Pieces = std::vector<std::string>;

Result<Pieces> SplitWith(const std::string& pcre2, const std::string& text) {
  weights::VocabularySource source;
  source.tokens.push_back({"a"});
  source.splits.push_back({pcre2});
  const auto table = weights::CompileVocabulary(source);
  STICKY_ASSIGN(const auto vocabulary, weights::Vocabulary::Open(table));
  STICKY_ASSIGN(const PreTokenizer splitter, PreTokenizer::Open(vocabulary));
  STICKY_ASSIGN(const auto pieces, splitter.Split(text));
  return Pieces(pieces.begin(), pieces.end());
}

struct ReferenceSplit {
  const char* pattern;
  std::string text;
  Pieces pieces;
};
// Source: Split(Regex(pattern), "isolated").pre_tokenize_str(text) of Hugging Face's tokenizers
// 0.23.3, which has Oniguruma within.
const ReferenceSplit kReferenceSplits[] = {
    {R"(a|bc)", "xabcd", {"x", "a", "bc", "d"}},
    {R"((ab)+)", "xababy", {"x", "abab", "y"}},
    {R"((?:ab)*?c)", "ababc", {"ababc"}},
    {R"((?>a*)b)", "aabaa", {"aab", "aa"}},
    {R"(a(?=b))", "aab ab", {"a", "a", "b ", "a", "b"}},
    {R"(a(?!b))", "aab ab", {"a", "ab ab"}},
    {R"(a{2})", "aaaaa", {"aa", "aa", "a"}},
    {R"(a{2,})", "baaaa", {"b", "aaaa"}},
    {R"(a{1,2}?b)", "aaab", {"a", "aab"}},
    {R"(a++b)", "aaab", {"aaab"}},
    {R"(a?+b)", "aab", {"a", "ab"}},
    {R"(x*+)", "axxb", {"a", "xx", "b"}},
    {R"(.+)", "ab\ncd", {"ab", "\n", "cd"}},
    {R"([^a-c\-]+)", "abx-yc", {"ab", "x", "-", "y", "c"}},
    {R"([-a])", "b-a", {"b", "-", "a"}},
    {R"([a-])", "b-a", {"b", "-", "a"}},
    {R"([.|()$^])", "a^b|c", {"a", "^", "b", "|", "c"}},
    {R"([\]\[])", "a[b]", {"a", "[", "b", "]"}},
    {R"(\.\-\[\'\<)", "x.-['<y", {"x", ".-['<", "y"}},
    {R"(\x41\x{e9}\u4e2d)", "xA\xc3\xa9\xe4\xb8\xady", {"x", "A\xc3\xa9\xe4\xb8\xad", "y"}},
    {R"([\u4e00-\u9fff]+)",
     "ab\xe4\xb8\xad\xe6\x96\x87"
     "c",
     {"ab", "\xe4\xb8\xad\xe6\x96\x87", "c"}},
    {R"([一-龥]+)",
     "ab\xe4\xb8\xad\xe6\x96\x87"
     "c",
     {"ab", "\xe4\xb8\xad\xe6\x96\x87", "c"}},
    {R"([\t\n\r\f]+)", "a\t\n b\f", {"a", "\t\n", " b", "\f"}},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d))",
     "it'S we'LL y'\xc5\xbf 'k",
     {"it", "'S", " we", "'LL", " y", "'\xc5\xbf", " 'k"}},
    {R"((?i:[sk])+)",
     "aSskK\xc5\xbf\xe2\x84\xaa"
     "b",
     {"a", "SskK\xc5\xbf\xe2\x84\xaa", "b"}},
    {R"((?i:a)b)", "AbaBab", {"Ab", "aB", "ab"}},
    {R"((?i:[^a-c])+)", "ABxYc", {"AB", "xY", "c"}},
    {R"(\p{Lu}\p{Ll}*)", "aBcD\xc3\xa9", {"a", "Bc", "D\xc3\xa9"}},
    {R"(\p{^L}+)", "a1 b", {"a", "1 ", "b"}},
    {R"(\P{N}+)", "a1 2b", {"a", "1", " ", "2", "b"}},
    {R"([^\s\p{L}\p{N}]+)", "a!? b", {"a", "!?", " b"}},
    {R"(\s+(?!\S)|\s+)", "a  b \xc2\x85 ", {"a", " ", " ", "b", " \xc2\x85 "}},
    {R"(\d{1,3})", "12345\xd9\xa3", {"123", "45\xd9\xa3"}},
    {R"([\D]+)", "ab1", {"ab", "1"}},
    {R"(a*)", "baac", {"b", "aa", "c"}},
    {R"(a||b)", "ab", {"a", "b"}},
    {R"((?=b))", "abb", {"a", "b", "b"}},
    {R"()", "ab", {"a", "b"}},
    // GPT-2
    {R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re",
     "It'S  HTTPServer's 1234 caf\xc3\xa9\xcc\x81,\xc2\xa0!?\x0d\n\n "
     "\xe1\xa0\x8e\xe4\xb8\xad\xe6\x96\x87 x",
     {"It", "'", "S", " ", " HTTPServer", "'s", " 1234", " caf\xc3\xa9", "\xcc\x81,", "\xc2\xa0",
      "!?", "\x0d\n\n", " \xe1\xa0\x8e", "\xe4\xb8\xad\xe6\x96\x87", " x"}},
    // Llama 3
    {R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)re"
     R"re( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
     "It'S  HTTPServer's 1234 caf\xc3\xa9\xcc\x81,\xc2\xa0!?\x0d\n\n "
     "\xe1\xa0\x8e\xe4\xb8\xad\xe6\x96\x87 x",
     {"It", "'S", " ", " HTTPServer", "'s", " ", "123", "4", " caf\xc3\xa9", "\xcc\x81,",
      "\xc2\xa0", "!?\x0d\n\n", " \xe1\xa0\x8e", "\xe4\xb8\xad\xe6\x96\x87", " x"}},
    // Qwen 2
    {R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)re"
     R"re( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
     "It'S  HTTPServer's 1234 caf\xc3\xa9\xcc\x81,\xc2\xa0!?\x0d\n\n "
     "\xe1\xa0\x8e\xe4\xb8\xad\xe6\x96\x87 x",
     {"It", "'S", " ", " HTTPServer", "'s", " ", "1", "2", "3", "4", " caf\xc3\xa9", "\xcc\x81,",
      "\xc2\xa0", "!?\x0d\n\n", " \xe1\xa0\x8e", "\xe4\xb8\xad\xe6\x96\x87", " x"}},
    // Mistral Nemo
    {R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)re"
     R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)re"
     R"re(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
     "It'S  HTTPServer's 1234 caf\xc3\xa9\xcc\x81,\xc2\xa0!?\x0d\n\n "
     "\xe1\xa0\x8e\xe4\xb8\xad\xe6\x96\x87 x",
     {"It", "'S", " ", " HTTPServer", "'s", " ", "1", "2", "3", "4", " caf\xc3\xa9\xcc\x81", ",",
      "\xc2\xa0", "!?\x0d\n\n", " \xe1\xa0\x8e", "\xe4\xb8\xad\xe6\x96\x87", " x"}},
};

TEST(SplitPattern, WhatBothLibrariesReadAlikeSplitsAsTheReferenceDoes) {
  for (const ReferenceSplit& row : kReferenceSplits) {
    SCOPED_TRACE(row.pattern);
    const auto pattern = weights::SplitPattern(row.pattern);
    ASSERT_THAT(pattern, IsOk());
    const auto pieces = SplitWith(pattern.value(), row.text);
    ASSERT_THAT(pieces, IsOk());
    EXPECT_EQ(pieces.value(), row.pieces);
  }
}

struct RefusedPattern {
  const char* pattern;
  const char* named;  // what the message must name
};
// Each means something else in PCRE2 (tried over all of Unicode with both), or nothing at all, or
// is not known to be the same.
constexpr RefusedPattern kRefusedPatterns[] = {
    {R"([[a][b]])", "set within a set"},
    {R"( ?[^(\s|[.,!?])]+)", "set within a set"},  // Bloom's
    {R"([a-z&&[^b]])", "intersection of sets ('&&')"},
    {R"([&&a])", "'&&'"},
    {R"([[:alpha:]])", "POSIX bracket"},
    {R"([[:punct:]])", "POSIX bracket"},
    {R"([]a])", "empty set"},
    {R"([a)", "set that does not end"},
    {R"([\d-a])", "range"},
    {R"([a-\d])", "range"},
    {R"([b-a])", "range"},
    {R"([a-b-c])", "'-' within a set"},
    {R"(\h)", R"('\\h')"},  // a hexadecimal digit; to PCRE2 a space
    {R"([\h])", R"('\\h')"},
    {R"(\H)", R"('\\H')"},
    {R"(\b)", R"('\\b')"},  // words have marks in Oniguruma
    {R"([\b])", R"('\\b')"},
    {R"(\w+)", R"('\\w')"},
    {R"([^\W])", R"('\\W')"},
    {R"(\v)", R"('\\v')"},
    {R"(\R)", R"('\\R')"},
    {R"(\Qa\E)", R"('\\Q')"},
    {R"(\K)", R"('\\K')"},
    {R"((a)\1)", R"('\\1')"},
    {R"(\0)", R"('\\0')"},
    {R"(a\)", R"('\' at the end)"},
    {R"(\xe9)", "code point"},
    {R"(\x{110000})", "code point"},
    {R"(\ud800)", "code point"},
    {R"(\x{61 62})", "code point"},
    {R"(\pL)", "property"},
    {R"(\p{Han})", "'Han'"},
    {R"(\p{Alpha})", "'Alpha'"},
    {R"((?i:\p{Lu}))", "property without regard to case"},
    {R"((?i:é))", "past ASCII"},
    {R"((?i:[ß]))", "past ASCII"},
    {R"((?i:ss))", "'ss'"},
    {R"((?i:F(?:i)))", "'fi'"},
    {R"(^a)", "'^'"},
    {R"(\s++$)", "'$'"},
    {R"(a(?i)b|c)", "group '(?i)"},
    {R"((?m:a.b))", "group '(?m:"},
    {R"((?<=a+)b)", "group '(?<="},
    {R"((?<n>a))", "group '(?<n"},
    {R"((*UTF)a)", "'(*'"},
    {R"((?:a)", "group that does not end"},
    {R"(a))", "')' without a group"},
    {R"(a{,2})", "'{'"},
    {R"(x{)", "'{'"},
    {R"(a{3,2})", "'{'"},
    {R"(a{1001})", "'{'"},
    {R"(a{2}?)", "'{n}?'"},
    {R"(\p{N}{1,3}+)", "'{n,m}+'"},
    {R"(a**)", "quantifier '*'"},
    {R"(+)", "quantifier '+'"},
    {R"((?!a)*b)", "quantifier '*'"},
};

TEST(SplitPattern, WhatPcre2WouldReadOtherwiseIsRefusedByName) {
  for (const RefusedPattern& row : kRefusedPatterns) {
    SCOPED_TRACE(row.pattern);
    const auto pattern = weights::SplitPattern(row.pattern);
    ASSERT_THAT(pattern, FailsWith(Code::kInvalidArgument));
    EXPECT_NE(pattern.error().message.find(row.named), std::string::npos)
        << pattern.error().message;
    EXPECT_NE(pattern.error().message.find("not supported"), std::string::npos);
  }
}

TEST(SplitPattern, GroupsHaveAMaximalDepth) {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '(') + "a" +
           std::string(static_cast<std::size_t>(depth), ')');
  };
  EXPECT_THAT(weights::SplitPattern(nested(64)), IsOk());
  EXPECT_THAT(weights::SplitPattern(nested(65)), FailsWith(Code::kInvalidArgument));
}

std::string Utf8(unsigned c) {
  if (c < 0x80) return {static_cast<char>(c)};
  std::string text;
  for (; c >= (text.size() == 1 ? 0x20u : text.size() == 2 ? 0x10u : 0x40u); c >>= 6) {
    text.insert(text.begin(), static_cast<char>(0x80 | (c & 0x3F)));
  }
  const unsigned lead = text.size() == 1 ? 0xC0 : text.size() == 2 ? 0xE0 : 0xF0;
  text.insert(text.begin(), static_cast<char>(lead | c));
  return text;
}

// PCRE2's own \s has U+180E besides, whatever its options.
TEST(SplitPattern, SpaceIsUnicodesWhiteSpaceInSetsAndOutside) {
  std::string all;  // every character, each between two letters
  Pieces spaces;
  for (unsigned c = 1; c < 0x11000; ++c) {
    if (c == 'x' || (c >= 0xD800 && c < 0xE000)) continue;
    all += "x" + Utf8(c);
    const bool is_space = (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 ||
                          c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
                          c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
    if (is_space) spaces.push_back(Utf8(c));
  }
  ASSERT_TRUE(IsUtf8(all));
  for (const char* const space : {R"(\s)", R"([\s])", R"([^\S])"}) {
    SCOPED_TRACE(space);
    Pieces found = SplitWith(weights::SplitPattern(space).value(), all).value();
    std::erase_if(found, [](const std::string& piece) { return piece.front() == 'x'; });
    EXPECT_EQ(found, spaces);
  }
}

TEST(SplitPattern, ALiteralStandsForItselfWhateverIsInIt) {
  const std::string literals[] = {R"(x\E.)",   R"(\Q[a]\E)",   "a-b #{2}",
                                  "(?i)^$|*+", "\xE4\xB8\xAD", std::string("\0n", 2)};
  for (const std::string& literal : literals) {
    SCOPED_TRACE(literal);
    const auto pieces = SplitWith(weights::LiteralPattern(literal), "ax" + literal + "y");
    ASSERT_THAT(pieces, IsOk());
    EXPECT_EQ(pieces.value(), (Pieces{"ax", literal, "y"}));
  }
}

}  // namespace
}  // namespace sticky::engine
