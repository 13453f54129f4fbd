#include "tools/stickyctl/output.h"

#include <algorithm>
#include <cstdio>

#include "base/text.h"

namespace sticky::tools {
namespace {

const char* NameOf(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "invalid_argument";
    case Code::kNotFound:
      return "not_found";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kOutOfMemory:
      return "out_of_memory";
    case Code::kPermissionDenied:
      return "permission_denied";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kDeviceLost:
      return "device_lost";
    case Code::kInternal:
      return "internal";
  }
  return "internal";
}

Json HexOrNull(const std::optional<Digest>& digest) {
  return digest ? Json(ToHex(*digest)) : Json(nullptr);
}

// Columns as wide as their widest cell, two spaces apart. The first row is the heading.
std::string Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      line += row[c];
      if (c + 1 < row.size()) line.append(widths[c] - row[c].size() + 2, ' ');
    }
    text += line + "\n";
  }
  return text;
}

std::string Facts(const std::vector<std::pair<std::string, std::string>>& facts) {
  std::size_t width = 0;
  for (const auto& [key, value] : facts) width = std::max(width, key.size());
  std::string text;
  for (const auto& [key, value] : facts) {
    text += key + std::string(width - key.size() + 2, ' ') + value + "\n";
  }
  return text;
}

std::string Duration(std::uint64_t ms) {
  const auto seconds = static_cast<double>(ms) / 1000;
  if (seconds < 60) return Format("%.1fs", seconds);
  if (seconds < 3600) return Format("%.1fmin", seconds / 60);
  if (seconds < 86400) return Format("%.1fh", seconds / 3600);
  return Format("%.1fd", seconds / 86400);
}

std::string PhaseOf(const wire::StateInfo& state) {
  if (state.phase != wire::StatePhase::kFilling || state.arena_bytes == 0) {
    return wire::Name(state.phase);
  }
  return Format("filling %.0f%%", 100.0 * static_cast<double>(state.bytes_done) /
                                      static_cast<double>(state.arena_bytes));
}

std::string ShapeOf(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) {
    text += (text.empty() ? "" : ", ") + std::to_string(size);
  }
  return "[" + text + "]";
}

}  // namespace

Json ToJson(const wire::StateInfo& state) {
  Json json = {{"name", state.name},
               {"phase", wire::Name(state.phase)},
               {"device", state.device},
               {"content_digest", HexOrNull(state.content_digest)},
               {"template_digest", HexOrNull(state.template_digest)},
               {"epoch", state.epoch},
               {"arena_bytes", state.arena_bytes},
               {"bytes_done", state.bytes_done},
               {"tensor_count", state.tensor_count},
               {"lease_count", state.lease_count},
               {"hold_count", state.hold_count},
               {"pinned", state.pinned},
               {"dtype", Name(state.dtype)},
               {"huge_pages", state.huge_pages},
               {"source", state.source},
               {"age_ms", state.age_ms},
               {"load_ms", state.load_ms},
               {"failure", nullptr}};
  if (state.failure) {
    json["failure"] = {{"code", NameOf(state.failure->code)},
                       {"message", state.failure->message},
                       {"os_code", state.failure->os_code}};
  }
  return json;
}

Json ToJson(const wire::LeaseInfo& lease) {
  return {{"lease_id", lease.lease_id}, {"state", lease.state},  {"epoch", lease.epoch},
          {"pid", lease.pid},           {"uid", lease.uid},      {"command", lease.command},
          {"hold", lease.hold},         {"age_ms", lease.age_ms}};
}

Json ToJson(const wire::StatusReply& status) {
  return {{"version", status.version},
          {"pid", status.pid},
          {"uid", status.uid},
          {"uptime_ms", status.uptime_ms},
          {"daemon_nonce", Format("%016llx", static_cast<unsigned long long>(status.nonce))},
          {"socket_path", status.socket_path},
          {"device", status.device},
          {"auto_dtype", Name(status.best_dtype)},
          {"budget_bytes", status.budget_bytes},
          {"used_bytes", status.used_bytes},
          {"state_count", status.state_count},
          {"lease_count", status.lease_count},
          {"connection_count", status.connection_count},
          {"connection_count_max", status.connection_count_max},
          {"cgroup", status.cgroup},
          {"shutting_down", status.draining}};
}

Json ToJson(const wire::ManifestTensor& tensor) {
  return {{"name", tensor.name},
          {"dtype", Name(tensor.dtype)},
          {"shape", tensor.shape},
          {"offset", tensor.offset},
          {"size_bytes", tensor.size_bytes}};
}

