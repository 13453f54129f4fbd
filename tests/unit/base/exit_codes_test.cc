// Exit codes: the table in docs/exit-codes.md is what the programs do, cell for cell.

#include "base/exit_codes.h"

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace sticky {
namespace {

constexpr Code kCodes[] = {Code::kInvalidArgument, Code::kNotFound,         Code::kUnavailable,
                           Code::kOutOfMemory,     Code::kPermissionDenied, Code::kCorrupt,
                           Code::kDeviceLost,      Code::kInternal};

using Row = std::vector<std::string>;

Row Cells(const std::string& line) {
  Row cells;
  std::istringstream parts(line.substr(1));
  for (std::string cell; std::getline(parts, cell, '|');) {
    const std::size_t begin = cell.find_first_not_of(' ');
    const std::size_t end = cell.find_last_not_of(' ');
    cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
  }
  return cells;
}

// The rows of every table in the document, by their first cell.
std::map<std::string, Row> Rows() {
  std::ifstream file(STICKY_SOURCE_DIR "/docs/exit-codes.md");
  EXPECT_TRUE(file.is_open());
  std::map<std::string, Row> rows;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with('|') || line.starts_with("|--")) continue;
    Row cells = Cells(line);
    rows[cells[0]] = Row(cells.begin() + 1, cells.end());
  }
  return rows;
}

TEST(ExitCodes, TheTableInTheDocsIsTheMapping) {
  const std::map<std::string, Row> rows = Rows();
  const std::vector<std::pair<std::string, Stage>> stages = {
      {"reading the command line", Stage::kUsage},
      {"reading the template", Stage::kTemplate},
      {"finding the model's files", Stage::kModel},
      {"reaching a daemon", Stage::kConnect},
      {"talking to it", Stage::kTalk},
      {"the daemon said no", Stage::kAnswer},
      {"starting a daemon", Stage::kServe},
      {"writing a file of results", Stage::kOutput}};
  ASSERT_EQ(stages.size(), static_cast<std::size_t>(kStageCount));

  const Row& headings = rows.at("while");
  ASSERT_EQ(headings.size(), std::size(kCodes));
  for (std::size_t i = 0; i < headings.size(); ++i) EXPECT_EQ(headings[i], Name(kCodes[i]));
  for (const auto& [title, stage] : stages) {
    const Row& row = rows.at(title);
    ASSERT_EQ(row.size(), std::size(kCodes)) << title;
    for (std::size_t i = 0; i < row.size(); ++i) {
      EXPECT_EQ(row[i], std::to_string(ExitCode(stage, kCodes[i]))) << title << ", " << headings[i];
    }
  }
}

TEST(ExitCodes, EachCodeThatIsGivenIsExplained) {
  const std::map<std::string, Row> rows = Rows();
  const std::vector<std::pair<int, std::string>> names = {{kExitOk, "ok"},
                                                          {kExitUsage, "usage"},
                                                          {kExitBadInput, "bad input"},
                                                          {kExitNoInput, "no input"},
                                                          {kExitNoDaemon, "no daemon"},
                                                          {kExitInternal, "internal"},
                                                          {kExitOutput, "output"},
                                                          {kExitTryAgain, "try again"},
                                                          {kExitNotAllowed, "not allowed"}};

  for (const auto& [code, name] : names) {
    const auto row = rows.find(std::to_string(code));
    ASSERT_NE(row, rows.end()) << code;
    EXPECT_EQ(row->second[0], name);
  }
}

}  // namespace
}  // namespace sticky
