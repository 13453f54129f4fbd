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

class YamlMapping;
struct YamlNode;

// One value: a scalar, a list or a mapping, that knows its name and its place.
// Errors of every reader: kInvalidArgument at the value's place, with what was wanted and found.
class YamlValue {
 public:
  bool IsList() const;
  bool IsMapping() const;

  Result<std::string> Text() const;
  Result<bool> Bool() const;
  Result<std::int64_t> Number(std::int64_t least, std::int64_t most) const;
  Result<std::uint64_t> Bytes(std::uint64_t least) const;
  // "30s", "10min", "2h", "1d", "500ms": a whole number of one unit, 1 ms to most_ms.
  Result<std::uint64_t> DurationMs(std::uint64_t most_ms) const;
  // At most count_max values, as they stand; an empty list is one too.
  Result<std::vector<YamlValue>> List(std::size_t count_max) const;
  // Nothing after the key is an empty mapping.
  Result<YamlMapping> Mapping() const;

  // "FILE:LINE:COLUMN: what".
  Error At(const std::string& what) const;
  // "FILE:LINE:COLUMN: 'source.path' wants <wanted>, found <the value>".
  Error Wants(const std::string& wanted) const;

 private:
  friend class YamlMapping;
  explicit YamlValue(std::shared_ptr<const YamlNode> node) : node_(std::move(node)) {}
  // The text of a scalar that is not in quotes; `wanted`: for the message when it is.
  Result<std::string> Plain(const std::string& wanted) const;

  // Shared by copies of the same immutable value: none of them outlives the others' need of it.
  std::shared_ptr<const YamlNode> node_;
};

class YamlMapping {
 public:
  // Errors: kCorrupt when the text is not YAML; kInvalidArgument when the top is not a mapping, a
  //   key stands twice, there is a second document, a tag, an alias or a NUL, or the text is larger
  //   or deeper than the limits.
  static Result<YamlMapping> Parse(std::string_view text, const std::string& file_name);

  // Refuses any key that is not in `known`, naming the nearest one.
  Status OnlyKeys(const std::vector<std::string_view>& known) const;
  // All keys, as they stand. Errors: kInvalidArgument for one that is no scalar.
  Result<std::vector<std::string>> Keys() const;

  bool Has(std::string_view key) const { return Find(key).has_value(); }
  // Nothing when the key is absent.
  std::optional<YamlValue> Find(std::string_view key) const;
  // The mapping under `key`; empty when the key is absent, or has nothing after it.
  Result<YamlMapping> Mapping(std::string_view key) const;

  // A missing key gives nothing; a value of another type is an error at its place.
  Result<std::optional<std::string>> Text(std::string_view key) const;
  Result<std::optional<bool>> Bool(std::string_view key) const;
  Result<std::optional<std::uint32_t>> Number(std::string_view key, std::uint32_t least,
                                              std::uint32_t most) const;
  Result<std::optional<std::uint64_t>> Bytes(std::string_view key, std::uint64_t least) const;
  Result<std::optional<std::uint64_t>> DurationMs(std::string_view key,
                                                  std::uint64_t most_ms) const;

  // An error at the place of `key` (of the mapping when it is absent): "FILE:LINE:COLUMN: what".
  Error At(std::string_view key, const std::string& what) const;
  // As At, at the place of the key itself and not of its value.
  Error AtKey(std::string_view key, const std::string& what) const;

 private:
  friend class YamlValue;
  explicit YamlMapping(std::shared_ptr<const YamlNode> node) : node_(std::move(node)) {}
  std::shared_ptr<const YamlNode> node_;  // a mapping, or nothing; shared as YamlValue's
};

// Reads a whole file of at most kYamlBytesMax bytes.
// Errors: kNotFound, kPermissionDenied, kInvalidArgument when it is larger or no regular file.
Result<std::string> ReadSmallFile(const std::string& path);

}  // namespace sticky::config

#endif  // STICKY_CONFIG_YAML_READER_H_
