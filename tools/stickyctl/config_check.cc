// The command `config check`: whether a node config is right, and every value that it sets in
// force.

#include <utility>

#include "base/text.h"
#include "config/node_config.h"
#include "tools/stickyctl/commands.h"
#include "tools/stickyctl/render_text.h"

namespace sticky::stickyctl {
namespace {

using config::NodeConfig;

Json ConfigJson(const NodeConfig& config) {
  const config::UserLimits& user = config.per_user;
  Json per_user = {
      {"connection_count_max", user.connection_count_max},
      {"load_count_max", user.load_count_max},
      {"memory_bytes_max", user.memory_bytes_max ? Json(*user.memory_bytes_max) : Json(nullptr)},
      {"lease_count_max", user.lease_count_max}};
  Json access = nullptr;
  if (config.access) {
    access = Json{{"users", config.access->users}, {"groups", config.access->groups}};
  }
  return Json{{"memory_host_bytes",
               config.memory_host_bytes ? Json(*config.memory_host_bytes) : Json(nullptr)},
              {"connection_count_max", config.connection_count_max},
              {"lease_count_max", config.lease_count_max},
              {"state_count_max", config.state_count_max},
              {"load_count_max", config.load_count_max},
              {"queued_load_count_max", config.queued_load_count_max},
              {"per_user", std::move(per_user)},
              {"handshake_ms", config.handshake_ms},
              {"plan_ms", config.plan_ms},
              {"fill_stall_ms", config.fill_stall_ms},
              {"shutdown_ms", config.shutdown_ms},
              {"template_folder", config.template_folder},
              {"access", std::move(access)},
              {"access_socket", Name(config.socket)},
              {"journal_event_count", config.journal_event_count}};
}

std::string Ids(const std::vector<std::uint32_t>& ids) {
  std::string text;
  for (const std::uint32_t id : ids) text += (text.empty() ? "" : ", ") + std::to_string(id);
  return text.empty() ? "none" : text;
}

std::string ConfigText(const NodeConfig& config) {
  const config::UserLimits& user = config.per_user;
  const auto number = [](std::uint32_t value) { return std::to_string(value); };
  const auto bytes = [](const std::optional<std::uint64_t>& value, const char* otherwise) {
    return value ? ByteCount(*value) + " (" + std::to_string(*value) + " bytes)" : otherwise;
  };
  const std::string everyone = "every user whom the socket lets in";
  return Fields({{"memory.host", bytes(config.memory_host_bytes, "auto")},
                 {"limits.connections", number(config.connection_count_max)},
                 {"limits.leases", number(config.lease_count_max)},
                 {"limits.states", number(config.state_count_max)},
                 {"limits.loads", number(config.load_count_max)},
                 {"limits.queue", number(config.queued_load_count_max)},
                 {"limits.per_user.connections", number(user.connection_count_max)},
                 {"limits.per_user.leases", number(user.lease_count_max)},
                 {"limits.per_user.loads", number(user.load_count_max)},
                 {"limits.per_user.memory", bytes(user.memory_bytes_max, "no limit")},
                 {"deadlines.handshake_ms", number(config.handshake_ms)},
                 {"deadlines.plan_ms", number(config.plan_ms)},
                 {"deadlines.fill_stall_ms", number(config.fill_stall_ms)},
                 {"deadlines.shutdown_ms", number(config.shutdown_ms)},
                 {"templates.folder", Printable(config.template_folder)},
                 {"access.users", config.access ? Ids(config.access->users) : everyone},
                 {"access.groups", config.access ? Ids(config.access->groups) : everyone},
                 {"access.socket", Name(config.socket)},
                 {"journal.events", number(config.journal_event_count)}});
}

}  // namespace

int ConfigCheck(const Request& request, Console& console) {
  const std::string& path = request.options.operands()[0];
  const Result<NodeConfig> config = config::LoadNodeConfig(path);
  if (!config.ok()) {
    Error error = config.error();
    error.message = "check a node config: " + error.message +
                    (error.code == Code::kNotFound || error.code == Code::kPermissionDenied
                         ? ""
                         : "; docs/node-config.md has every key");
    return console.Fail({Stage::kTemplate, std::move(error)});
  }
  Json document = Document();
  document["path"] = path;
  document["config"] = ConfigJson(config.value());
  console.Print(document, ConfigText(config.value()));
  return kExitOk;
}

}  // namespace sticky::stickyctl
