// Reads what a template says of a state's life among others. Internal to config/.
//
// Thread: any thread.
// Source: docs/templates.md.

#ifndef STICKY_CONFIG_POLICY_READER_H_
#define STICKY_CONFIG_POLICY_READER_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/policy.h"
#include "base/result.h"
#include "config/yaml_reader.h"

namespace sticky::config {

inline constexpr std::uint64_t kLifetimeMsMax = 365ull * 24 * 3600 * 1000;
inline constexpr std::uint32_t kMaxLeasesMost = 1u << 20;

// lifetime, priority, access, labels and max_leases of a template; `top`: all of it.
// Errors: kInvalidArgument at the place of the mistake; kUnavailable as ReadUsers.
// Blocking: as ReadUsers.
Result<Policy> ReadPolicy(const YamlMapping& top);

}  // namespace sticky::config

#endif  // STICKY_CONFIG_POLICY_READER_H_
