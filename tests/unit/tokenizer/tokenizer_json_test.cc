// tokenizer.json is read as its own library means it, whoever wrote it; what is not known is
// refused by name.

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/tokenizer/tokenizer.h"
#include "tests/testing/matchers.h"
#include "weights/vocabulary.h"

namespace sticky::engine {
namespace {

using nlohmann::json;
using sticky::testing::FailsWith;
using sticky::testing::IsOk;

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
