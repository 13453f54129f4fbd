// The cases of tests/data/cases/expected.tsv: weight files, and the verdict on each.
//
// Thread: any thread.

#ifndef STICKY_TESTS_TESTING_EXPECTED_CASES_H_
#define STICKY_TESTS_TESTING_EXPECTED_CASES_H_

#include <cctype>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/data_dir.h"

namespace sticky::testing {

struct Case {
  std::string file;  // within fixtures/
  std::string verdict;
};

inline void PrintTo(const Case& one, std::ostream* out) { *out << one.file; }

inline std::vector<Case> ReadCases() {
  std::vector<Case> cases;
  std::istringstream lines(ReadFile(CasesDir() / "expected.tsv"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t tab = line.find('\t');
    if (tab != std::string::npos) cases.push_back({line.substr(0, tab), line.substr(tab + 1)});
  }
  return cases;
}

inline std::string LowerCase(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Words and numbers, in lower case, without punctuation.
inline std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : LowerCase(text) + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, ""));
    }
  }
  return words;
}

// What a message must say for a verdict; none: the file is good.
inline std::vector<std::string> WordsOfRefusal(const std::string& verdict) {
  const std::size_t colon = verdict.find(':');
  const std::string kind = verdict.substr(0, colon);
  if (kind == "ok") return {};
  if (kind.starts_with("part ")) return Words(kind);  // to be resolved as a set, once that is read
  return Words(verdict.substr(colon + 1));
}

}  // namespace sticky::testing

#endif  // STICKY_TESTS_TESTING_EXPECTED_CASES_H_
