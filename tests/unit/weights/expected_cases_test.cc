// Every file under cases/fixtures has the verdict that cases/expected.tsv gives it, and the
// message has every word and number of the reason.
//
// W01 (LFS pointer, web page), W02 (truncated), W08, W09, W11, W12, W14, W15, W22, W24, W26, W27.

#include "tests/testing/expected_cases.h"

#include <cctype>
#include <filesystem>
#include <map>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tests/testing/memory_model.h"
#include "weights/load_plan.h"

namespace sticky::weights {
namespace {

using sticky::testing::Case;
using sticky::testing::CasesDir;
using sticky::testing::IsOk;
using sticky::testing::MemoryModel;
using sticky::testing::ReadCases;
using sticky::testing::Words;
using sticky::testing::WordsOfRefusal;
using ::testing::HasSubstr;

class ExpectedCases : public ::testing::TestWithParam<Case> {};

TEST_P(ExpectedCases, HaveTheirVerdict) {
  MemoryModel model;
  model.AddFile(CasesDir() / "fixtures" / GetParam().file);
  const std::vector<std::string> expected = WordsOfRefusal(GetParam().verdict);

  const auto plan = PlanLoad(model.files(), PlanOptions{});

  if (expected.empty()) {
    EXPECT_THAT(plan, IsOk());
    return;
  }
  ASSERT_FALSE(plan.ok()) << "expected: " << GetParam().verdict;
  const std::vector<std::string> words = Words(plan.error().message);
  for (const std::string& word : expected) {
    EXPECT_THAT(words, ::testing::Contains(word))
        << GetParam().verdict << "\nmessage: " << plan.error().message;
  }
  if (!GetParam().verdict.starts_with("refuse if needed")) {
    EXPECT_THAT(plan.error().message,
                HasSubstr(std::filesystem::path(GetParam().file).filename().string()));
  }
}

std::string CaseName(const ::testing::TestParamInfo<Case>& one) {
  std::string name = one.param.file;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, ExpectedCases, ::testing::ValuesIn(ReadCases()), CaseName);

TEST(ExpectedCasesFile, NamesEveryWeightFixtureThatThereIs) {
  std::map<std::string, std::string> verdicts;
  for (const Case& one : ReadCases()) verdicts[one.file] = one.verdict;
  ASSERT_FALSE(verdicts.empty());

  const std::filesystem::path root = CasesDir() / "fixtures";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file() || entry.path().extension() == ".json") continue;
    EXPECT_TRUE(verdicts.contains(std::filesystem::relative(entry.path(), root).string()))
        << entry.path();
  }
}

// No prefix of a file, and no file with one bit changed, does worse than be refused: what counts
// is that the process lives, and with sanitizers that it does nothing undefined.
TEST(ExpectedCasesFile, DamagedFilesAreRefusedOrReadButNeverWorse) {
  std::size_t planned_count = 0;
  std::size_t refused_count = 0;
  const auto plan = [&](const std::string& name, std::string bytes) {
    MemoryModel model;
    model.Add(name, std::move(bytes));
    PlanLoad(model.files(), PlanOptions{}).ok() ? ++planned_count : ++refused_count;
  };
  for (const Case& one : ReadCases()) {
    const std::string bytes = sticky::testing::ReadFile(CasesDir() / "fixtures" / one.file);
    const std::string name = std::filesystem::path(one.file).filename().string();
    for (std::size_t size = 0; size < bytes.size(); ++size) plan(name, bytes.substr(0, size));
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      std::string changed = bytes;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
      plan(name, std::move(changed));
    }
  }

  EXPECT_GT(planned_count, 0u);
  EXPECT_GT(refused_count, planned_count);
}

}  // namespace
}  // namespace sticky::weights
