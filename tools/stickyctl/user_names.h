// UserNames: what people call the users that the daemon knows by number.
//
// Thread: one thread at a time.

#ifndef STICKY_TOOLS_STICKYCTL_USER_NAMES_H_
#define STICKY_TOOLS_STICKYCTL_USER_NAMES_H_

#include <cstdint>
#include <functional>
#include <string>

namespace sticky::stickyctl {

// The name of the user `uid`, printable; the number itself when there is no name.
using UserNames = std::function<std::string(std::uint32_t uid)>;

// As this node knows them (getpwuid_r); each is looked up once.
// Blocking: for as long as the node's user database takes, which may be on the network.
UserNames UsersOfThisNode();

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_USER_NAMES_H_
