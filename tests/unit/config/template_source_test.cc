// Where a template says that a state's bytes come from: the three ways to name files, what is
// expected of them, and every mistake at its place.

#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/template.h"
#include "tests/testing/matchers.h"

namespace sticky::config {
namespace {

using ::sticky::testing::FailsWith;
using ::sticky::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

Result<Template> Parse(const std::string& text) {
  return ParseTemplate("name: a\n" + text, "/models", "t.yaml");
}

const std::string kHex64 = std::string(62, '0') + "aB";

TEST(TemplateSource, PathMayBeAListOfCandidates) {
  ::setenv("STICKY_TEST_MODELS", "/big", 1);

  const Result<Template> made =
      Parse("source: {path: [a.gguf, \"${STICKY_TEST_MODELS}/a.gguf\", /c]}\n");

  ASSERT_THAT(made, IsOk());
  EXPECT_EQ(made.value().source.kind, SourceKind::kPath);
  EXPECT_THAT(made.value().source.candidates, ElementsAre("/models/a.gguf", "/big/a.gguf", "/c"));
  EXPECT_THAT(made.value().source.files, IsEmpty());
}

TEST(TemplateSource, PathsAreTheFilesOfOneModel) {
  const Result<Template> made =
      Parse("source:\n  paths:\n    - x/1.safetensors\n    - /y/config.json\n");

  ASSERT_THAT(made, IsOk());
  EXPECT_EQ(made.value().source.kind, SourceKind::kPaths);
  EXPECT_THAT(made.value().source.files,
              ElementsAre(NamedPath{"1.safetensors", "/models/x/1.safetensors"},
                          NamedPath{"config.json", "/y/config.json"}));
}

TEST(TemplateSource, FilesHaveTheirOwnNamesOrThoseTheyAreGiven) {
  const Result<Template> made = Parse(
      "source:\n  files:\n    - a/index.bin\n    - {name: other.bin, path: b/index.bin}\n"
      "    - {path: c.txt}\n");

  ASSERT_THAT(made, IsOk());
  EXPECT_EQ(made.value().source.kind, SourceKind::kFiles);
  EXPECT_THAT(made.value().source.files, ElementsAre(NamedPath{"index.bin", "/models/a/index.bin"},
                                                     NamedPath{"other.bin", "/models/b/index.bin"},
                                                     NamedPath{"c.txt", "/models/c.txt"}));
}

TEST(TemplateSource, ExpectationsAreRead) {
  const Result<Template> one =
      Parse("source: {path: m, expect: {bytes: 1024, sha256: " + kHex64 + "}}\n");
  const Result<Template> several = Parse(
      "source:\n  path: m\n  expect:\n    bytes: 2KiB\n    digest: "
      "'0123456789abcdef0123456789ABCDEF'"
      "\n    sha256:\n      a.safetensors: " +
      kHex64 + "\n      b.safetensors: \"" + std::string(64, '1') + "\"\n");

  ASSERT_THAT(one, IsOk());
  EXPECT_EQ(one.value().source.expected.bytes, 1024u);
  ASSERT_TRUE(one.value().source.expected.sha256);
  EXPECT_EQ(one.value().source.expected.sha256->bytes[31], 0xAB);
  ASSERT_THAT(several, IsOk());
  const Expected& expected = several.value().source.expected;
  EXPECT_EQ(expected.bytes, 2048u);
  EXPECT_EQ(expected.sha256, std::nullopt);
  ASSERT_EQ(expected.sha256_of.size(), 2u);
  EXPECT_EQ(ToHex(expected.sha256_of.at("b.safetensors")), std::string(64, '1'));
  ASSERT_TRUE(expected.digest);
  EXPECT_EQ(ToHex(*expected.digest), "0123456789abcdef0123456789abcdef");
}

std::string ListOf(const std::string& key, std::size_t count) {
  std::string text = "source:\n  " + key + ":\n";
  for (std::size_t i = 0; i < count; ++i) text += "    - f" + std::to_string(i) + "\n";
  return text;
}

TEST(TemplateSource, ListsAreBounded) {
  EXPECT_THAT(Parse(ListOf("path", kSourceCandidatesMax)), IsOk());
  EXPECT_THAT(Parse(ListOf("path", kSourceCandidatesMax + 1)).error().message,
              HasSubstr("'source.path' has 17 entries, at most 16 are taken"));
  EXPECT_THAT(Parse(ListOf("files", kSourceFilesMax)), IsOk());
  EXPECT_THAT(Parse(ListOf("files", kSourceFilesMax + 1)).error().message,
              HasSubstr("'source.files' has 4097 entries, at most 4096 are taken"));
}

struct Mistake {
  const char* title;
  const char* text;   // from the second line on
  const char* place;  // how the message begins
  const char* reason;
};

class TemplateSourceMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(TemplateSourceMistake, IsNamedAtItsPlace) {
  const Result<Template> made = Parse(GetParam().text);

