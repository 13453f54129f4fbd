// Options of stickyctl: what is taken, what is refused, and that a refusal says what would be
// right.

#include "tools/stickyctl/options.h"

#include <array>
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

constexpr std::array kSpecs = {
    OptionSpec{"json", ValueKind::kNone}, OptionSpec{"state", ValueKind::kRequired},
    OptionSpec{"wait", ValueKind::kOptional}, OptionSpec{"help", ValueKind::kNone},
    OptionSpec{"as-file", ValueKind::kRepeated}};

Result<Options> Parse(const std::vector<std::string>& words, std::size_t operand_count = 1) {
  return Options::Parse(words, {kSpecs, operand_count, "NAME"});
}
Result<Options> ParseRun(const std::vector<std::string>& words) {
  return Options::Parse(words, {kSpecs, 0, "COMMAND", /*command_follows=*/true});
}

TEST(Options, StandInAnyOrderAroundOperands) {
  const Result<Options> options = Parse({"--json", "smol", "--state", "x", "--wait=3"});

  ASSERT_THAT(options, IsOk());
  EXPECT_TRUE(options.value().Has("json"));
  EXPECT_EQ(options.value().Value("state"), "x");
  EXPECT_EQ(options.value().Value("wait"), "3");
  EXPECT_THAT(options.value().operands(), ElementsAre("smol"));
}

TEST(Options, AnOptionalValueNeverEatsTheNextWord) {
  const Result<Options> options = Parse({"--wait", "smol"});

  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options.value().WaitMs(600'000).value(), 600'000U);
  EXPECT_THAT(options.value().operands(), ElementsAre("smol"));
}

TEST(Options, ARepeatedOneKeepsEveryValueInOrder) {
  const Result<Options> options = Parse({"--as-file", "b=2", "smol", "--as-file=a=1"});

  ASSERT_THAT(options, IsOk());
  EXPECT_THAT(options.value().Values("as-file"), ElementsAre("b=2", "a=1"));
  EXPECT_THAT(options.value().Values("state"), ElementsAre());
  EXPECT_THAT(Parse({"smol", "--as-file"}), FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(Parse({"smol", "--state=a", "--state=b"}), FailsWith(Code::kInvalidArgument));
}

TEST(Options, AfterTwoDashesEverythingIsAnOperand) {
  const Result<Options> options = Parse({"--", "--json"});

  ASSERT_THAT(options, IsOk());
  EXPECT_FALSE(options.value().Has("json"));
  EXPECT_THAT(options.value().operands(), ElementsAre("--json"));
}

TEST(Options, ACommandKeepsItsOwnOptions) {
  const Result<Options> dashed = ParseRun({"--state", "x", "--", "prog", "--json", "--", "-x"});
  const Result<Options> bare = ParseRun({"--state=x", "prog", "--json"});

  ASSERT_THAT(dashed, IsOk());
  EXPECT_FALSE(dashed.value().Has("json"));
  EXPECT_THAT(dashed.value().command(), ElementsAre("prog", "--json", "--", "-x"));
  ASSERT_THAT(bare, IsOk());
  EXPECT_THAT(bare.value().command(), ElementsAre("prog", "--json"));
}

TEST(Options, HelpAsksForNothingElse) {
  EXPECT_THAT(Parse({"--help"}), IsOk());
  EXPECT_THAT(ParseRun({"--help"}), IsOk());
}

TEST(Options, MistakesAreNamed) {
  const auto reason = [](const Result<Options>& options) {
    EXPECT_THAT(options, FailsWith(Code::kInvalidArgument));
    return options.ok() ? std::string() : options.error().message;
  };

  EXPECT_THAT(reason(Parse({"--jsn", "a"})), HasSubstr("did you mean '--json'?"));
  EXPECT_THAT(reason(Parse({"--quantum", "a"})), HasSubstr("unknown option '--quantum'"));
  EXPECT_THAT(reason(Parse({"-j", "a"})), HasSubstr("long names"));
  EXPECT_THAT(reason(Parse({})), HasSubstr("NAME is missing"));
  EXPECT_THAT(reason(Parse({"a", "b"})), HasSubstr("'b' is one word too many"));
  EXPECT_THAT(reason(Parse({"a", "--state"})), HasSubstr("'--state' wants a value"));
  EXPECT_THAT(reason(Parse({"a", "--json=1"})), HasSubstr("'--json' takes no value"));
  EXPECT_THAT(reason(Parse({"a", "--json", "--json"})), HasSubstr("given twice"));
  EXPECT_THAT(reason(ParseRun({"--state", "x"})), HasSubstr("COMMAND is missing"));
  EXPECT_THAT(reason(ParseRun({"--state", "x", "--"})), HasSubstr("COMMAND is missing"));
  EXPECT_THAT(reason(Parse({"--\x1b[2J"})), ::testing::Not(HasSubstr("\x1b")));
}

TEST(Options, TheLastOperandMayBeMissingWhereTheGrammarSaysSo) {
  const Grammar grammar = {kSpecs, 1, "NAME", /*command_follows=*/false, /*last_is_optional=*/true};

  EXPECT_TRUE(Options::Parse({}, grammar).value().operands().empty());
  const std::vector<std::string> one = {"smol"};
  EXPECT_THAT(Options::Parse(one, grammar).value().operands(), ElementsAre("smol"));
  const std::vector<std::string> two = {"smol", "b"};
  EXPECT_THAT(Options::Parse(two, grammar), FailsWith(Code::kInvalidArgument));
}

TEST(Options, NumbersAreWholeAndNotTooLong) {
  const auto number = [](const std::string& text) {
    return Parse({"a", "--state", text}).value().Number("state");
  };

  EXPECT_EQ(Parse({"a"}).value().Number("state").value(), 0U);
  EXPECT_EQ(number("17").value(), 17U);
  EXPECT_EQ(number("999999999999999999").value(), 999'999'999'999'999'999U);
  for (const char* text : {"", "-1", "1.5", "0x1", "1 ", "9999999999999999999"}) {
    EXPECT_THAT(number(text), FailsWith(Code::kInvalidArgument)) << text;
  }
}

TEST(Options, WaitIsSecondsUpToADay) {
  const auto wait = [](const std::string& word) { return Parse({word, "a"}).value().WaitMs(7); };

  EXPECT_EQ(Parse({"a"}).value().WaitMs(7).value(), 0U);
  EXPECT_THAT(wait("--wait=0"), FailsWith(Code::kInvalidArgument)) << "that is not to wait";
  EXPECT_EQ(wait("--wait=0.25").value(), 250U);
  EXPECT_EQ(wait("--wait=86400").value(), 86'400'000U);
  for (const char* word : {"--wait=", "--wait=-1", "--wait=1s", "--wait=86401", "--wait=1e3",
                           "--wait=nan", "--wait=1.2.3", "--wait=."}) {
    EXPECT_THAT(wait(word), FailsWith(Code::kInvalidArgument)) << word;
  }
}

}  // namespace
}  // namespace sticky::stickyctl
