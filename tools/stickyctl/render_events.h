// Events as people read them: a line each, which may come one after another.
//
// Thread: any thread.
// Source: docs/stickyctl.md.

#ifndef STICKY_TOOLS_STICKYCTL_RENDER_EVENTS_H_
#define STICKY_TOOLS_STICKYCTL_RENDER_EVENTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "flatbuffers/wire_codec.h"
#include "tools/stickyctl/text_table.h"
#include "tools/stickyctl/user_names.h"

namespace sticky::stickyctl {

// ISO 8601 in this process's time zone, to the millisecond: "2026-12-03T09:30:00.250+01:00".
// time_ms: since the epoch.
std::string LocalTime(std::int64_t time_ms);

// "12 events before these were lost: ...", for people beside the facts.
std::string LostText(std::uint64_t lost);

// Grows with what comes: the columns are as wide as their widest cell so far.
class EventTable {
 public:
  EventTable();

  std::string Headings() const { return columns_.Headings(); }
  // Several lines. `users`: names whoever caused them.
  std::string Lines(const std::vector<wire::Event>& events, const UserNames& users);

 private:
  Columns columns_;
};

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_RENDER_EVENTS_H_