  ASSERT_THAT(made, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(made.error().message, StartsWith(GetParam().place));
  EXPECT_THAT(made.error().message, HasSubstr(GetParam().reason));
}

constexpr Mistake kMistakes[] = {
    {"PathAndFiles", "source:\n  path: a\n  files: [b]\n",
     "t.yaml:4:3: ", "'source.files' beside 'source.path': of path, paths and files one is wanted"},
    {"OnlyExpect", "source: {expect: {bytes: 1}}\n", "t.yaml:2:9: ", "'source.path' is missing"},
    {"NoCandidate", "source: {path: []}\n",
     "t.yaml:2:16: ", "'source.path' wants one path at least, found a list"},
    {"EmptyCandidate", "source: {path: [a, '']}\n",
     "t.yaml:2:20: ", "'source.path[1]' wants a path, found ''"},
    {"CandidateIsAList", "source: {path: [a, [b]]}\n",
     "t.yaml:2:20: ", "'source.path[1]' wants text, found a list"},
    {"NothingInAList", "source:\n  paths:\n    - a\n    -\n",
     "t.yaml:4:5: ", "'source.paths[1]' wants text, found nothing"},
    {"PathsAreText", "source: {paths: a}\n",
     "t.yaml:2:17: ", "'source.paths' wants a list, found 'a'"},
    {"NoPaths", "source: {paths: []}\n", "t.yaml:2:17: ", "wants one file at least"},
    {"PathsWithNames", "source: {paths: [{name: a, path: b}]}\n",
     "t.yaml:2:18: ", "'source.paths[0]' wants text, found a mapping"},
    {"PathsOfOneName", "source:\n  paths:\n    - a/m\n    - b/m\n",
     "t.yaml:5:7: ", "two files are called 'm'"},
    {"FilesOfOneName", "source:\n  files:\n    - a/m\n    - {name: m, path: c}\n",
     "t.yaml:5:7: ", "each needs a name of its own: {name: ..., path: ...}"},
    {"FileWithoutAPath", "source:\n  files:\n    - {name: m}\n",
     "t.yaml:4:7: ", "'path' is missing"},
    {"FileNameIsAPath", "source:\n  files:\n    - {name: a/b, path: c}\n",
     "t.yaml:4:14: ", "'source.files[0].name' wants a plain file name"},
    {"FileNameIsDots", "source:\n  files:\n    - {name: .., path: c}\n",
     "t.yaml:4:14: ", "'source.files[0].name' wants a plain file name"},
    {"FileIsARoot", "source: {files: [/]}\n", "t.yaml:2:18: ", "wants the path of a file"},
    {"UnknownFileKey", "source:\n  files:\n    - {nam: m, path: c}\n",
     "t.yaml:4:8: ", "unknown key 'source.files[0].nam'; did you mean 'name'?"},
    {"FilesInHugePages", "source: {files: [a]}\nmemory: {huge_pages: true}\n",
     "t.yaml:3:22: ", "would round the sizes of 'source.files'"},
    {"FilesWithADtype", "source: {files: [a]}\ndtype: bf16\n",
     "t.yaml:3:8: ", "'source.files' are kept as they are"},
    {"BytesAreNoSize", "source: {path: a, expect: {bytes: many}}\n",
     "t.yaml:2:35: ", "'source.expect.bytes' wants a size such as 8GiB, found 'many'"},
    {"ShortSha256", "source: {path: a, expect: {sha256: abc}}\n",
     "t.yaml:2:36: ", "'source.expect.sha256' wants 64 hexadecimal digits, found 'abc'"},
    {"ShortSha256OfAFile", "source:\n  path: a\n  expect:\n    sha256:\n      b: abc\n",
     "t.yaml:6:10: ", "'source.expect.sha256.b' wants 64 hexadecimal digits"},
    {"Sha256OfAPath", "source:\n  path: a\n  expect:\n    sha256:\n      b/c: abc\n",
     "t.yaml:6:7: ", "'b/c' is not a plain file name"},
    {"ShortDigest", "source: {path: a, expect: {digest: abc}}\n",
     "t.yaml:2:36: ", "'source.expect.digest' wants 32 hexadecimal digits"},
    {"UnknownExpectation", "source: {path: a, expect: {sha265: abc}}\n",
     "t.yaml:2:28: ", "did you mean 'sha256'?"},
};

INSTANTIATE_TEST_SUITE_P(Each, TemplateSourceMistake, ::testing::ValuesIn(kMistakes),
                         [](const auto& mistake) { return mistake.param.title; });

}  // namespace
}  // namespace sticky::config
