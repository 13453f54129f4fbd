// The three standard streams, made safe before anything else is opened.
//
// Thread: from main, before any other thread.

#ifndef STICKY_TOOLS_CLIENT_STANDARD_STREAMS_H_
#define STICKY_TOOLS_CLIENT_STANDARD_STREAMS_H_

#include <fcntl.h>
#include <unistd.h>

namespace sticky::client {

// A descriptor that we open must not become a standard stream that nobody gave us. What stands in
// its place cannot be written to, so that output which nobody can see is no success.
inline void FillStandardStreams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDONLY));
  }
}

}  // namespace sticky::client

#endif  // STICKY_TOOLS_CLIENT_STANDARD_STREAMS_H_
