// Progress of a load on stderr: a bar on a terminal, plain lines in a log.
//
// Thread: one thread at a time.

#ifndef STICKY_TOOLS_STICKYCTL_PROGRESS_H_
#define STICKY_TOOLS_STICKYCTL_PROGRESS_H_

#include <cstdint>
#include <string>

#include "flatbuffers/wire_codec.h"

namespace sticky::tools {

class Progress {
 public:
  Progress();
  ~Progress();  // ends the bar's line
  void Show(const wire::StateInfo& state);

 private:
  const bool terminal_;
  bool bar_shown_ = false;
  std::int64_t started_ns_;
  std::int64_t shown_ns_ = 0;
  int shown_tenth_ = -1;
};

}  // namespace sticky::tools

#endif  // STICKY_TOOLS_STICKYCTL_PROGRESS_H_
