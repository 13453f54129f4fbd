// `run --as-file`: what may be written, what becomes of it in the command's words, and what a
// state must have.

#include "tools/stickyctl/lent_files.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace sticky::stickyctl {
namespace {

using ::sticky::testing::FailsWith;
using ::sticky::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<AsFile> kTwo = {{"a", "s", "x"}, {"ab", "s", "y"}};

TEST(LentFiles, AFileHasAKeyAStateAndAnyNameThatAFileMayHave) {
  const auto files = ParseAsFiles(
      std::vector<std::string>{"model=smollm2/m.gguf", "_1=s.2/a=b {c}\n'", "K=s/\xff.bin"});

  ASSERT_THAT(files, IsOk());
  EXPECT_THAT(files.value(),
              ElementsAre(AsFile{"model", "smollm2", "m.gguf"}, AsFile{"_1", "s.2", "a=b {c}\n'"},
                          AsFile{"K", "s", "\xff.bin"}));
}

TEST(LentFiles, WhatIsNotKeyStateAndFileIsRefused) {
  for (const char* const text :
       {"", "model", "model=", "model=s", "model=s/", "model=/f", "=s/f", "1a=s/f", "a-b=s/f",
        "a b=s/f", "s/f", "a/b=s", "a=s/f/g", "a=-s/f", "a=s t/f", "\xc3\xa9=s/f"}) {
    const std::vector<std::string> texts = {text};
    EXPECT_THAT(ParseAsFiles(texts), FailsWith(Code::kInvalidArgument)) << text;
  }
}

TEST(LentFiles, TwoFilesOfOneVariableAreRefused) {
  const std::vector<std::string> texts = {"a=s/x", "A=s/y"};

  EXPECT_THAT(ParseAsFiles(texts), FailsWith(Code::kInvalidArgument));
}

TEST(LentFiles, EachMustBeUsedByPlaceOrByVariable) {
  const auto used = [](const std::vector<std::string>& words) { return CheckAllUsed(kTwo, words); };

  EXPECT_THAT(used({"cat", "{a}", "--in={ab}"}), IsOk());
  EXPECT_THAT(used({"sh", "-c", "cat {a} $STICKYINVOC_FILE_AB"}), IsOk());
  const Status unused = used({"cat", "{a}", "{abc}", "ab"});
  ASSERT_THAT(unused, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(unused.error().message, HasSubstr("no word of the command has {ab}"));
}

TEST(LentFiles, EveryPlaceIsFilledAndOtherBracesStay) {
  const std::vector<std::string> paths = {"/1", "{a}"};

  EXPECT_EQ(PutPaths("{a}{ab}", kTwo, paths), "/1{a}") << "what was put is not looked at again";
  EXPECT_EQ(PutPaths("x={a},{a}", kTwo, paths), "x=/1,/1");
  EXPECT_EQ(PutPaths("{print} {} {{a}} { a} {a", kTwo, paths), "{print} {} {/1} { a} {a");
  EXPECT_EQ(PutPaths("", kTwo, paths), "");
}

class LentFileOf : public ::testing::Test {
 protected:
  LentFileOf() {
    manifest_.state = "s";
    manifest_.device = "host";
    manifest_.arena_bytes = {100, 7};
    manifest_.assets = {{"b", 0, 0, 100}, {"a\n", 1, 0, 7}, {"empty", 0, 0, 0}};
    manifest_.whole_files = true;
  }
  Result<std::optional<std::uint32_t>> Find(const std::string& name) {
    const std::vector<std::uint8_t> bytes = wire::EncodeManifest(manifest_);
    return FindLentFile({"k", "s", name}, wire::ManifestView::Open(bytes).value());
  }
  wire::Manifest manifest_;
};

TEST_F(LentFileOf, AStateOfFilesIsFoundByName) {
  EXPECT_EQ(Find("b").value(), 0u);
  EXPECT_EQ(Find("a\n").value(), 1u);
  EXPECT_EQ(Find("empty").value(), std::nullopt);
}

TEST_F(LentFileOf, AnUnknownNameListsThoseThereAre) {
  const auto found = Find("c");

  ASSERT_THAT(found, FailsWith(Code::kNotFound));
  EXPECT_THAT(found.error().message, HasSubstr("there are 'a\\n', 'b', 'empty'"));
}

TEST_F(LentFileOf, AModelSaysThatItIsOne) {
  manifest_.whole_files = false;

  const auto found = Find("b");

  ASSERT_THAT(found, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(found.error().message, HasSubstr("source.files"));
}

}  // namespace
}  // namespace sticky::stickyctl
