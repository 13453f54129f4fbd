#include "tools/stickyctl/render_text.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "base/exit_codes.h"
#include "base/text.h"
#include "tools/stickyctl/render_policy.h"

namespace sticky::stickyctl {
namespace {

// Wide enough for most names and jobs; a table of longer ones stays a table.
constexpr std::size_t kNameColumns = 128;
constexpr std::size_t kJobColumns = 40;
constexpr std::size_t kCommandColumns = 160;
// Of `ls`, where names and phases are common ones; sources give way, down to a few columns.
constexpr std::size_t kListColumns = 100;
constexpr std::size_t kSourceColumnsMin = 16;

// What keeps a state, or ends it: "pin, ttl 1 d".
std::string KeptText(const wire::StateInfo& state) {
  std::string text;
  const auto add = [&text](const std::string& what) { text += (text.empty() ? "" : ", ") + what; };
  if (state.pinned) add("pin");
  if (state.hold_count > 0) add("held");
  if (state.policy.idle_ms > 0 && !state.pinned) add("idle " + Duration(state.policy.idle_ms));
  if (state.policy.ttl_ms > 0) add("ttl " + Duration(state.policy.ttl_ms));
  return text.empty() ? "-" : text;
}

std::string KeptBy(const wire::StateInfo& state, const std::vector<wire::LeaseInfo>& leases,
                   const UserNames& users) {
  const std::string holders = HoldersText(leases, users);
  if (!state.pinned) return holders.empty() ? "-" : holders;
  return holders.empty() ? "pin" : "pin, " + holders;
}

std::string LastUsedText(const wire::StateInfo& state) {
  if (state.lease_count > 0) return "now";
  if (state.phase != wire::StatePhase::kReady) return "-";
  return Duration(state.idle_ms) + " ago";
}

// What its matrices are; of a load that is not done, what was asked for.
std::string DtypeText(const wire::StateInfo& state, const wire::ManifestView* manifest) {
  if (manifest == nullptr) return Name(state.dtype);
  std::string text;
  for (const std::string& dtype : MatrixDtypes(*manifest)) {
    text += (text.empty() ? "" : ", ") + dtype;
  }
  if (text.empty()) return "-";
  const bool was_chosen = state.dtype == DtypeChoice::kAuto && state.builder.empty();
  return was_chosen ? text + " (auto)" : text;
}

// "1.5 s, after 12 s in the queue".
std::string LoadTimeText(const wire::StateInfo& state) {
  if (state.load_ms == 0 && state.queued_ms == 0) return "-";
  return Duration(state.load_ms) + QueuedText(state);
}

std::string OwnerText(std::uint32_t uid, const UserNames& users) {
  const std::string name = users(uid);
  const std::string number = Number(uid);
  return name == number ? number : name + " (" + number + ")";
}

std::string Counted(std::uint64_t count, const char* one, const char* many) {
  return Number(count) + " " + (count == 1 ? one : many);
}

// Who made it and of what: of a derived state, and of one that a builder made.
FieldList MakingFields(const wire::StateInfo& state, const wire::ManifestView* manifest) {
  FieldList fields;
  if (!state.builder.empty()) fields.emplace_back("builder", Printable(state.builder));
  if (!state.base.empty()) {
    const bool has_digest = manifest != nullptr && manifest->base_digest().has_value();
    fields.emplace_back(
        "base",
        Printable(state.base) + (has_digest ? " (" + ToHex(*manifest->base_digest()) + ")" : ""));
  }
  if (manifest != nullptr && !manifest->cpu().empty()) {
    fields.emplace_back("cpu", "for " + Printable(manifest->cpu()));
  }
  return fields;
}

std::pair<std::string, std::string> ContentField(const wire::StateInfo& state,
                                                 const wire::ManifestView* manifest) {
  if (manifest != nullptr && manifest->whole_files()) {
    return {"files", Number(manifest->asset_count())};
  }
  return {"tensors", Number(state.tensor_count)};
}

// Whether two states have one name, and the epoch alone tells which is which.
bool HasNamesakes(const std::vector<wire::StateInfo>& states) {
  std::set<std::string> names;
  return std::any_of(states.begin(), states.end(), [&names](const wire::StateInfo& state) {
    return !names.insert(state.name).second;
  });
}

std::string HolderCell(const wire::LeaseInfo& lease) {
  if (!lease.process_ended) return Cell(lease.command, kCommandColumns);
  return "(process ended; its connection is kept by another)";
}

std::string FilesText(const wire::ManifestView& manifest) {
  std::vector<Row> rows;
  for (std::uint32_t i = 0; i < manifest.asset_count(); ++i) {
    const wire::AssetRef file = manifest.asset(i);
    rows.push_back({Printable(file.name), ByteCount(file.size_bytes), Number(file.size_bytes)});
  }
  return Table({"FILE", ">SIZE", ">BYTES"}, rows);
}

}  // namespace

std::vector<wire::LeaseInfo> LeasesOn(const std::string& name, std::uint64_t epoch,
                                      std::vector<wire::LeaseInfo> leases) {
  std::erase_if(leases, [&](const wire::LeaseInfo& lease) {
    return lease.state != name || lease.epoch != epoch;
  });
  return leases;
}

std::string PhaseText(const wire::StateInfo& state) {
  std::string text = state.cancelled ? "cancelled" : wire::Name(state.phase);
  if (state.phase == wire::StatePhase::kFilling) {
    text += " " + Percent(state.bytes_done, state.arena_bytes);
  }
  if (state.queue_place > 0) text += Format(", place %u", state.queue_place);
  return state.closed ? text + ", closed" : text;
}

std::string QueuedText(const wire::StateInfo& state) {
  return state.queued_ms == 0 ? "" : ", after " + Duration(state.queued_ms) + " in the queue";
}

std::string ClosedText(const wire::StateInfo& state) {
  if (!state.closed) return "";
  const std::string name = Printable(state.name);
  return "; it is drained and takes no new leases: `stickyctl drain " + name +
         " --resume` ends that, and --replace builds another one, which takes them";
}

std::string QueueText(const wire::StateInfo& state) {
  std::string text = Format("place %u of the queue", state.queue_place);
  if (state.wanted_bytes > 0) text += ", needs " + ByteCount(state.wanted_bytes);
  return text;
}

std::string HoldersText(const std::vector<wire::LeaseInfo>& leases, const UserNames& users) {
  constexpr std::size_t kNamedMax = 4;
  std::string text;
  std::size_t count = 0;
  for (const wire::LeaseInfo& lease : leases) {
    if (!lease.hold || ++count > kNamedMax) continue;
    text += (text.empty() ? "held by pid " : ", pid ") + Number(lease.pid) + " of user " +
            users(lease.uid);
  }
  if (count > kNamedMax) text += Format(" and %zu more", count - kNamedMax);
  return text;
}

std::string StatesText(const std::vector<wire::StateInfo>& states,
                       std::span<const Staleness> staleness) {
  if (states.empty()) return "no states; `stickyctl load TEMPLATE` builds one\n";
  Row headings = {"NAME", "PHASE", ">SIZE", ">LEASES", "KEPT", "AGE"};
  const bool has_namesakes = HasNamesakes(states);
  if (has_namesakes) headings.emplace_back(">EPOCH");
  if (!staleness.empty()) headings.emplace_back("STALE");
  std::vector<Row> rows;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const wire::StateInfo& state = states[i];
    rows.push_back({Cell(state.name, kNameColumns), PhaseText(state), ByteCount(state.arena_bytes),
                    Number(state.lease_count), KeptText(state), Duration(state.age_ms)});
    if (has_namesakes) rows.back().push_back(Number(state.epoch));
    if (!staleness.empty()) {
      rows.back().emplace_back(i < staleness.size() ? Name(staleness[i].verdict) : "unknown");
    }
  }
  Columns columns(headings);
  for (const Row& row : rows) columns.Measure(row);
  const std::size_t left = kListColumns - std::min(columns.width() + 2, kListColumns);
  headings.emplace_back("SOURCE");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string& made_of = states[i].source.empty() ? states[i].builder : states[i].source;
    rows[i].push_back(CellOfEnd(made_of, std::max(left, kSourceColumnsMin)));
  }
  return Table(headings, rows);
}

