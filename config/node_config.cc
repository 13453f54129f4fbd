#include "config/node_config.h"

#include <utility>

#include "base/text.h"
#include "config/access_names.h"
#include "config/paths.h"
#include "config/yaml_reader.h"

namespace sticky::config {
namespace {

constexpr std::uint32_t kDayMs = 24 * 3600 * 1000;
constexpr std::uint32_t kConnectionsMost = 1u << 20;
constexpr std::uint32_t kLeasesMost = 1u << 20;
constexpr std::uint32_t kStatesMost = 4096;
constexpr std::uint32_t kLoadsMost = 64;
constexpr std::uint32_t kUserLoadsMost = 128;  // those that wait, too
constexpr std::uint32_t kQueueMost = 4096;
constexpr std::uint32_t kEventsLeast = 64;
constexpr std::uint32_t kEventsMost = 1'000'000;

// Reads one number into its place; an absent key leaves the default.
Status Take(const YamlMapping& mapping, std::string_view key, std::uint32_t most,
            std::uint32_t& out, std::uint32_t least = 1) {
  STICKY_ASSIGN(const auto value, mapping.Number(key, least, most));
  if (value) out = *value;
  return Ok{};
}

Status ReadMemory(const YamlMapping& top, NodeConfig& config) {
  STICKY_ASSIGN(const YamlMapping memory, top.Mapping("memory"));
  STICKY_TRY(memory.OnlyKeys({"host"}));
  STICKY_ASSIGN(const auto host, memory.Text("host"));
  if (!host || *host == "auto") return Ok{};
  STICKY_ASSIGN(config.memory_host_bytes, memory.Bytes("host", kMemoryBytesMin));
  return Ok{};
}

Status ReadUserLimits(const YamlMapping& limits, UserLimits& out) {
  STICKY_ASSIGN(const YamlMapping per_user, limits.Mapping("per_user"));
  STICKY_TRY(per_user.OnlyKeys({"connections", "loads", "memory", "leases"}));
  STICKY_TRY(Take(per_user, "connections", kConnectionsMost, out.connection_count_max));
  STICKY_TRY(Take(per_user, "loads", kUserLoadsMost, out.load_count_max));
  STICKY_ASSIGN(out.memory_bytes_max, per_user.Bytes("memory", kMemoryBytesMin));
  return Take(per_user, "leases", kLeasesMost, out.lease_count_max);
}

Status ReadLimits(const YamlMapping& top, NodeConfig& config) {
  STICKY_ASSIGN(const YamlMapping limits, top.Mapping("limits"));
  STICKY_TRY(limits.OnlyKeys({"connections", "leases", "states", "loads", "queue", "per_user"}));
  STICKY_TRY(Take(limits, "connections", kConnectionsMost, config.connection_count_max));
  STICKY_TRY(Take(limits, "leases", kLeasesMost, config.lease_count_max));
  STICKY_TRY(Take(limits, "states", kStatesMost, config.state_count_max));
  STICKY_TRY(Take(limits, "loads", kLoadsMost, config.load_count_max));
  STICKY_TRY(Take(limits, "queue", kQueueMost, config.queued_load_count_max, /*least=*/0));
  return ReadUserLimits(limits, config.per_user);
}

Status ReadDeadlines(const YamlMapping& top, NodeConfig& config) {
  STICKY_ASSIGN(const YamlMapping deadlines, top.Mapping("deadlines"));
  STICKY_TRY(deadlines.OnlyKeys({"handshake_ms", "plan_ms", "fill_stall_ms", "shutdown_ms"}));
  STICKY_TRY(Take(deadlines, "handshake_ms", kDayMs, config.handshake_ms));
  STICKY_TRY(Take(deadlines, "plan_ms", kDayMs, config.plan_ms));
  STICKY_TRY(Take(deadlines, "fill_stall_ms", kDayMs, config.fill_stall_ms));
  return Take(deadlines, "shutdown_ms", kDayMs, config.shutdown_ms);
}

// A daemon has no folder of its own that a path could be relative to.
Status ReadTemplates(const YamlMapping& top, NodeConfig& config) {
  STICKY_ASSIGN(const YamlMapping templates, top.Mapping("templates"));
  STICKY_TRY(templates.OnlyKeys({"folder"}));
  STICKY_ASSIGN(const auto folder, templates.Text("folder"));
  if (!folder) return Ok{};
  if (!folder->starts_with('/') && !folder->starts_with('~') && !folder->starts_with("${")) {
    return templates.Find("folder")->Wants("a whole path");
  }
  const Result<std::string> path = AbsolutePath(*folder, "/");
  if (!path.ok()) return templates.At("folder", path.error().message);
  config.template_folder = path.value();
  return Ok{};
}

Status ReadAccess(const YamlMapping& top, NodeConfig& config) {
  STICKY_ASSIGN(const YamlMapping access, top.Mapping("access"));
  STICKY_TRY(access.OnlyKeys({"users", "groups", "socket"}));
  STICKY_ASSIGN(auto users, ReadUsers(access, "users"));
  STICKY_ASSIGN(auto groups, ReadGroups(access, "groups"));
  // A mode cannot tell users from each other: the daemon does, once they can reach it.
  const bool is_named = users || groups;
  STICKY_ASSIGN(config.socket,
                ReadMode(access, "socket", is_named ? AccessMode::kNode : AccessMode::kOwner));
  if (!users && !groups) return Ok{};
  config.access.emplace();
  if (users) config.access->users = std::move(*users);
  if (groups) config.access->groups = std::move(*groups);
  return Ok{};
}

Status ReadJournal(const YamlMapping& top, NodeConfig& config) {
  STICKY_ASSIGN(const YamlMapping journal, top.Mapping("journal"));
  STICKY_TRY(journal.OnlyKeys({"events"}));
  return Take(journal, "events", kEventsMost, config.journal_event_count, kEventsLeast);
}

}  // namespace

Result<NodeConfig> ParseNodeConfig(std::string_view text, const std::string& file_name) {
  STICKY_ASSIGN(const YamlMapping top, YamlMapping::Parse(text, file_name));
  STICKY_TRY(top.OnlyKeys({"memory", "limits", "deadlines", "templates", "access", "journal"}));
  NodeConfig config;
  STICKY_TRY(ReadMemory(top, config));
  STICKY_TRY(ReadLimits(top, config));
  STICKY_TRY(ReadDeadlines(top, config));
  STICKY_TRY(ReadTemplates(top, config));
  STICKY_TRY(ReadAccess(top, config));
  STICKY_TRY(ReadJournal(top, config));
  return config;
}

Result<NodeConfig> LoadNodeConfig(const std::string& path) {
  STICKY_ASSIGN(const std::string text, ReadSmallFile(path));
  return ParseNodeConfig(text, path);
}

}  // namespace sticky::config
