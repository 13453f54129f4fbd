// Exit codes of our command-line programs, after sysexits.h, so that a scheduler can tell "try
// again" (75), "no daemon here" (69) and "your input is bad" (65, 66) from "usage" (64).
//
// Thread: any thread.
// Source: docs/exit-codes.md; sysexits.h(3head) of BSD.

#ifndef STICKY_TOOLS_CLIENT_EXIT_CODES_H_
#define STICKY_TOOLS_CLIENT_EXIT_CODES_H_

#include "base/result.h"

namespace sticky::tools {

enum ExitCode : int {
  kExitOk = 0,
  kExitUsage = 64,       // the command line is wrong
  kExitBadInput = 65,    // a template, model or input file is not what it should be
  kExitNoInput = 66,     // no such template, file or state
  kExitNoDaemon = 69,    // nobody answers on the socket
  kExitInternal = 70,    // a bug of ours
  kExitTryAgain = 75,    // loading, draining, over budget, limits, deadline passed
  kExitNotAllowed = 77,  // permissions
};

// The exit code for what a daemon, a file or a parser said. kUnavailable is kExitTryAgain here:
// that no daemon could be reached is known where it was tried.
int ExitCodeOf(Code code);

}  // namespace sticky::tools

#endif  // STICKY_TOOLS_CLIENT_EXIT_CODES_H_
