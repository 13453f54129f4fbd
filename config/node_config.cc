#include "config/node_config.h"

#include <limits>

#include "config/yaml_reader.h"

namespace sticky::config {
namespace {

constexpr std::uint32_t kDayMs = 24 * 3600 * 1000;

// Reads one number into its place; an absent key leaves the default.
Status Take(const YamlMapping& mapping, std::string_view key, std::uint32_t most,
            std::uint32_t& out) {
  STICKY_ASSIGN(const auto value, mapping.Number(key, /*least=*/1, most));
  if (value) out = *value;
  return Ok{};
}

}  // namespace

Result<NodeConfig> ParseNodeConfig(std::string_view text, const std::string& file_name) {
  STICKY_ASSIGN(const YamlMapping top, YamlMapping::Parse(text, file_name));
  STICKY_TRY(top.OnlyKeys({"memory", "limits", "deadlines"}));
  NodeConfig config;

  STICKY_ASSIGN(const YamlMapping memory, top.Mapping("memory"));
  STICKY_TRY(memory.OnlyKeys({"host"}));
  STICKY_ASSIGN(const auto host, memory.Text("host"));
  if (host && *host != "auto") {
    STICKY_ASSIGN(config.memory_host_bytes, memory.Bytes("host", kMemoryBytesMin));
  }

  STICKY_ASSIGN(const YamlMapping limits, top.Mapping("limits"));
  STICKY_TRY(limits.OnlyKeys({"connections", "leases", "states", "loads"}));
  STICKY_TRY(Take(limits, "connections", 1u << 20, config.connection_count_max));
  STICKY_TRY(Take(limits, "leases", 1u << 20, config.lease_count_max));
  STICKY_TRY(Take(limits, "states", 4096, config.state_count_max));
  STICKY_TRY(Take(limits, "loads", 64, config.load_count_max));

  STICKY_ASSIGN(const YamlMapping deadlines, top.Mapping("deadlines"));
  STICKY_TRY(deadlines.OnlyKeys({"handshake_ms", "plan_ms", "fill_stall_ms", "shutdown_ms"}));
  STICKY_TRY(Take(deadlines, "handshake_ms", kDayMs, config.handshake_ms));
  STICKY_TRY(Take(deadlines, "plan_ms", kDayMs, config.plan_ms));
  STICKY_TRY(Take(deadlines, "fill_stall_ms", kDayMs, config.fill_stall_ms));
  STICKY_TRY(Take(deadlines, "shutdown_ms", kDayMs, config.shutdown_ms));
  return config;
}

Result<NodeConfig> LoadNodeConfig(const std::string& path) {
  STICKY_ASSIGN(const std::string text, ReadSmallFile(path));
  return ParseNodeConfig(text, path);
}

}  // namespace sticky::config
