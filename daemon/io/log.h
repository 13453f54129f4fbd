// One line per event on stderr, with a level; the journal's own levels when it listens.
//
// Thread: loop thread only.
// Source: sd-daemon(3), for the <N> prefixes.

#ifndef STICKY_DAEMON_IO_LOG_H_
#define STICKY_DAEMON_IO_LOG_H_

#include <string>

#include "daemon/core/actions.h"
#include "daemon/core/line_budget.h"

namespace sticky::daemon {

class Logger {
 public:
  // Lines of a level past `most` are dropped; so are warnings past LineBudget, with their count
  // told.
  explicit Logger(Log::Level most);
  // `text`: safe to print (see sticky::Escape), without a line end.
  void Line(Log::Level level, const std::string& text);

 private:
  void Write(Log::Level level, const std::string& text) const;

  Log::Level most_;
  bool journal_;
  LineBudget warnings_;
};

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_IO_LOG_H_
