// The page of `stickyctl top`: a function from what the daemon told to text.
//
// Thread: any thread.
// Source: docs/stickyctl.md.

#ifndef STICKY_TOOLS_STICKYCTL_RENDER_TOP_H_
#define STICKY_TOOLS_STICKYCTL_RENDER_TOP_H_

#include <string>
#include <vector>

#include "flatbuffers/wire_codec.h"
#include "tools/stickyctl/user_names.h"

namespace sticky::stickyctl {

struct TopPage {
  wire::StatusReply status;
  std::vector<wire::StateInfo> states;
};

struct PageSize {  // 0: as much as there is
  int columns = 0;
  int rows = 0;
};

// The node in four lines, then its states, those in use first and of the others those that were
// used last. No line has more than size.columns columns, and there are at most size.rows; what has
// no room is counted. earlier: an older page of the same daemon, for rates; may be null.
std::string TopText(const TopPage& page, const wire::StatusReply* earlier, PageSize size,
                    const UserNames& users);

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_RENDER_TOP_H_
