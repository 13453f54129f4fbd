// --replace and --in-place: what a new state means for one of the same name.
//
// Thread: any thread.

#ifndef STICKY_TOOLS_STICKYCTL_PLACEMENT_H_
#define STICKY_TOOLS_STICKYCTL_PLACEMENT_H_

#include <string>

#include "flatbuffers/wire_codec.h"
#include "tools/client/outcome.h"
#include "tools/stickyctl/options.h"

namespace sticky::stickyctl {

// command: for the message. Errors: kUsage when both are given.
inline client::Outcome<wire::Placement> PlacementOf(const std::string& command,
                                                    const Options& options) {
  const bool replaces = options.Has("replace");
  const bool in_place = options.Has("in-place");
  if (replaces && in_place) {
    return client::Failed{
        Stage::kUsage,
        Error{Code::kInvalidArgument,
              command + ": --replace builds the new state beside the old one, --in-place "
                        "drains the old one first; give one of them"}};
  }
  if (replaces) return wire::Placement::kReplace;
  return in_place ? wire::Placement::kInPlace : wire::Placement::kJoin;
}

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_PLACEMENT_H_