std::string StalenessText(const Staleness& staleness) {
  const std::string reason = Printable(staleness.reason);
  switch (staleness.verdict) {
    case Staleness::Verdict::kFresh:
      return "stale: no: its files are as they were loaded\n";
    case Staleness::Verdict::kStale:
      return "stale: yes: " + reason +
             "; `stickyctl load TEMPLATE --replace` builds it as they are now\n";
    case Staleness::Verdict::kUnknown:
      break;
  }
  return "stale: unknown" + (reason.empty() ? "" : ": " + reason) + "\n";
}

std::string StateText(const wire::StateInfo& state, const std::vector<wire::LeaseInfo>& leases,
                      const UserNames& users, const wire::ManifestView* manifest) {
  const auto hex = [](const std::optional<Digest>& digest) {
    return digest ? ToHex(*digest) : std::string("-");
  };
  FieldList fields = {
      {"name", Printable(state.name)},
      {"phase", PhaseText(state)},
      {"owner", OwnerText(state.uid, users)},
      {"source", state.source.empty() ? "-" : Printable(state.source)},
      {"device", Printable(state.device)},
      {"dtype", DtypeText(state, manifest)},
      {"size", ByteCount(state.arena_bytes) + " (" + Number(state.arena_bytes) + " bytes)"},
      ContentField(state, manifest),
      {"huge pages", state.huge_pages.empty() ? "-" : Printable(state.huge_pages)},
      {"leases", Number(state.lease_count)},
      {"last used", LastUsedText(state)},
      {"kept by", KeptBy(state, leases, users)},
      {"outlives daemon", state.kept ? "yes" : "no"},
      {"epoch", Number(state.epoch)},
      {"age", Duration(state.age_ms)},
      {"load took", LoadTimeText(state)},
      {"content digest", hex(state.content_digest)},
      {"template digest", hex(state.template_digest)}};
  for (auto& field : MakingFields(state, manifest)) fields.push_back(std::move(field));
  for (auto& field : PolicyFields(state.policy, users)) fields.push_back(std::move(field));
  if (state.queue_place > 0) fields.emplace_back("waits at", QueueText(state));
  if (state.closed) {
    fields.emplace_back("closed", "takes no new leases; `stickyctl drain " + Printable(state.name) +
                                      " --resume` ends that");
  }
  if (state.failure) {
    fields.emplace_back(
        state.cancelled ? "cancelled" : "failure",
        std::string(Name(state.failure->code)) + ": " + Printable(state.failure->message));
  }
  return Fields(fields);
}

