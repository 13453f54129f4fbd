// Claims are read strictly, verdicts are written the same every time, and a run that was cut off
// goes on from what is whole.

#include "tools/sticky-llm/claims.h"

#include <limits>

#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tests/testing/process.h"
#include "tools/sticky-llm/verdict_file.h"

namespace sticky::llm {
namespace {

using sticky::testing::FailsWith;
using sticky::testing::IsOk;
using sticky::testing::ReadText;
using sticky::testing::TempFolder;
using sticky::testing::WriteText;

TEST(ParseClaim, ReadsFeversFields) {
  const Claim claim =
      ParseClaim(R"({"id": 7, "verifiable": "x", "label": "REFUTES", "claim": "Fire is cold."})")
          .value();
  EXPECT_EQ(claim.id, 7);
  EXPECT_EQ(claim.text, "Fire is cold.");
  EXPECT_EQ(claim.label, 1u);
  EXPECT_FALSE(ParseClaim(R"({"id": 7, "claim": "x"})").value().label.has_value());
}

TEST(ParseClaim, RefusesWhatIsNoClaim) {
  for (const char* line :
       {"", "{", "[]", "7", R"({"id": 7})", R"({"claim": "x"})", R"({"id": "7", "claim": "x"})",
        R"({"id": 7, "claim": ""})", R"({"id": 7, "claim": 8})",
        R"({"id": 7, "claim": "x", "label": "TRUE"})", "{\"id\": 7, \"claim\": \"\xff\"}"}) {
    SCOPED_TRACE(line);
    EXPECT_THAT(ParseClaim(line), FailsWith(Code::kCorrupt));
  }
  using namespace std::string_view_literals;
  EXPECT_THAT(ParseClaim("{\"id\": 7, \"claim\": \"x\"}\0 and more"sv), FailsWith(Code::kCorrupt));
}

TEST(ParseClaim, ALabelOfAnyDepthIsRefusedAndNotWrittenOut) {
  constexpr std::size_t kDepth = 1u << 20;
  const std::string line = R"({"id": 1, "claim": "x", "label": )" + std::string(kDepth, '[') +
                           std::string(kDepth, ']') + "}";

  const auto claim = ParseClaim(line);

  ASSERT_THAT(claim, FailsWith(Code::kCorrupt));
  EXPECT_LT(claim.error().message.size(), 200u);
}

TEST(ParseClaim, AnIdPastSixtyThreeBitsIsRefusedAndNotAnother) {
  EXPECT_EQ(ParseClaim(R"({"id": 9223372036854775807, "claim": "x"})").value().id,
            std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(ParseClaim(R"({"id": -7, "claim": "x"})").value().id, -7);
  EXPECT_THAT(ParseClaim(R"({"id": 9223372036854775808, "claim": "x"})"),
              FailsWith(Code::kCorrupt));
  EXPECT_THAT(ParseClaim(R"({"id": 18446744073709551615, "claim": "x"})"),
              FailsWith(Code::kCorrupt));
}

Verdict Sample(std::int64_t id) {
  Verdict verdict;
  verdict.id = id;
  verdict.claim = "a \"quoted\" claim\n";
  verdict.label = 2;
  verdict.scores = {-1.0000049, -2.5, -0.5};
  return verdict;
}

TEST(FormatVerdict, IsOneLineThatReadsBack) {
  const std::string line = FormatVerdict(Sample(9));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_NE(line.find(R"("SUPPORTS":-1.0,)"), std::string::npos) << line;
  const Verdict verdict = ParseVerdict(line).value();
  EXPECT_EQ(verdict.id, 9);
  EXPECT_EQ(verdict.label, 2u);
  EXPECT_EQ(verdict.best(), 2u);
}

TEST(ParseVerdict, RefusesWhatNoRunWrote) {
  const std::string line = FormatVerdict(Sample(9));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = line;
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return changed.replace(at, from.size(), to);
  };
  for (const std::string& changed :
       {with(R"("verdict":"NOT ENOUGH INFO")", R"("verdict":"REFUTES")"),
        with(R"("REFUTES":-2.5,)", ""), with("-2.5", "\"-2.5\""), with("-2.5", "-2.500001"),
        with(R"({"id":9,)", R"({ "id":9,)"), line + " ", line.substr(0, line.size() - 1)}) {
    EXPECT_THAT(ParseVerdict(changed), FailsWith(Code::kCorrupt)) << changed;
  }
}

TEST(Verdict, OfEqualScoresTheFirstWins) {
  Verdict verdict;
  EXPECT_EQ(verdict.best(), 0u);
}

TEST(VerdictFile, AppearsWholeAtTheEndAndNotBefore) {
  const TempFolder folder;
  VerdictFile file = VerdictFile::Open(folder / "out", "header").value();
  ASSERT_THAT(file.Append("{\"line\": 1}\n"), IsOk());
  EXPECT_EQ(ReadText(folder / "out"), "");

  ASSERT_THAT(file.Finish(), IsOk());

  EXPECT_EQ(ReadText(folder / "out"), "{\"line\": 1}\n");
  EXPECT_EQ(ReadText(folder / "out.partial"), "");
}

TEST(VerdictFile, ResumesBehindTheLastWholeLine) {
  const TempFolder folder;
  const std::string line = FormatVerdict(Sample(1)) + "\n";
  WriteText(folder / "out.partial", "header\n" + line + line.substr(0, 10));

  VerdictFile file = VerdictFile::Open(folder / "out", "header").value();

  ASSERT_EQ(file.earlier().size(), 1u);
  EXPECT_EQ(file.earlier()[0].id, 1);
  ASSERT_THAT(file.Append(FormatVerdict(Sample(2)) + "\n"), IsOk());
  ASSERT_THAT(file.Finish(), IsOk());
  EXPECT_EQ(ReadText(folder / "out"), line + FormatVerdict(Sample(2)) + "\n");
}

TEST(VerdictFile, ADamagedLineIsRefusedByItsNumber) {
  const TempFolder folder;
  WriteText(folder / "out.partial", "header\n" + FormatVerdict(Sample(1)) + "\nnonsense\n");

  const Result<VerdictFile> file = VerdictFile::Open(folder / "out", "header");

  ASSERT_THAT(file, FailsWith(Code::kInvalidArgument));
  EXPECT_NE(file.error().message.find("line 3"), std::string::npos) << file.error().message;
  EXPECT_NE(file.error().message.find("remove the file"), std::string::npos);
}

TEST(VerdictFile, OfAnotherModelIsRefused) {
  const TempFolder folder;
  WriteText(folder / "out.partial", "other header\n");
  EXPECT_THAT(VerdictFile::Open(folder / "out", "header"), FailsWith(Code::kInvalidArgument));
}

TEST(VerdictFile, TwoRunsDoNotMix) {
  const TempFolder folder;
  const Result<VerdictFile> first = VerdictFile::Open(folder / "out", "header");
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT(VerdictFile::Open(folder / "out", "header"), FailsWith(Code::kUnavailable));
}

}  // namespace
}  // namespace sticky::llm
