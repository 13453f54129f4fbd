// The commands of stickyctl: their names, what they say of themselves, their options, and what runs
// them. `--help` and the manual page are made from it.
//
// Thread: any thread.

#ifndef STICKY_TOOLS_STICKYCTL_COMMAND_TABLE_H_
#define STICKY_TOOLS_STICKYCTL_COMMAND_TABLE_H_

#include <span>
#include <string_view>

#include "tools/stickyctl/commands.h"

namespace sticky::stickyctl {

struct Command {
  std::string_view name;  // one word, or two: "template check"
  const char* usage;      // after "stickyctl "
  const char* summary;    // one line
  const char* details;
  Grammar grammar;
  int (*run)(const Request&, Console&);
};

// In the order of the help.
std::span<const Command> Commands();

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_COMMAND_TABLE_H_
