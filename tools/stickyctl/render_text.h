// What people read: aligned tables, readable sizes and ages, and nothing that a terminal obeys.
//
// Thread: any thread.

#ifndef STICKY_TOOLS_STICKYCTL_RENDER_TEXT_H_
#define STICKY_TOOLS_STICKYCTL_RENDER_TEXT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "flatbuffers/wire_codec.h"
#include "flatbuffers/wire_manifest.h"
#include "tools/stickyctl/staleness.h"

namespace sticky::stickyctl {

// "12 ms", "3.4 s", "5 min", "2 h 10 min", "3 d 4 h".
std::string Duration(std::uint64_t ms);

// Columns as wide as their widest cell, two blanks between them, no blanks at a line's end. A
// column whose heading begins with '>' is set to the right.
std::string Table(const std::vector<std::string>& headings,
                  const std::vector<std::vector<std::string>>& rows);

// "key:  value" lines with the values below one another.
std::string Fields(const std::vector<std::pair<std::string, std::string>>& fields);

// `staleness`: of each state, for a column of its own; empty: none was asked for.
std::string StatesText(const std::vector<wire::StateInfo>& states,
                       std::span<const Staleness> staleness = {});
std::string StateText(const wire::StateInfo& state);
std::string StalenessText(const Staleness& staleness);
std::string LeasesText(const std::vector<wire::LeaseInfo>& leases);
std::string StatusText(const wire::StatusReply& status);
// A line for each note of the loader; nothing when there is none.
std::string NotesText(const wire::ManifestView& manifest);
std::string ManifestText(const wire::ManifestView& manifest);

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_RENDER_TEXT_H_
