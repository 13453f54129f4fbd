// Descriptors that whoever started the daemon passed to it: a socket to listen on, and what an
// earlier daemon had kept.
//
// Thread: before there is a second one.
// Source: sd_listen_fds(3): LISTEN_FDS, LISTEN_FDNAMES, LISTEN_PID; the first is descriptor 3.

#ifndef STICKY_DAEMON_IO_INHERITED_H_
#define STICKY_DAEMON_IO_INHERITED_H_

#include <map>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace sticky::daemon {

// Most descriptors that are taken; whoever passes more does not mean us.
inline constexpr int kInheritedMax = 8192;
// What the names of all descriptors that we ask a keeper to keep begin with.
inline constexpr const char* kKeptPrefix = "sti.";

struct Inherited {
  UniqueFd socket;  // the service manager's, of whatever kind; invalid: none
  // By the name under which they were kept; several descriptors may share one.
  std::map<std::string, std::vector<UniqueFd>> kept;
};

// Takes what there is, once: the variables are gone afterwards, and no child inherits a descriptor.
// Descriptors that are for another process are left alone.
Inherited TakeInherited();

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_IO_INHERITED_H_
