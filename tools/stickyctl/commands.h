// The commands of stickyctl. Each returns an exit code (tools/client/exit_codes.h), prints facts on
// stdout and everything else on stderr.
//
// Thread: one thread at a time.
// Source: docs/stickyctl.md.

#ifndef STICKY_TOOLS_STICKYCTL_COMMANDS_H_
#define STICKY_TOOLS_STICKYCTL_COMMANDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace sticky::tools {

struct Common {
  std::string socket_path;  // empty: the default, see wire::DefaultSocketPath
  bool json = false;
};

// How long --wait waits when no time is given, milliseconds.
inline constexpr std::uint32_t kDefaultWaitMs = 600'000;

struct LoadOptions {
  std::string template_path;
  std::uint32_t wait_ms = 0;  // 0: do not wait
};
struct RunOptions {
  std::string state;
  std::string template_path;  // empty: the state must be there
  std::uint32_t wait_ms = 0;
  std::vector<std::string> command;
};

int Load(const Common& common, const LoadOptions& options);
int Hold(const Common& common, const LoadOptions& options);
int List(const Common& common);
int Show(const Common& common, const std::string& state, bool tensors);
int DaemonStatus(const Common& common);
int Leases(const Common& common);
int Evict(const Common& common, const std::string& state, std::uint32_t wait_ms);
int Version(const Common& common);
// Takes a lease and becomes the command (exec); returns only when that failed: 126 when the command
// cannot be executed, 127 when it is not found, as a shell does.
int Run(const Common& common, const RunOptions& options);

// Reports a failure as the common options ask, and gives its exit code.
int Fail(const Common& common, const Error& error, int exit_code);
int FailFromDaemon(const Common& common, const Error& error);

}  // namespace sticky::tools

#endif  // STICKY_TOOLS_STICKYCTL_COMMANDS_H_
