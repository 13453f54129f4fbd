// Reads the header of a GGUF file, version 2 or 3: metadata, and where its tensors lie.
//
// Thread: any thread.
// Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.

#ifndef STICKY_WEIGHTS_GGUF_H_
#define STICKY_WEIGHTS_GGUF_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "weights/byte_source.h"
#include "weights/ggml_types.h"

namespace sticky::weights {

inline constexpr std::uint64_t kGgufHeaderBytesMax = 512ull << 20;
inline constexpr std::uint32_t kGgufRankMax = 4;

struct GgufTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // outermost first: the reverse of the file's order
  const GgmlType* type = nullptr;   // supported; static
  std::uint64_t file_offset = 0;    // bytes from the start of the file
  std::uint64_t size_bytes = 0;
};

class GgufFile {
 public:
  // Reads and checks the whole header: every length against the bytes that are left before
  // anything is allocated, all strings valid UTF-8, no key or tensor twice, tensors' bytes within
  // the file, aligned, apart, and with nothing but padding between and after them.
  // Errors: kCorrupt naming file, place, expected and found; kInvalidArgument for a version,
  //   element type or split that is not supported, naming it and the choices.
  static Result<GgufFile> Read(const SourceFile& file);

  // Metadata by key. None: no such key. Errors: kCorrupt when the key has another kind of value.
  Result<std::optional<std::uint64_t>> FindUint(std::string_view key) const;
  Result<std::optional<double>> FindFloat(
      std::string_view key) const;  // shortest decimal of an f32
  Result<std::optional<bool>> FindBool(std::string_view key) const;
  // Views into this object.
  Result<std::optional<std::string_view>> FindString(std::string_view key) const;
  Result<std::optional<std::vector<std::string_view>>> FindStrings(std::string_view key) const;
  Result<std::optional<std::vector<std::int64_t>>> FindInts(std::string_view key) const;

  bool HasKeyWithPrefix(std::string_view prefix) const;

  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // in order of their bytes

 private:
  friend class GgufReader;
  struct Value {
    std::uint32_t type = 0;
    std::uint32_t element_type = 0;  // of an array
    std::uint64_t count = 0;         // of an array
    std::uint64_t offset = 0;        // of the payload, into header_
  };

  const Value* Find(std::string_view key) const;
  std::int64_t IntAt(std::uint32_t type, std::uint64_t offset) const;
  std::string_view StringAt(std::uint64_t offset) const;
  Error WrongType(std::string_view key, const Value& value, const char* expected) const;

  std::string name_;                  // of the file, for messages
  std::vector<std::uint8_t> header_;  // the file's first bytes
  std::unordered_map<std::string, Value> values_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_GGUF_H_
