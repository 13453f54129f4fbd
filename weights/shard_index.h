// Parses model.safetensors.index.json: which shard holds which tensor.
//
// Thread: any thread.

#ifndef STICKY_WEIGHTS_SHARD_INDEX_H_
#define STICKY_WEIGHTS_SHARD_INDEX_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sticky::weights {

inline constexpr std::string_view kShardIndexName = "model.safetensors.index.json";
inline constexpr std::size_t kShardCountMax = 1000;

struct ShardIndex {
  std::map<std::string, std::string> shard_of;  // by tensor name
  std::vector<std::string> shards;              // each once, sorted
};

// Whether `name` names a file within a directory and nothing else: no separator, not "..", no NUL.
bool IsPlainFileName(std::string_view name);

// Errors: kCorrupt for text that is not such an index, or a shard that is not a plain file name,
//   quoting it; kInvalidArgument past kShardCountMax.
Result<ShardIndex> ParseShardIndex(std::string_view json_text);

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_SHARD_INDEX_H_