Json ErrorToJson(const Error& error, int exit_code) {
  return {{"error",
           {{"code", NameOf(error.code)},
            {"message", error.message},
            {"os_code", error.os_code},
            {"exit_code", exit_code}}}};
}

void PrintJson(Json facts) {
  Json whole = {{"schema_version", 1}};
  whole.update(facts);
  // Text from users that is not UTF-8 is shown with replacement characters rather than not at all.
  const std::string text = whole.dump(2, ' ', false, Json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

std::string StatesTable(const std::vector<wire::StateInfo>& states) {
  if (states.empty()) return "no states; `stickyctl load TEMPLATE --wait` builds one\n";
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "PHASE", "EPOCH", "SIZE", "TENSORS", "LEASES", "KEPT", "AGE", "DIGEST"}};
  for (const wire::StateInfo& state : states) {
    const char* const kept = state.pinned ? "pinned" : state.hold_count > 0 ? "held" : "-";
    rows.push_back({Escape(state.name), PhaseOf(state), std::to_string(state.epoch),
                    ByteCount(state.arena_bytes), std::to_string(state.tensor_count),
                    std::to_string(state.lease_count), kept, Duration(state.age_ms),
                    state.content_digest ? ToHex(*state.content_digest).substr(0, 12) : "-"});
  }
  return Table(rows);
}

std::string LeasesTable(const std::vector<wire::LeaseInfo>& leases) {
  if (leases.empty()) return "no leases\n";
  std::vector<std::vector<std::string>> rows = {
      {"LEASE", "STATE", "EPOCH", "PID", "UID", "AGE", "KIND", "COMMAND"}};
  for (const wire::LeaseInfo& lease : leases) {
    rows.push_back({std::to_string(lease.lease_id), Escape(lease.state),
                    std::to_string(lease.epoch), std::to_string(lease.pid),
                    std::to_string(lease.uid), Duration(lease.age_ms),
                    lease.hold ? "hold" : "invocation", Escape(lease.command).substr(0, 60)});
  }
  return Table(rows);
}

std::string StateDetails(const wire::StateInfo& state) {
  std::vector<std::pair<std::string, std::string>> facts = {
      {"name", Escape(state.name)},
      {"phase", PhaseOf(state)},
      {"source", Escape(state.source)},
      {"device", Escape(state.device)},
      {"dtype", Name(state.dtype)},
      {"size", Format("%s (%llu bytes)", ByteCount(state.arena_bytes).c_str(),
                      static_cast<unsigned long long>(state.arena_bytes))},
      {"tensors", std::to_string(state.tensor_count)},
      {"content digest", state.content_digest ? ToHex(*state.content_digest) : "-"},
      {"template digest", state.template_digest ? ToHex(*state.template_digest) : "-"},
      {"epoch", std::to_string(state.epoch)},
      {"leases", Format("%u, of which %u hold", state.lease_count, state.hold_count)},
      {"pinned", state.pinned ? "yes" : "no"},
      {"huge pages", Escape(state.huge_pages)},
      {"age", Duration(state.age_ms)},
      {"load took", Duration(state.load_ms)}};
  if (state.failure) facts.emplace_back("failure", Escape(state.failure->message));
  return Facts(facts);
}

std::string StatusDetails(const wire::StatusReply& status) {
  return Facts({{"stickyd", Format("%s, pid %llu, uid %u, up %s", Escape(status.version).c_str(),
                                   static_cast<unsigned long long>(status.pid), status.uid,
                                   Duration(status.uptime_ms).c_str())},
                {"socket", Escape(status.socket_path)},
                {"device", Format("%s, dtype auto is %s here", Escape(status.device).c_str(),
                                  Name(status.best_dtype))},
                {"memory", Format("%s of %s used", ByteCount(status.used_bytes).c_str(),
                                  ByteCount(status.budget_bytes).c_str())},
                {"states", std::to_string(status.state_count)},
                {"leases", std::to_string(status.lease_count)},
                {"connections",
                 Format("%u of at most %u", status.connection_count, status.connection_count_max)},
                {"cgroup", Escape(status.cgroup)}});
}

std::string TensorsTable(const std::vector<wire::ManifestTensor>& tensors) {
  std::vector<std::vector<std::string>> rows = {{"TENSOR", "DTYPE", "SHAPE", "BYTES"}};
  for (const wire::ManifestTensor& tensor : tensors) {
    rows.push_back({Escape(tensor.name), Name(tensor.dtype), ShapeOf(tensor.shape),
                    std::to_string(tensor.size_bytes)});
  }
  return Table(rows);
}

}  // namespace sticky::tools
