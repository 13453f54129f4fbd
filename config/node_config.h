// NodeConfig: what a node's admin sets for stickyd, in YAML; every key has a default.
//
// Thread: any thread.
// Source: config/stickyinvoc.yaml, the installed example that documents each default.

#ifndef STICKY_CONFIG_NODE_CONFIG_H_
#define STICKY_CONFIG_NODE_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/policy.h"
#include "base/result.h"

namespace sticky::config {

// A smaller budget is a unit that was forgotten.
inline constexpr std::uint64_t kMemoryBytesMin = 1u << 20;

// limits.per_user: what one user may have at once.
struct UserLimits {
  std::uint32_t connection_count_max = 1024;      // connections
  std::uint32_t load_count_max = 8;               // loads, that run or wait
  std::optional<std::uint64_t> memory_bytes_max;  // memory, of the states that it had built
  std::uint32_t lease_count_max = 2048;           // leases
  bool operator==(const UserLimits&) const = default;
};

// access: who may connect besides the daemon's own user.
struct ConnectAccess {
  std::vector<std::uint32_t> users;   // sorted
  std::vector<std::uint32_t> groups;  // sorted
  bool operator==(const ConnectAccess&) const = default;
};

struct NodeConfig {
  std::optional<std::uint64_t> memory_host_bytes;  // memory.host; absent: a safe share is taken
  std::uint32_t connection_count_max = 4096;       // limits.connections
  std::uint32_t lease_count_max = 4096;            // limits.leases
  std::uint32_t state_count_max = 256;             // limits.states
  std::uint32_t load_count_max = 4;                // limits.loads, at once
  std::uint32_t queued_load_count_max = 64;        // limits.queue: that wait for room
  UserLimits per_user;                             // limits.per_user
  std::uint32_t handshake_ms = 5000;               // deadlines.handshake_ms
  std::uint32_t plan_ms = 60'000;                  // deadlines.plan_ms
  std::uint32_t fill_stall_ms = 60'000;            // deadlines.fill_stall_ms: without progress
  std::uint32_t shutdown_ms = 5000;                // deadlines.shutdown_ms
  std::string template_folder = "/etc/stickyinvoc/templates.d";  // templates.folder, absolute
  std::optional<ConnectAccess> access;       // absent: whomever the socket lets in
  AccessMode socket = AccessMode::kOwner;    // access.socket: whom its file's mode lets in
  std::uint32_t journal_event_count = 4096;  // journal.events: how many are kept
  bool operator==(const NodeConfig&) const = default;
};

// Errors: as ParseTemplate.
Result<NodeConfig> ParseNodeConfig(std::string_view text, const std::string& file_name);
Result<NodeConfig> LoadNodeConfig(const std::string& path);

}  // namespace sticky::config

#endif  // STICKY_CONFIG_NODE_CONFIG_H_
