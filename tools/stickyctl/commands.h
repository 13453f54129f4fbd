// The commands of stickyctl. Each gets its parsed options and gives the exit code.
//
// Thread: one thread at a time.
// Source: docs/stickyctl.md.

#ifndef STICKY_TOOLS_STICKYCTL_COMMANDS_H_
#define STICKY_TOOLS_STICKYCTL_COMMANDS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "tools/stickyctl/console.h"
#include "tools/stickyctl/options.h"

namespace sticky::stickyctl {

// What `--wait` without a number means, and `hold` and `run --template` without --wait.
inline constexpr std::uint32_t kDefaultWaitMs = 600'000;

struct Request {
  Options options;
  std::optional<std::string> socket;  // --socket, before or after the command
};

// fact_commands.cc
int Ls(const Request& request, Console& console);
int Show(const Request& request, Console& console);
int ShowStatus(const Request& request, Console& console);
int Leases(const Request& request, Console& console);
int Version(const Request& request, Console& console);

// state_commands.cc
int Load(const Request& request, Console& console);
int Hold(const Request& request, Console& console);

// build_command.cc
int Build(const Request& request, Console& console);

// end_commands.cc
int Evict(const Request& request, Console& console);
int Drain(const Request& request, Console& console);

// budget_command.cc
int SetBudget(const Request& request, Console& console);

// shutdown_command.cc
int Shutdown(const Request& request, Console& console);

// events_command.cc
int Events(const Request& request, Console& console);

// top_command.cc
int Top(const Request& request, Console& console);

// doctor_command.cc
int Doctor(const Request& request, Console& console);

// run_command.cc
int Run(const Request& request, Console& console);

// template_check.cc
int TemplateCheck(const Request& request, Console& console);

// template_list.cc
int TemplateLs(const Request& request, Console& console);

// template_init.cc
int TemplateInit(const Request& request, Console& console);

// config_check.cc
int ConfigCheck(const Request& request, Console& console);

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_COMMANDS_H_
