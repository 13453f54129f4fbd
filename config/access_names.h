// Reads whom something is for: lists of users and groups, and the modes. Internal to config/.
//
// Thread: any thread.

#ifndef STICKY_CONFIG_ACCESS_NAMES_H_
#define STICKY_CONFIG_ACCESS_NAMES_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/policy.h"
#include "base/result.h"
#include "config/yaml_reader.h"

namespace sticky::config {

// The ids in the list under `key`, sorted, each once; nothing when the key is absent. At most
// kAccessIdsMax (base/policy.h) entries.
// Errors: kInvalidArgument at the place of a name that this node does not know, or of a number that
//   is no id; kUnavailable there when the node's user database cannot be asked.
// Blocking: for as long as the node's user database takes to look the names up.
Result<std::optional<std::vector<std::uint32_t>>> ReadUsers(const YamlMapping& mapping,
                                                            std::string_view key);
Result<std::optional<std::vector<std::uint32_t>>> ReadGroups(const YamlMapping& mapping,
                                                             std::string_view key);

// "owner", "group" or "node" under `key`; `otherwise` when the key is absent. Errors:
// kInvalidArgument.
Result<AccessMode> ReadMode(const YamlMapping& mapping, std::string_view key, AccessMode otherwise);

}  // namespace sticky::config

#endif  // STICKY_CONFIG_ACCESS_NAMES_H_
