#include "tools/stickyctl/render_events.h"

#include <array>
#include <ctime>

#include "base/text.h"

namespace sticky::stickyctl {
namespace {

constexpr std::size_t kNameColumns = 128;

Row RowOf(const wire::Event& event, const UserNames& users) {
  const bool has_state = !event.state.empty();
  return {Number(event.sequence),
          LocalTime(event.time_ms),
          wire::Name(event.kind),
          has_state ? Cell(event.state, kNameColumns) : "-",
          has_state ? Number(event.epoch) : "-",
          users(event.uid),
          event.pid == 0 ? "-" : Number(event.pid),
          Printable(event.text)};
}

}  // namespace

std::string LocalTime(std::int64_t time_ms) {
  const std::int64_t ms = ((time_ms % 1000) + 1000) % 1000;
  const std::time_t seconds = (time_ms - ms) / 1000;
  std::tm local{};
  if (::localtime_r(&seconds, &local) == nullptr)
    return Number(static_cast<std::uint64_t>(time_ms));
  std::array<char, 64> date{};
  std::array<char, 8> zone{};  // "+0100"
  std::strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%S", &local);
  std::strftime(zone.data(), zone.size(), "%z", &local);
  const std::string offset(zone.data());
  return Format("%s.%03d", date.data(), static_cast<int>(ms)) + offset.substr(0, 3) + ":" +
         offset.substr(3);
}

std::string LostText(std::uint64_t lost) {
  return Format(
      "%llu events before these are not kept any more (journal.events of the node config "
      "is how many are)",
      static_cast<unsigned long long>(lost));
}

EventTable::EventTable()
    : columns_({">EVENT", "TIME", "KIND", "STATE", ">EPOCH", "USER", ">PID", "TEXT"}) {
  // What is common, so that the first lines of a journal that is followed stand as the later ones.
  columns_.Measure({"99999", "2026-12-03T09:30:00.250+01:00", "load-cancelled", "llama-3.1-8b",
                    "100", "nobody", "1234567", ""});
}

std::string EventTable::Lines(const std::vector<wire::Event>& events, const UserNames& users) {
  std::vector<Row> rows;
  for (const wire::Event& event : events) {
    rows.push_back(RowOf(event, users));
    columns_.Measure(rows.back());
  }
  std::string text;
  for (const Row& row : rows) text += columns_.Line(row);
  return text;
}

}  // namespace sticky::stickyctl