std::string LeasesText(const std::vector<wire::LeaseInfo>& leases, const UserNames& users) {
  if (leases.empty()) return "no leases\n";
  std::vector<Row> rows;
  for (const wire::LeaseInfo& lease : leases) {
    rows.push_back({Number(lease.lease_id), Cell(lease.state, kNameColumns), Number(lease.epoch),
                    Number(lease.pid), users(lease.uid), Duration(lease.age_ms),
                    lease.hold ? "hold" : "use",
                    lease.job.empty() ? "-" : Cell(lease.job, kJobColumns), HolderCell(lease)});
  }
  return Table({">LEASE", "STATE", ">EPOCH", ">PID", "USER", "AGE", "KIND", "JOB", "COMMAND"},
               rows);
}

namespace {

std::string KeeperText(const wire::StatusReply& status) {
  if (status.keeper.empty()) return "none: states end with this daemon";
  std::string text = Printable(status.keeper);
  text += status.keeper_lost ? " has gone: states end with this daemon"
                             : ": states outlive this daemon";
  if (status.foreign_count > 0) {
    text += Format("; %u more, of another version, hold ", status.foreign_count) +
            ByteCount(status.foreign_bytes);
  }
  return text;
}

}  // namespace

std::string StatusText(const wire::StatusReply& status, const UserNames& users) {
  const bool is_over = status.used_bytes > status.budget_bytes;
  const std::string rest = is_over ? ByteCount(status.used_bytes - status.budget_bytes) + " over it"
                                   : ByteCount(status.budget_bytes - status.used_bytes) + " free";
  FieldList fields = {{"stickyd", Printable(status.version)}};
  if (status.draining) {
    fields.emplace_back("draining",
                        "no new leases, no new loads; `stickyctl drain --resume` ends that");
  }
  const FieldList facts = {
      {"pid", Format("%s, user %s, up %s", Number(status.pid).c_str(), users(status.uid).c_str(),
                     Duration(status.uptime_ms).c_str())},
      {"socket", Printable(status.socket_path)},
      {"memory", ByteCount(status.used_bytes) + " of " + ByteCount(status.budget_bytes) +
                     " used (" + Percent(status.used_bytes, status.budget_bytes) + "), " + rest},
      {"charged to", status.cgroup.empty() ? "-" : "cgroup " + Printable(status.cgroup)},
      {"states", Number(status.state_count)},
      {"leases", Number(status.lease_count)},
      {"loads", Format("%u running, %u in the queue", status.load_count, status.queue_count)},
      {"connections",
       Format("%u of at most %u", status.connection_count, status.connection_count_max)},
      {"since start", Counted(status.attach_total, "attach", "attaches") + ", " +
                          Counted(status.evict_total, "eviction", "evictions") + " for room, " +
                          Counted(status.refusal_total, "refusal", "refusals")},
      {"keeper", KeeperText(status)},
      {"device", Printable(status.device) + ", dtype auto means " + Name(status.best_dtype)}};
  fields.insert(fields.end(), facts.begin(), facts.end());
  return Fields(fields);
}

std::string NotesText(const wire::ManifestView& manifest) {
  std::string text;
  for (std::uint32_t i = 0; i < manifest.note_count(); ++i) {
    text += "note: " + Printable(manifest.note(i)) + "\n";
  }
  return text;
}

std::string ManifestText(const wire::ManifestView& manifest) {
  if (manifest.whole_files()) return FilesText(manifest);
  std::vector<Row> rows;
  for (std::uint32_t i = 0; i < manifest.tensor_count(); ++i) {
    const wire::TensorRef tensor = manifest.tensor(i);
    std::string shape;
    for (const std::int64_t extent : tensor.shape) {
      shape += (shape.empty() ? "" : "x") + Format("%lld", static_cast<long long>(extent));
    }
    rows.push_back({Printable(tensor.name), Name(tensor.dtype), shape.empty() ? "scalar" : shape,
                    Number(tensor.offset), Number(tensor.size_bytes)});
  }
  std::string out = Table({"TENSOR", "DTYPE", "SHAPE", ">OFFSET", ">BYTES"}, rows);
  if (manifest.asset_count() == 0) return out;
  rows.clear();
  for (std::uint32_t i = 0; i < manifest.asset_count(); ++i) {
    const wire::AssetRef asset = manifest.asset(i);
    rows.push_back({Printable(asset.name), Number(asset.offset), Number(asset.size_bytes)});
  }
  return out + "\n" + Table({"ASSET", ">OFFSET", ">BYTES"}, rows);
}

}  // namespace sticky::stickyctl
