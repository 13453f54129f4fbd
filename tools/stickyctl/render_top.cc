#include "tools/stickyctl/render_top.h"

#include <algorithm>
#include <tuple>

#include "base/text.h"
#include "tools/stickyctl/render_text.h"
#include "tools/stickyctl/text_table.h"

namespace sticky::stickyctl {
namespace {

using Lines = std::vector<std::string>;

constexpr std::size_t kBarCells = 30;
constexpr std::size_t kNameColumns = 40;

std::string MemoryText(const wire::StatusReply& status) {
  const std::uint64_t used = std::min(status.used_bytes, status.budget_bytes);
  const double share = status.budget_bytes == 0
                           ? 0.0
                           : static_cast<double>(used) / static_cast<double>(status.budget_bytes);
  const auto cells = static_cast<std::size_t>(share * kBarCells);
  return "memory [" + std::string(cells, '#') + std::string(kBarCells - cells, '.') + "] " +
         Percent(used, status.budget_bytes) + "  " + ByteCount(status.used_bytes) + " of " +
         ByteCount(status.budget_bytes) + ", " +
         (status.used_bytes > status.budget_bytes
              ? ByteCount(status.used_bytes - status.budget_bytes) + " over it"
              : ByteCount(status.budget_bytes - used) + " free");
}

// ", 12.5 a second": nothing without an earlier page.
std::string AttachRate(const wire::StatusReply& now, const wire::StatusReply* earlier) {
  const bool is_later = earlier != nullptr && earlier->nonce == now.nonce &&
                        earlier->uptime_ms < now.uptime_ms &&
                        earlier->attach_total <= now.attach_total;
  if (!is_later) return "";
  const auto attaches = static_cast<double>(now.attach_total - earlier->attach_total);
  const auto ms = static_cast<double>(now.uptime_ms - earlier->uptime_ms);
  return Format(", %.1f a second", attaches * 1000 / ms);
}

Lines NodeLines(const wire::StatusReply& status, const wire::StatusReply* earlier) {
  return {"stickyd " + Printable(status.version) + ", pid " + Number(status.pid) + ", up " +
              Duration(status.uptime_ms) +
              (status.draining ? ", DRAINING: no new leases, no new loads" : ""),
          MemoryText(status),
          Format("states %u  leases %u  loads %u  queue %u  connections %u of %u",
                 status.state_count, status.lease_count, status.load_count, status.queue_count,
                 status.connection_count, status.connection_count_max),
          "attaches " + Number(status.attach_total) + AttachRate(status, earlier) +
              "  evictions for room " + Number(status.evict_total) + "  refusals " +
              Number(status.refusal_total)};
}

std::string IdleText(const wire::StateInfo& state) {
  const bool is_idle = state.phase == wire::StatePhase::kReady && state.lease_count == 0;
  return is_idle ? Duration(state.idle_ms) : "-";
}

// How far a load is, or what keeps it waiting.
std::string LoadText(const wire::StateInfo& state) {
  if (state.queue_place > 0) return QueueText(state);
  if (state.phase != wire::StatePhase::kFilling) return "-";
  return ByteCount(state.bytes_done) + " of " + ByteCount(state.arena_bytes);
}

Row RowOf(const wire::StateInfo& state, const UserNames& users) {
  return {Cell(state.name, kNameColumns),
          PhaseText(state),
          ByteCount(state.arena_bytes),
          Number(state.lease_count),
          Number(state.hold_count),
          IdleText(state),
          users(state.uid),
          LoadText(state)};
}

Lines StateLines(std::vector<wire::StateInfo> states, const UserNames& users) {
  std::stable_sort(states.begin(), states.end(), [](const auto& a, const auto& b) {
    return std::tie(b.lease_count, a.idle_ms, a.name) < std::tie(a.lease_count, b.idle_ms, b.name);
  });
  Columns columns({"STATE", "PHASE", ">SIZE", ">LEASES", ">HOLDS", ">IDLE", "OWNER", "LOAD"});
  std::vector<Row> rows;
  for (const wire::StateInfo& state : states) {
    rows.push_back(RowOf(state, users));
    columns.Measure(rows.back());
  }
  Lines lines = {columns.Headings()};
  for (const Row& row : rows) lines.push_back(columns.Line(row));
  for (std::string& line : lines) line.pop_back();  // the line break
  return lines;
}

}  // namespace

std::string TopText(const TopPage& page, const wire::StatusReply* earlier, PageSize size,
                    const UserNames& users) {
  Lines lines = NodeLines(page.status, earlier);
  lines.emplace_back();
  const Lines states = StateLines(page.states, users);
  lines.insert(lines.end(), states.begin(), states.end());
  const auto rows = static_cast<std::size_t>(std::max(size.rows, 0));
  if (rows > 0 && lines.size() > rows) {
    const std::size_t hidden = lines.size() - rows + 1;
    lines.resize(rows);
    lines.back() = Format("... and %zu more", hidden);
  }
  std::string text;
  for (const std::string& line : lines) {
    const auto columns = static_cast<std::size_t>(std::max(size.columns, 0));
    text += columns == 0 ? line : std::string(FirstColumns(line, columns));
    text += '\n';
  }
  return text;
}

}  // namespace sticky::stickyctl
