// A model's files in memory, for tests of weights/ that touch no file.

#ifndef STICKY_TESTS_TESTING_MEMORY_MODEL_H_
#define STICKY_TESTS_TESTING_MEMORY_MODEL_H_

#include <cstring>
#include <deque>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/data_dir.h"
#include "weights/byte_source.h"

namespace sticky::testing {

class MemorySource : public weights::ByteSource {
 public:
  explicit MemorySource(std::string bytes) : bytes_(std::move(bytes)) {}

  Status ReadAt(std::uint64_t offset, std::span<std::uint8_t> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
      return Error{Code::kCorrupt, "read a test's file: it ends early"};
    }
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return Ok{};
  }
  std::string& bytes() { return bytes_; }

 private:
  std::string bytes_;
};

class MemoryModel {
 public:
  MemoryModel& Add(std::string name, std::string bytes) {
    sources_.emplace_back(std::move(bytes));
    files_.push_back({std::move(name), sources_.back().bytes().size(), &sources_.back()});
    return *this;
  }
  MemoryModel& AddFile(const std::filesystem::path& path) {
    return Add(path.filename().string(), ReadFile(path));
  }
  std::span<const weights::SourceFile> files() const { return files_; }
  MemorySource& source(std::size_t index) { return sources_[index]; }

 private:
  std::deque<MemorySource> sources_;  // never moved: files_ points into it
  std::vector<weights::SourceFile> files_;
};

}  // namespace sticky::testing

#endif  // STICKY_TESTS_TESTING_MEMORY_MODEL_H_
