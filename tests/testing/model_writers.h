// Writes small safetensors and GGUF files, right or wrong on purpose, for tests.

#ifndef STICKY_TESTS_TESTING_MODEL_WRITERS_H_
#define STICKY_TESTS_TESTING_MODEL_WRITERS_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace sticky::testing {

template <typename T>
void AppendRaw(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof bytes);
}

// The bytes of numbers, as they lie in memory.
template <typename T>
std::string RawBytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class SafetensorsWriter {
 public:
  SafetensorsWriter& Add(const std::string& name, const std::string& dtype,
                         const std::vector<std::int64_t>& shape, const std::string& bytes) {
    std::string dims;
    for (const std::int64_t dim : shape) dims += (dims.empty() ? "" : ",") + std::to_string(dim);
    header_ += (header_.empty() ? "" : ",") + std::string("\"") + name + "\":{\"dtype\":\"" +
               dtype + "\",\"shape\":[" + dims + "],\"data_offsets\":[" +
               std::to_string(data_.size()) + "," + std::to_string(data_.size() + bytes.size()) +
               "]}";
    data_ += bytes;
    return *this;
  }
  std::string Finish() const {
    const std::string header = "{" + header_ + "}";
    std::string file;
    AppendRaw(file, static_cast<std::uint64_t>(header.size()));
    return file + header + data_;
  }

 private:
  std::string header_;
  std::string data_;
};

class GgufWriter {
 public:
  GgufWriter& Uint(const std::string& key, std::uint32_t value) {
    AppendRaw(Key(key, 4), value);
    return *this;
  }
  GgufWriter& Float(const std::string& key, float value) {
    AppendRaw(Key(key, 6), value);
    return *this;
  }
  GgufWriter& Bool(const std::string& key, bool value) {
    AppendRaw(Key(key, 7), static_cast<std::uint8_t>(value ? 1 : 0));
    return *this;
  }
  GgufWriter& String(const std::string& key, const std::string& value) {
    AppendString(Key(key, 8), value);
    return *this;
  }
  GgufWriter& Strings(const std::string& key, const std::vector<std::string>& values) {
    std::string& out = Key(key, 9);
    AppendRaw(out, std::uint32_t{8});
    AppendRaw(out, static_cast<std::uint64_t>(values.size()));
    for (const std::string& value : values) AppendString(out, value);
    return *this;
  }
  GgufWriter& Ints(const std::string& key, const std::vector<std::int32_t>& values) {
    std::string& out = Key(key, 9);
    AppendRaw(out, std::uint32_t{5});
    AppendRaw(out, static_cast<std::uint64_t>(values.size()));
    out += RawBytes(values);
    return *this;
  }

  // `shape`: outermost first, as everywhere else here; it is written the other way round.
  GgufWriter& Tensor(const std::string& name, const std::vector<std::int64_t>& shape,
                     std::uint32_t type, const std::string& bytes) {
    data_.resize((data_.size() + 31) / 32 * 32, '\0');
    AppendString(tensors_, name);
    AppendRaw(tensors_, static_cast<std::uint32_t>(shape.size()));
    for (std::size_t i = shape.size(); i-- > 0;) {
      AppendRaw(tensors_, static_cast<std::uint64_t>(shape[i]));
    }
    AppendRaw(tensors_, type);
    AppendRaw(tensors_, static_cast<std::uint64_t>(data_.size()));
    data_ += bytes;
    ++tensor_count_;
    return *this;
  }

  std::string Finish(std::uint32_t version = 3, std::size_t alignment = 32) const {
    std::string file = "GGUF";
    AppendRaw(file, version);
    AppendRaw(file, tensor_count_);
    AppendRaw(file, key_count_);
    file += keys_ + tensors_;
    file.resize((file.size() + alignment - 1) / alignment * alignment, '\0');
    return file + data_;
  }

 private:
  static void AppendString(std::string& out, const std::string& value) {
    AppendRaw(out, static_cast<std::uint64_t>(value.size()));
    out += value;
  }
  std::string& Key(const std::string& key, std::uint32_t type) {
    AppendString(keys_, key);
    AppendRaw(keys_, type);
    ++key_count_;
    return keys_;
  }

  std::string keys_;
  std::string tensors_;
  std::string data_;
  std::uint64_t key_count_ = 0;
  std::uint64_t tensor_count_ = 0;
};

}  // namespace sticky::testing

#endif  // STICKY_TESTS_TESTING_MODEL_WRITERS_H_
