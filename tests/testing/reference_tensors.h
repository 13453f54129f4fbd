// The tensors of a safetensors file of reference outputs, as vectors.

#ifndef STICKY_TESTS_TESTING_REFERENCE_TENSORS_H_
#define STICKY_TESTS_TESTING_REFERENCE_TENSORS_H_

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/testing/data_dir.h"

namespace sticky::testing {

class ReferenceTensors {
 public:
  // Reads trusted test data with a few lines of its own, not with the parser under test.
  explicit ReferenceTensors(const std::filesystem::path& path) : bytes_(ReadFile(path)) {
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes_.data(), sizeof header_bytes);
    header_ = nlohmann::json::parse(bytes_.substr(8, header_bytes));
    data_at_ = 8 + header_bytes;
  }

  std::vector<float> Floats(const std::string& name) const { return As<float>(name, "F32"); }
  std::vector<std::int32_t> Ints(const std::string& name) const {
    return As<std::int32_t>(name, "I32");
  }

 private:
  template <typename T>
  std::vector<T> As(const std::string& name, const char* dtype) const {
    const auto& entry = header_.at(name);
    EXPECT_EQ(entry.at("dtype"), dtype) << name;
    const std::size_t begin = entry.at("data_offsets")[0];
    const std::size_t end = entry.at("data_offsets")[1];
    std::vector<T> values((end - begin) / sizeof(T));
    std::memcpy(values.data(), bytes_.data() + data_at_ + begin, end - begin);
    return values;
  }

  std::string bytes_;
  nlohmann::json header_;
  std::size_t data_at_ = 0;
};

}  // namespace sticky::testing

#endif  // STICKY_TESTS_TESTING_REFERENCE_TENSORS_H_
