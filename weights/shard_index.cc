#include "weights/shard_index.h"

#include <set>

#include "base/text.h"
#include "weights/json_text.h"

namespace sticky::weights {

bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.size() <= 255 &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

Result<ShardIndex> ParseShardIndex(std::string_view json_text) {
  const std::string what(kShardIndexName);
  STICKY_ASSIGN(const nlohmann::json root, ParseJson(json_text, what));
  const auto refuse = [&](const std::string& reason) {
    return Error{Code::kCorrupt, "read '" + what + "': " + reason};
  };
  const auto map = root.is_object() ? root.find("weight_map") : root.end();
  if (map == root.end() || !map->is_object() || map->empty()) {
    return refuse("has no weight_map object that names shards");
  }
  ShardIndex index;
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) return refuse("shard of '" + Escape(tensor) + "' is not a string");
    const auto& name = shard.get_ref<const std::string&>();
    if (!IsPlainFileName(name)) {
      return refuse("shard of '" + Escape(tensor) + "' is '" + Escape(name) +
                    "', not a plain file name within the model's directory");
    }
    shards.insert(name);
    index.shard_of.emplace(tensor, name);
  }
  if (shards.size() > kShardCountMax) {
    return Error{Code::kInvalidArgument, Format("read '%s': names %zu shards, limit %zu",
                                                what.c_str(), shards.size(), kShardCountMax)};
  }
  index.shards.assign(shards.begin(), shards.end());
  return index;
}

}  // namespace sticky::weights
