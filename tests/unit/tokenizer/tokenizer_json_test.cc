// tokenizer.json is read as its own library means it, whoever wrote it; what is not known is
// refused by name.

#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/tokenizer/tokenizer.h"
#include "tests/testing/matchers.h"
#include "weights/vocabulary.h"

namespace sticky::engine {
namespace {

using nlohmann::json;
using sticky::testing::FailsWith;

using Ids = std::vector<std::int32_t>;

// Tokens a, b, c, ab, "a b" (its space as the alphabet writes it), abc and two control tokens.
json Toy() {
  return {
      {"added_tokens",
       {{{"id", 7}, {"content", "<s>"}, {"special", true}},
        {{"id", 8}, {"content", "<e>"}, {"special", true}}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
      {"post_processor", nullptr},
      {"model",
       {{"type", "BPE"},
        {"vocab",
         {{"a", 0}, {"b", 1}, {"c", 2}, {"\u0120", 3}, {"ab", 4}, {"a\u0120", 5}, {"abc", 6}}},
        {"merges", {"a b", "a \u0120"}}}}};
}

struct Opened {
  std::vector<std::uint8_t> table;
  weights::Vocabulary vocabulary;
  Tokenizer tokenizer;

  static Opened From(const json& tokenizer_json, const std::string& config = "") {
    auto table = weights::CompileVocabulary(
        weights::ParseTokenizerJson(tokenizer_json.dump(), config).value());
    const auto vocabulary = weights::Vocabulary::Open(table).value();
    Tokenizer tokenizer = Tokenizer::Open(vocabulary).value();
    return {std::move(table), vocabulary, std::move(tokenizer)};
  }
  Ids Encode(const std::string& text, Markup markup = Markup::kLiteral) const {
    return tokenizer.Encode(text, markup).value();
  }
};

TEST(TokenizerJson, MergesAreReadAsStringsAndAsPairs) {
  json pairs = Toy();
  pairs["model"]["merges"] = json::array({json::array({"a", "b"}), json::array({"a", "\u0120"})});
  for (const json& spelling : {Toy(), pairs}) {
    const Opened opened = Opened::From(spelling);
    EXPECT_EQ(opened.Encode("ab"), Ids({4}));
    EXPECT_EQ(opened.Encode("a b"), Ids({5, 1}));
    EXPECT_EQ(opened.Encode("cab"), Ids({2, 4}));
  }
}

TEST(TokenizerJson, APieceThatIsATokenIsTakenWholeOnlyWhenMergesAreIgnored) {
  json ignoring = Toy();
  ignoring["model"]["ignore_merges"] = true;
  EXPECT_EQ(Opened::From(Toy()).Encode("abc"), Ids({4, 2}));
  EXPECT_EQ(Opened::From(ignoring).Encode("abc"), Ids({6}));
}

TEST(TokenizerJson, ABeginTokenIsAddedOnlyWhenTheFilesSaySo) {
  const auto adds = [](const std::string& config) {
    return Opened::From(Toy(), config).vocabulary.add_bos();
  };
  EXPECT_FALSE(adds(""));
  EXPECT_FALSE(adds(R"({"bos_token": null, "add_bos_token": true})"));
  EXPECT_FALSE(adds(R"({"bos_token": "<s>", "add_bos_token": false})"));
  EXPECT_TRUE(adds(R"({"bos_token": "<s>", "add_bos_token": true})"));
  EXPECT_TRUE(adds(R"({"bos_token": {"content": "<s>"}, "add_bos_token": true})"));
}

TEST(TokenizerJson, MarkupIsFoundOnlyWhereItIsAskedFor) {
  json with_letters = Toy();
  for (const char* letter : {"<", ">", "s"}) {
    with_letters["model"]["vocab"][letter] = 9 + with_letters["model"]["vocab"].size();
  }
  const Opened opened = Opened::From(with_letters);
  EXPECT_EQ(opened.Encode("a<s>b", Markup::kSpecial), Ids({0, 7, 1}));
  EXPECT_EQ(opened.Encode("a<s>b").size(), 5u);
  const TextPiece pieces[] = {{"<s", Markup::kSpecial}, {">", Markup::kLiteral}};
  EXPECT_EQ(opened.tokenizer.Encode(pieces).value().size(), 3u) << "markup across two pieces";
}

TEST(TokenizerJson, WhatIsNotKnownIsRefusedByName) {
  json other = Toy();
  other["model"]["type"] = "Unigram";
  EXPECT_THAT(weights::ParseTokenizerJson(other.dump(), ""), FailsWith(Code::kInvalidArgument));
  json normalizer = Toy();
  normalizer["normalizer"] = {{"type", "Lowercase"}};
  const auto refused = weights::ParseTokenizerJson(normalizer.dump(), "");
  ASSERT_THAT(refused, FailsWith(Code::kInvalidArgument));
  EXPECT_NE(refused.error().message.find("Lowercase"), std::string::npos);
}

struct RefusedPart {
  const char* where;  // a JSON pointer into Toy()
  json value;
  Code code;
  const char* named;  // what the message must name
};

json Split(const char* behaviour, bool invert) {
  return {{"type", "Split"},
          {"pattern", {{"String", "a"}}},
          {"behavior", behaviour},
          {"invert", invert}};
}
json ByteLevel(bool add_prefix_space) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"use_regex", false}};
}
json Sequence(std::vector<json> steps) {
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}
// TemplateProcessing with these tokens before the text.
json Template(const std::vector<const char*>& tokens) {
  json single = json::array();
  for (const char* const token : tokens) single.push_back({{"SpecialToken", {{"id", token}}}});
  single.push_back({{"Sequence", {{"id", "A"}}}});
  return {{"type", "TemplateProcessing"}, {"single", single}};
}
json Added(std::uint32_t id, const char* content) { return {{"id", id}, {"content", content}}; }

TEST(TokenizerJson, PartsThatWouldMeanOtherIdsAreRefusedByName) {
  const RefusedPart parts[] = {
      {"/pre_tokenizer", Sequence({Split("Removed", true), ByteLevel(false)}),
       Code::kInvalidArgument, "'Removed'"},
      {"/pre_tokenizer", Sequence({Split("MergedWithPrevious", false), ByteLevel(false)}),
       Code::kInvalidArgument, "'MergedWithPrevious'"},
      {"/pre_tokenizer", Sequence({Split("MergedWithNext", false), ByteLevel(false)}),
       Code::kInvalidArgument, "'MergedWithNext'"},
      {"/pre_tokenizer", Sequence({Split("Contiguous", false), ByteLevel(false)}),
       Code::kInvalidArgument, "'Contiguous'"},
      {"/pre_tokenizer", Sequence({ByteLevel(false), ByteLevel(false)}), Code::kInvalidArgument,
       "'ByteLevel' after ByteLevel"},
      {"/pre_tokenizer", Sequence({ByteLevel(false), Split("Isolated", false)}),
       Code::kInvalidArgument, "'Split' after ByteLevel"},
      {"/pre_tokenizer", Sequence({Split("Isolated", false), ByteLevel(true)}),
       Code::kInvalidArgument, "add_prefix_space"},
      {"/pre_tokenizer", Sequence(std::vector<json>(65, Split("Isolated", false))),
       Code::kInvalidArgument, "more than 64"},
      {"/pre_tokenizer", Split("Isolated", false), Code::kInvalidArgument, "not byte-level"},
      {"/post_processor", Template({"<s>", "<e>"}), Code::kInvalidArgument, "two tokens before"},
      {"/model/dropout", 0.1, Code::kInvalidArgument, "dropout"},
      {"/model/end_of_word_suffix", "</w>", Code::kInvalidArgument, "end_of_word_suffix"},
      {"/model/continuing_subword_prefix", "##", Code::kInvalidArgument, "subword_prefix"},
      {"/added_tokens/1", Added(8, "<s>"), Code::kCorrupt, "'<s>' has two ids, 7 and 8"},
      {"/added_tokens/1", Added(7, "<t>"), Code::kCorrupt, "7 stands twice, for '<s>' and '<t>'"},
      {"/added_tokens/1", Added(6, "<e>"), Code::kCorrupt, "6 stands twice, for '<e>' and 'abc'"},
      {"/added_tokens/1", Added(8, "abc"), Code::kCorrupt, "'abc' has two ids, 8 and 6"},
      {"/model/vocab/abc", 4, Code::kCorrupt, "4 stands twice, for 'ab' and 'abc'"},
  };
  for (const RefusedPart& part : parts) {
    json changed = Toy();
    changed[json::json_pointer(part.where)] = part.value;
    SCOPED_TRACE(part.where + part.value.dump());
    const auto source = weights::ParseTokenizerJson(changed.dump(), "");
    ASSERT_THAT(source, FailsWith(part.code));
    EXPECT_NE(source.error().message.find(part.named), std::string::npos) << source.error().message;
  }
}

// The reference: tokenizers 0.23.3 gives these pieces for both values of `invert`.
TEST(TokenizerJson, AnIsolatedSplitIsTheSameInverted) {
  json vocab = Toy();
  vocab["model"]["merges"] = json::array({"a b", "b a"});
  vocab["model"]["vocab"]["ba"] = 9;
  EXPECT_EQ(Opened::From(vocab).Encode("baab"), Ids({9, 4}));
  for (const bool invert : {false, true}) {
    vocab["pre_tokenizer"] = Sequence({Split("Isolated", invert), ByteLevel(false)});
    EXPECT_EQ(Opened::From(vocab).Encode("baab"), Ids({1, 0, 0, 1}));
  }
}

TEST(TokenizerJson, ATokenThatStandsTwiceWithOneIdIsOneToken) {
  json twice = Toy();
  twice["added_tokens"].push_back(twice["added_tokens"][0]);
  twice["model"]["vocab"]["<s>"] = 7;
  EXPECT_EQ(Opened::From(twice).Encode("a<s>b", Markup::kSpecial), Ids({0, 7, 1}));
}

// Encodes with a table that somebody damaged: whatever comes, it comes as a value or an error.
void UseTable(const std::vector<std::uint8_t>& table) {
  const auto vocabulary = weights::Vocabulary::Open(table);
  if (!vocabulary.ok()) return;
  const auto tokenizer = Tokenizer::Open(vocabulary.value());
  if (!tokenizer.ok()) return;
  for (const Markup markup : {Markup::kLiteral, Markup::kSpecial}) {
    const auto ids = tokenizer.value().Encode("<s>ab cab a\xff<e>", markup);
    if (ids.ok()) tokenizer.value().Decode(ids.value());
  }
}

constexpr int kDamageCount = 4000;

// One to four bytes of `text` changed, taken out or copied to another place.
template <typename Text>
Text Damaged(Text text, std::mt19937& random) {
  for (unsigned left = 1 + random() % 4; left > 0 && !text.empty(); --left) {
    const auto at = text.begin() + static_cast<std::ptrdiff_t>(random() % text.size());
    const auto other = text[random() % text.size()];
    switch (random() % 4) {
      case 0:
        *at = static_cast<typename Text::value_type>(*at ^ 1 << random() % 8);
        break;
      case 1:
        *at = other;
        break;
      case 2:
        text.erase(at);
        break;
      default:
        text.insert(at, other);
    }
  }
  return text;
}

TEST(TokenizerJson, DamagedTextIsReadOrRefusedButNeverWorse) {
  json whole = Toy();
  whole["pre_tokenizer"] =
      Sequence({{{"type", "Digits"}, {"individual_digits", true}},
                {{"type", "Split"},
                 {"pattern", {{"Regex", R"((?i:'s|'t)|[^\r\n\p{L}]?\p{L}+|\p{N}{1,3}|\s+(?!\S))"}}},
                 {"behavior", "Isolated"},
                 {"invert", false}},
                ByteLevel(false)});
  whole["normalizer"] = {{"type", "NFC"}};
  whole["post_processor"] = Template({"<s>"});
  const std::string text = whole.dump();
  const std::string config = R"({"bos_token": "<s>", "add_bos_token": true})";
  std::mt19937 random(20260);  // NOLINT(cert-msc51-cpp): the same damage on every run
  int read = 0;
  for (int i = 0; i < kDamageCount; ++i) {
    const auto source = weights::ParseTokenizerJson(Damaged(text, random), config);
    if (!source.ok()) {
      ASSERT_TRUE(source.error().code == Code::kCorrupt ||
                  source.error().code == Code::kInvalidArgument);
      ASSERT_FALSE(source.error().message.empty());
      continue;
    }
    ++read;
    UseTable(weights::CompileVocabulary(source.value()));
  }
  EXPECT_GT(read, 0);
  EXPECT_LT(read, kDamageCount);
}

TEST(Vocabulary, ADamagedTableIsOpenedOrRefusedButNeverWorse) {
  json whole = Toy();
  whole["pre_tokenizer"]["use_regex"] = true;
  const std::vector<std::uint8_t> table =
      weights::CompileVocabulary(weights::ParseTokenizerJson(whole.dump(), "").value());
  std::mt19937 random(20261);  // NOLINT(cert-msc51-cpp): the same damage on every run
  for (int i = 0; i < kDamageCount; ++i) {
    std::vector<std::uint8_t> bad = table;
    for (unsigned left = 1 + random() % 4; left > 0; --left) {
      bad[random() % bad.size()] = static_cast<std::uint8_t>(random());
    }
    UseTable(bad);
  }
}

TEST(Vocabulary, FlippedBytesAreRefusedOrHarmless) {
  const std::vector<std::uint8_t> table =
      weights::CompileVocabulary(weights::ParseTokenizerJson(Toy().dump(), "").value());
  for (std::size_t at = 0; at < table.size(); ++at) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::vector<std::uint8_t> bad = table;
      bad[at] = static_cast<std::uint8_t>(bad[at] ^ flip);
      const auto opened = weights::Vocabulary::Open(bad);
      if (!opened.ok()) continue;
      opened.value().Find("ab");
      opened.value().FindMerge(0, 1);
      for (std::uint32_t id = 0; id < opened.value().token_count(); ++id) {
        opened.value().token_bytes(id);
      }
    }
  }
  for (std::size_t size = 0; size < table.size(); ++size) {
    EXPECT_FALSE(weights::Vocabulary::Open(std::span(table).first(size)).ok()) << size;
  }
}

TEST(StreamDecoder, LetsOnlyWholeCharactersOut) {
  weights::VocabularySource source;
  for (const char* bytes : {"\xF0\x9F", "\x98", "\x80", "\xC3", "(", "\xE5"}) {
    source.tokens.push_back({bytes, false, false});
  }
  const auto table = weights::CompileVocabulary(source);
  const auto vocabulary = weights::Vocabulary::Open(table).value();
  StreamDecoder decoder(vocabulary);
  EXPECT_EQ(decoder.Feed(0), "");
  EXPECT_EQ(decoder.Feed(1), "");
  EXPECT_EQ(decoder.Feed(2), "\xF0\x9F\x98\x80");
  EXPECT_EQ(decoder.Feed(3), "");
  EXPECT_EQ(decoder.Feed(4), "\xEF\xBF\xBD(");
  EXPECT_EQ(decoder.Feed(5), "");
  EXPECT_EQ(decoder.Finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.Finish(), "");
}

}  // namespace
}  // namespace sticky::engine
