// Shows how far a load or a build is: a bar on a terminal, now and then a whole line anywhere else.
//
// Thread: one thread at a time.

#ifndef STICKY_TOOLS_STICKYCTL_PROGRESS_H_
#define STICKY_TOOLS_STICKYCTL_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "flatbuffers/wire_codec.h"

namespace sticky::stickyctl {

class Progress {
 public:
  struct Look {
    bool bar = false;           // a terminal; else lines
    int columns = 80;           // of the terminal
    const char* verb = "load";  // or "build"; static
  };
  // `write` gets text to print as it is; it must outlive this.
  Progress(Look look, std::function<void(const std::string&)> write);

  // Of lines: one for each tenth that is done and one every ten seconds, never two in one second;
  // and one for each new place in the queue.
  void Show(const wire::StateInfo& state, std::int64_t now_ns);

  // The load succeeded: its lines, if there were any, end with one of 100 %. arena_bytes: what the
  // state has taken. A bar stays as it is, for End.
  void Done(std::uint64_t arena_bytes);

  // Wipes the bar, so that what is printed next stands on a clean line.
  void End();

 private:
  std::string Facts(const wire::StateInfo& state, std::int64_t now_ns);
  std::string Bar(const wire::StateInfo& state, const std::string& facts) const;

  Look look_;
  std::function<void(const std::string&)> write_;
  bool bar_is_up_ = false;
  std::int64_t filling_since_ns_ = -1;  // -1: not yet
  std::uint64_t bytes_then_ = 0;        // that were done at filling_since_ns_
  std::int64_t line_ns_ = -1;           // when the last line was written
  std::uint64_t tenth_ = 0;             // of the last line
  int phase_ = -1;                      // of the last line
  std::uint32_t place_ = 0;             // of the last line, in the queue
  bool is_whole_ = false;               // the last line said 100 %
  std::string name_;                    // of the state, printable
};

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_PROGRESS_H_
