// Exit codes of stickyd and of the programs that talk to it: the one place where a failure becomes
// a number for a scheduler, after <sysexits.h>.
//
// Thread: any thread.
// Source: docs/exit-codes.md, whose table a test compares with this.

#ifndef STICKY_BASE_EXIT_CODES_H_
#define STICKY_BASE_EXIT_CODES_H_

#include "base/result.h"

namespace sticky {

inline constexpr int kExitOk = 0;
inline constexpr int kExitUsage = 64;       // EX_USAGE: the command line is wrong
inline constexpr int kExitBadInput = 65;    // EX_DATAERR: a template or model is wrong
inline constexpr int kExitNoInput = 66;     // EX_NOINPUT: no such file, no such state
inline constexpr int kExitNoDaemon = 69;    // EX_UNAVAILABLE: no daemon answers there
inline constexpr int kExitInternal = 70;    // EX_SOFTWARE: a bug of ours
inline constexpr int kExitOutput = 74;      // EX_IOERR: standard output could not be written
inline constexpr int kExitTryAgain = 75;    // EX_TEMPFAIL: loading, draining, full, a limit
inline constexpr int kExitNotAllowed = 77;  // EX_NOPERM: the message names the rule
inline constexpr int kExitStartAgain = 86;  // stickyd to its keeper: the next one takes over
inline constexpr int kExitCannotRun = 126;  // as in a shell: found, but not executable
inline constexpr int kExitNoCommand = 127;  // as in a shell: not found

// What was being done when it failed. The same Code means different things to a scheduler: no such
// socket is "no daemon here", no such state "wrong input".
enum class Stage {
  kUsage = 0,  // reading the command line
  kTemplate,   // reading the template
  kModel,      // finding and opening the model's files
  kConnect,    // reaching a daemon
  kTalk,       // the connection broke, or no answer came in time
  kAnswer,     // the daemon answered that it could not
  kServe,      // a daemon's own start and end
  kOutput,     // writing a file of results, or going on with one
};
inline constexpr int kStageCount = 8;

int ExitCode(Stage stage, Code code);

// "not_found", ...: stable names for --json. The text is static.
const char* Name(Code code);

}  // namespace sticky

#endif  // STICKY_BASE_EXIT_CODES_H_
