// What `stickyctl build` asks for: the policy of a template without a source, and a recipe that is
// the same only when the same would be built.

#include "tools/client/prepare_build.h"

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/temp_dir.h"

namespace sticky::client {
namespace {

using ::testing::HasSubstr;

BuildWish Wish() { return {.name = "table", .command = {"./make", "a", "b c"}}; }

class PrepareBuildTest : public ::testing::Test {
 protected:
  Outcome<wire::BuildRequest> Prepare(BuildWish wish, const std::string& yaml) {
    wish.template_path = folder_.Write("t.yaml", yaml).string();
    return PrepareBuild(wish);
  }
  testing::TempDir folder_;
};

TEST_F(PrepareBuildTest, ATemplateGivesThePolicyAndMayGiveTheName) {
  BuildWish wish = Wish();
  wish.name.reset();

  Outcome<wire::BuildRequest> request =
      Prepare(wish, "name: table\nlifetime: {idle: 1min}\npriority: -3\nlabels: {team: blue}\n");

  ASSERT_TRUE(request.ok()) << request.failed().error.message;
  EXPECT_EQ(request.value().state, "table");
  EXPECT_EQ(request.value().policy.idle_ms, 60'000u);
  EXPECT_EQ(request.value().policy.priority, -3);
  EXPECT_EQ(request.value().policy.labels.at(0).value, "blue");
  EXPECT_EQ(request.value().builder, "./make a b c");
}

TEST_F(PrepareBuildTest, ATemplateThatSaysWhatABuilderDecidesIsRefusedByName) {
  for (const char* const key : {"source: {path: m}", "dtype: f32", "device: host", "build: manual",
                                "memory: {prefault: true}"}) {
    const std::string line = key;
    const Outcome<wire::BuildRequest> request = Prepare(Wish(), "name: table\n" + line + "\n");
    ASSERT_FALSE(request.ok()) << key;
    EXPECT_EQ(request.failed().exit_code(), kExitBadInput);
    const std::string name = line.substr(0, line.find(':'));
    EXPECT_THAT(request.failed().error.message,
                HasSubstr("t.yaml:2:1: '" + name + "' is for `stickyctl load`"));
  }
}

TEST_F(PrepareBuildTest, ATemplateOfAnotherStateIsRefused) {
  const Outcome<wire::BuildRequest> request = Prepare(Wish(), "name: other\n");

  ASSERT_FALSE(request.ok());
  EXPECT_EQ(request.failed().exit_code(), kExitBadInput);
  EXPECT_THAT(request.failed().error.message, HasSubstr("is for a state called 'other'"));
}

TEST_F(PrepareBuildTest, NamesAreCheckedAndOneIsWanted) {
  BuildWish none = Wish();
  none.name.reset();
  BuildWish odd = Wish();
  odd.name = "\x1b[31m";
  BuildWish odd_base = Wish();
  odd_base.base = "a/b";
  for (const BuildWish& wish : {none, odd, odd_base}) {
    const Outcome<wire::BuildRequest> request = PrepareBuild(wish);
    ASSERT_FALSE(request.ok());
    EXPECT_EQ(request.failed().exit_code(), kExitUsage);
    EXPECT_THAT(request.failed().error.message, ::testing::Not(HasSubstr("\x1b")));
  }
}

TEST(RecipeDigest, DiffersWheneverSomethingElseWouldBeBuilt) {
  const Digest content{{1}};
  BuildWish based = Wish();
  based.base = "roots";
  BuildWish other_words = Wish();
  other_words.command = {"./make", "a b", "c"};  // the same text
  const std::set<std::string> digests = {
      ToHex(RecipeDigest("table", Wish(), {})),      ToHex(RecipeDigest("other", Wish(), {})),
      ToHex(RecipeDigest("table", based, content)),  ToHex(RecipeDigest("table", based, Digest{})),
      ToHex(RecipeDigest("table", other_words, {})),
  };

  EXPECT_EQ(digests.size(), 5u);
  EXPECT_EQ(RecipeDigest("table", based, content), RecipeDigest("table", based, content));
}

TEST(CommandText, OfALongCommandIsCut) {
  EXPECT_EQ(CommandText({"a", std::string(5000, 'x')}).size(), 1003u);
}

}  // namespace
}  // namespace sticky::client
