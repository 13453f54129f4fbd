#include "tools/stickyctl/render_json.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "base/text.h"
#include "tools/stickyctl/render_policy.h"

namespace sticky::stickyctl {
namespace {

Json DigestJson(const std::optional<Digest>& digest) {
  return digest ? Json(ToHex(*digest)) : Json(nullptr);
}

// Null: there is none.
Json TextJson(std::string_view text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

Json Document() { return Json{{"schema_version", kJsonSchemaVersion}}; }

Json StateJson(const wire::StateInfo& state) {
  Json json;
  json["name"] = state.name;
  json["phase"] = wire::Name(state.phase);
  json["device"] = state.device;
  json["dtype"] = Name(state.dtype);
  json["source"] = state.source;
  json["content_digest"] = DigestJson(state.content_digest);
  json["template_digest"] = DigestJson(state.template_digest);
  json["epoch"] = state.epoch;
  json["arena_bytes"] = state.arena_bytes;
  json["done_bytes"] = state.bytes_done;
  json["tensor_count"] = state.tensor_count;
  json["lease_count"] = state.lease_count;
  json["hold_count"] = state.hold_count;
  json["outlives_daemon"] = state.kept;
  json["pinned"] = state.pinned;
  json["huge_pages"] = state.huge_pages.empty() ? Json(nullptr) : Json(state.huge_pages);
  json["age_ms"] = state.age_ms;
  json["load_ms"] = state.load_ms;
  json["failure"] = nullptr;
  if (state.failure) {
    json["failure"] = Json{{"code", Name(state.failure->code)},
                           {"message", state.failure->message},
                           {"os_code", state.failure->os_code}};
  }
  const bool is_idle = state.phase == wire::StatePhase::kReady && state.lease_count == 0;
  json["uid"] = state.uid;
  json["policy"] = PolicyJson(state.policy);
  json["idle_ms"] = is_idle ? Json(state.idle_ms) : Json(nullptr);
  json["queue_place"] = state.queue_place > 0 ? Json(state.queue_place) : Json(nullptr);
  json["wanted_bytes"] = state.wanted_bytes;
  json["closed"] = state.closed;
  json["builder"] = TextJson(state.builder);
  json["base"] = TextJson(state.base);
  json["queued_ms"] = state.queued_ms;
  json["cancelled"] = state.cancelled;
  return json;
}

Json StatesJson(const std::vector<wire::StateInfo>& states) {
  Json list = Json::array();
  for (const wire::StateInfo& state : states) list.push_back(StateJson(state));
  return list;
}

Json LeasesJson(const std::vector<wire::LeaseInfo>& leases) {
  Json list = Json::array();
  for (const wire::LeaseInfo& lease : leases) {
    list.push_back(Json{{"lease_id", lease.lease_id},
                        {"state", lease.state},
                        {"epoch", lease.epoch},
                        {"pid", lease.pid},
                        {"uid", lease.uid},
                        {"age_ms", lease.age_ms},
                        {"hold", lease.hold},
                        {"command", lease.command},
                        {"job", lease.job.empty() ? Json(nullptr) : Json(lease.job)},
                        {"process_ended", lease.process_ended}});
  }
  return list;
}

Json StatusJson(const wire::StatusReply& status) {
  Json json;
  json["version"] = status.version;
  json["pid"] = status.pid;
  json["uid"] = status.uid;
  json["uptime_ms"] = status.uptime_ms;
  json["daemon_nonce"] = Format("%016llx", static_cast<unsigned long long>(status.nonce));
  json["socket_path"] = status.socket_path;
  json["cgroup"] = status.cgroup;
  json["device"] = status.device;
  json["auto_dtype"] = Name(status.best_dtype);
  json["shutting_down"] = status.draining;
  json["budget_bytes"] = status.budget_bytes;
  json["used_bytes"] = status.used_bytes;
  json["state_count"] = status.state_count;
  json["lease_count"] = status.lease_count;
  json["connection_count"] = status.connection_count;
  json["connection_count_max"] = status.connection_count_max;
  json["draining"] = status.draining;
  json["queue_count"] = status.queue_count;
  json["load_count"] = status.load_count;
  json["attach_total"] = status.attach_total;
  json["evict_total"] = status.evict_total;
  json["refusal_total"] = status.refusal_total;
  json["keeper"] = TextJson(status.keeper);
  json["keeper_lost"] = status.keeper_lost;
  json["foreign_state_count"] = status.foreign_count;
  json["foreign_bytes"] = status.foreign_bytes;
  json["own_bytes"] = status.own_bytes;
  json["own_bytes_max"] = status.own_bytes_max;
  return json;
}

Json EventJson(const wire::Event& event) {
  Json document = Document();
  document["sequence"] = event.sequence;
  document["time_ms"] = event.time_ms;
  document["kind"] = wire::Name(event.kind);
  document["state"] = event.state.empty() ? Json(nullptr) : Json(event.state);
  document["epoch"] = event.epoch;
  document["uid"] = event.uid;
  document["pid"] = event.pid;
  document["text"] = event.text;
  return document;
}

void AddStaleness(const Staleness& staleness, Json& state) {
  const bool known = staleness.verdict != Staleness::Verdict::kUnknown;
  state["stale"] = known ? Json(staleness.verdict == Staleness::Verdict::kStale) : Json(nullptr);
  state["stale_reason"] = staleness.reason.empty() ? Json(nullptr) : Json(staleness.reason);
}

void AddMaking(const wire::ManifestView* manifest, Json& state) {
  const bool has = manifest != nullptr;
  state["base_digest"] = has ? DigestJson(manifest->base_digest()) : Json(nullptr);
  state["cpu"] = has ? TextJson(manifest->cpu()) : Json(nullptr);
  state["whole_files"] = has ? Json(manifest->whole_files()) : Json(nullptr);
  state["matrix_dtypes"] = has ? Json(MatrixDtypes(*manifest)) : Json(nullptr);
}

std::vector<std::string> MatrixDtypes(const wire::ManifestView& manifest) {
  std::map<std::string, std::uint64_t> bytes_of;
  for (std::uint32_t i = 0; i < manifest.tensor_count(); ++i) {
    const wire::TensorRef tensor = manifest.tensor(i);
    if (tensor.shape.size() >= 2) bytes_of[Name(tensor.dtype)] += tensor.size_bytes;
  }
  std::vector<std::string> dtypes;
  for (const auto& [dtype, size_bytes] : bytes_of) dtypes.push_back(dtype);
  std::stable_sort(dtypes.begin(), dtypes.end(), [&](const std::string& a, const std::string& b) {
    return bytes_of[a] > bytes_of[b];
  });
  return dtypes;
}

Json NotesJson(const wire::ManifestView& manifest) {
  Json notes = Json::array();
  for (std::uint32_t i = 0; i < manifest.note_count(); ++i) notes.push_back(manifest.note(i));
  return notes;
}

void AddManifest(const wire::ManifestView& manifest, Json& document) {
  Json tensors = Json::array();
  for (std::uint32_t i = 0; i < manifest.tensor_count(); ++i) {
    const wire::TensorRef tensor = manifest.tensor(i);
    tensors.push_back(
        Json{{"name", tensor.name},
             {"dtype", Name(tensor.dtype)},
             {"shape", std::vector<std::int64_t>(tensor.shape.begin(), tensor.shape.end())},
             {"arena", tensor.arena},
             {"offset_bytes", tensor.offset},
             {"size_bytes", tensor.size_bytes}});
  }
  Json assets = Json::array();
  for (std::uint32_t i = 0; i < manifest.asset_count(); ++i) {
    const wire::AssetRef asset = manifest.asset(i);
    assets.push_back(Json{{"name", asset.name},
                          {"arena", asset.arena},
                          {"offset_bytes", asset.offset},
                          {"size_bytes", asset.size_bytes}});
  }
  document["tensors"] = std::move(tensors);
  document["assets"] = std::move(assets);
}

Json ErrorJson(const client::Failed& failed) {
  Json document = Document();
  document["error"] = Json{{"code", Name(failed.error.code)},
                           {"message", failed.error.message},
                           {"os_code", failed.error.os_code},
                           {"exit_code", failed.exit_code()}};
  return document;
}

std::string Dump(const Json& document) {
  return document.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

}  // namespace sticky::stickyctl
