// A strict reader of small YAML mappings: every key must be known, every value of its type, and
// every complaint says file, line and column. Internal to config/.
//
// Thread: one thread at a time.

#ifndef STICKY_CONFIG_YAML_READER_H_
#define STICKY_CONFIG_YAML_READER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sticky::config {

inline constexpr std::size_t kYamlBytesMax = 1u << 20;
inline constexpr int kYamlDepthMax = 16;
inline constexpr int kYamlNodesMax = 10'000;

// Errors: kCorrupt when the text is not YAML; kInvalidArgument when the top is not a mapping, a key
//   stands twice, there is a second document, a tag, an alias or a NUL, or the text is larger or
//   deeper than the limits.
class YamlMapping {
 public:
  static Result<YamlMapping> Parse(std::string_view text, const std::string& file_name);

  // Refuses any key that is not in `known`, naming the nearest one.
  Status OnlyKeys(const std::vector<std::string_view>& known) const;

  bool Has(std::string_view key) const;
  // The mapping under `key`; empty when the key is absent, or has nothing after it.
  Result<YamlMapping> Mapping(std::string_view key) const;

  // A missing key gives nothing; a value of another type is an error at its place.
  Result<std::optional<std::string>> Text(std::string_view key) const;
  Result<std::optional<bool>> Bool(std::string_view key) const;
  Result<std::optional<std::uint32_t>> Number(std::string_view key, std::uint32_t least,
                                              std::uint32_t most) const;
  Result<std::optional<std::uint64_t>> Bytes(std::string_view key, std::uint64_t least) const;

  // An error at the place of `key` (of the mapping when it is absent): "FILE:LINE:COLUMN: what".
  Error At(std::string_view key, const std::string& what) const;

  YamlMapping(const YamlMapping&);
  YamlMapping& operator=(const YamlMapping&);
  ~YamlMapping();

 private:
  // The text of a scalar that is not in quotes; `wanted`: for the message when it is.
  Result<std::optional<std::string>> Plain(std::string_view key, const char* wanted) const;

  struct Impl;
  explicit YamlMapping(std::shared_ptr<const Impl> impl);
  // Shared by copies of the same immutable mapping: none of them outlives the others' need of it.
  std::shared_ptr<const Impl> impl_;
};

// Reads a whole file of at most kYamlBytesMax bytes.
// Errors: kNotFound, kPermissionDenied, kInvalidArgument when it is larger or no regular file.
Result<std::string> ReadSmallFile(const std::string& path);

}  // namespace sticky::config

#endif  // STICKY_CONFIG_YAML_READER_H_
