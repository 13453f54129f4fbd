// Where test data are: reference outputs, cases, and the real model.
//
// Another set of the same layout can be put in place of each through the environment.

#ifndef STICKY_TESTS_TESTING_DATA_DIR_H_
#define STICKY_TESTS_TESTING_DATA_DIR_H_

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace sticky::testing {

inline std::filesystem::path FromEnvironment(const char* name,
                                             const std::filesystem::path& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::filesystem::path(value) : otherwise;
}

inline std::filesystem::path GoldenDir() {
  return FromEnvironment("STICKY_GOLDEN_DIR", STICKY_SOURCE_DIR "/tests/data/golden");
}

inline std::filesystem::path CasesDir() {
  return FromEnvironment("STICKY_CASES_DIR", STICKY_SOURCE_DIR "/tests/data/cases");
}

// The real SmolLM2-135M-Instruct, which tools/check fetches. Tests that need it fail without it.
inline std::filesystem::path SmolLm2Path() {
  const char* home = std::getenv("HOME");
  const std::filesystem::path cache = FromEnvironment(
      "XDG_CACHE_HOME", std::filesystem::path(home != nullptr ? home : "/") / ".cache");
  return FromEnvironment("STICKY_SMOLLM2_GGUF",
                         cache / "stickyinvoc" / "SmolLM2-135M-Instruct.Q4_1.gguf");
}

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << "cannot open " << path << ": is the test data there?";
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace sticky::testing

#endif  // STICKY_TESTS_TESTING_DATA_DIR_H_
