#include "tools/stickyctl/render_text.h"

#include <algorithm>

#include "base/exit_codes.h"
#include "base/text.h"

namespace sticky::stickyctl {
namespace {

using Row = std::vector<std::string>;

std::string Number(std::uint64_t value) {
  return Format("%llu", static_cast<unsigned long long>(value));
}

// Columns on a terminal, taking every character for one column wide.
std::size_t Width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string Percent(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "0%";
  return Format("%.0f%%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string PhaseText(const wire::StateInfo& state) {
  std::string text = wire::Name(state.phase);
  if (state.phase == wire::StatePhase::kFilling) {
    text += " " + Percent(state.bytes_done, state.arena_bytes);
  }
  return text;
}

std::string KeptBy(const wire::StateInfo& state) {
  if (state.pinned) return "pin";
  if (state.hold_count > 0) return Format("%u held", state.hold_count);
  return "-";
}

}  // namespace

std::string Duration(std::uint64_t ms) {
  const std::uint64_t tenths = ms / 100;  // of a second
  const std::uint64_t minutes = ms / 60'000;
  const std::uint64_t hours = minutes / 60;
  if (ms < 1000) return Number(ms) + " ms";
  if (minutes == 0) return Format("%.1f s", static_cast<double>(tenths) / 10);
  if (hours == 0) return Number(minutes) + " min";
  if (hours < 24) return Number(hours) + " h " + Number(minutes % 60) + " min";
  return Number(hours / 24) + " d " + Number(hours % 24) + " h";
}

std::string Table(const std::vector<std::string>& headings, const std::vector<Row>& rows) {
  std::vector<bool> to_the_right;
  Row titles;
  for (const std::string& heading : headings) {
    to_the_right.push_back(heading.starts_with('>'));
    titles.push_back(to_the_right.back() ? heading.substr(1) : heading);
  }
  std::vector<std::size_t> widths(titles.size(), 0);
  const auto measure = [&](const Row& row) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  };
  measure(titles);
  for (const Row& row : rows) measure(row);
  std::string out;
  const auto print = [&](const Row& row) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - Width(row[i]), ' ');
      line += (i > 0 ? "  " : "") + (to_the_right[i] ? space + row[i] : row[i] + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  print(titles);
  for (const Row& row : rows) print(row);
  return out;
}

std::string Fields(const std::vector<std::pair<std::string, std::string>>& fields) {
  std::size_t width = 0;
  for (const auto& [key, value] : fields) width = std::max(width, key.size());
  std::string out;
  for (const auto& [key, value] : fields) {
    out += key + ":" + std::string(width - key.size() + 2, ' ') + value + "\n";
  }
  return out;
}

std::string StatesText(const std::vector<wire::StateInfo>& states,
                       std::span<const Staleness> staleness) {
  if (states.empty()) return "no states; `stickyctl load TEMPLATE` builds one\n";
  Row headings = {"NAME", "PHASE", ">SIZE", ">TENSORS", ">LEASES", "KEPT", "AGE", "SOURCE"};
  std::vector<Row> rows;
  for (const wire::StateInfo& state : states) {
    rows.push_back({Printable(state.name), PhaseText(state), ByteCount(state.arena_bytes),
                    Number(state.tensor_count), Number(state.lease_count), KeptBy(state),
                    Duration(state.age_ms), Printable(state.source)});
  }
  if (!staleness.empty()) headings.insert(headings.end() - 1, "STALE");
  for (std::size_t i = 0; i < std::min(rows.size(), staleness.size()); ++i) {
    rows[i].insert(rows[i].end() - 1, Name(staleness[i].verdict));
  }
  return Table(headings, rows);
}

std::string StalenessText(const Staleness& staleness) {
  const std::string reason = Printable(staleness.reason);
  switch (staleness.verdict) {
    case Staleness::Verdict::kFresh:
      return "stale: no: its files are as they were loaded\n";
    case Staleness::Verdict::kStale:
      return "stale: yes: " + reason + "; to have it as it is now: evict and load\n";
    case Staleness::Verdict::kUnknown:
      break;
  }
  return "stale: unknown" + (reason.empty() ? "" : ": " + reason) + "\n";
}

std::string StateText(const wire::StateInfo& state) {
  const auto hex = [](const std::optional<Digest>& digest) {
    return digest ? ToHex(*digest) : std::string("-");
  };
  std::vector<std::pair<std::string, std::string>> fields = {
      {"name", Printable(state.name)},
      {"phase", PhaseText(state)},
      {"source", Printable(state.source)},
      {"device", Printable(state.device)},
      {"dtype", Name(state.dtype)},
      {"size", ByteCount(state.arena_bytes) + " (" + Number(state.arena_bytes) + " bytes)"},
      {"tensors", Number(state.tensor_count)},
      {"huge pages", state.huge_pages.empty() ? "-" : Printable(state.huge_pages)},
      {"leases", Number(state.lease_count)},
      {"kept by", KeptBy(state)},
      {"epoch", Number(state.epoch)},
      {"age", Duration(state.age_ms)},
      {"load took", state.load_ms == 0 ? "-" : Duration(state.load_ms)},
      {"content digest", hex(state.content_digest)},
      {"template digest", hex(state.template_digest)}};
  if (state.failure) {
    fields.emplace_back("failure", std::string(Name(state.failure->code)) + ": " +
                                       Printable(state.failure->message));
  }
  return Fields(fields);
}

std::string LeasesText(const std::vector<wire::LeaseInfo>& leases) {
  if (leases.empty()) return "no leases\n";
  std::vector<Row> rows;
  for (const wire::LeaseInfo& lease : leases) {
    rows.push_back({Number(lease.lease_id), Printable(lease.state), Number(lease.epoch),
                    Number(lease.pid), Number(lease.uid), Duration(lease.age_ms),
                    lease.hold ? "hold" : "use", Printable(lease.command)});
  }
  return Table({">LEASE", "STATE", ">EPOCH", ">PID", ">UID", "AGE", "KIND", "COMMAND"}, rows);
}

std::string StatusText(const wire::StatusReply& status) {
  const std::uint64_t free_bytes =
      status.budget_bytes - std::min(status.used_bytes, status.budget_bytes);
  return Fields(
      {{"stickyd", Printable(status.version) + (status.draining ? ", shutting down" : "")},
       {"pid", Format("%s, user %u, up %s", Number(status.pid).c_str(), status.uid,
                      Duration(status.uptime_ms).c_str())},
       {"socket", Printable(status.socket_path)},
       {"memory", ByteCount(status.used_bytes) + " of " + ByteCount(status.budget_bytes) +
                      " used (" + Percent(status.used_bytes, status.budget_bytes) + "), " +
                      ByteCount(free_bytes) + " free"},
       {"charged to", status.cgroup.empty() ? "-" : "cgroup " + Printable(status.cgroup)},
       {"states", Number(status.state_count)},
       {"leases", Number(status.lease_count)},
       {"connections",
        Format("%u of at most %u", status.connection_count, status.connection_count_max)},
       {"device", Printable(status.device) + ", dtype auto means " + Name(status.best_dtype)}});
}

std::string NotesText(const wire::ManifestView& manifest) {
  std::string text;
  for (std::uint32_t i = 0; i < manifest.note_count(); ++i) {
    text += "note: " + Printable(manifest.note(i)) + "\n";
  }
  return text;
}

std::string ManifestText(const wire::ManifestView& manifest) {
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
