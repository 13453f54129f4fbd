// What `stickyctl doctor` makes of what it found: pure functions from NodeFacts to findings.
//
// Thread: any thread.
// Source: docs/stickyctl.md, "doctor".

#ifndef STICKY_TOOLS_STICKYCTL_DOCTOR_FINDINGS_H_
#define STICKY_TOOLS_STICKYCTL_DOCTOR_FINDINGS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "tools/stickyctl/doctor/node_facts.h"

namespace sticky::stickyctl {

enum class Level {
  kOk = 0,   // what was found, for the record
  kNote,     // nothing is wrong, but somebody may wonder
  kWarning,  // works, but slower or less far than it could
  kProblem,  // does not work
};
inline constexpr int kLevelCount = 4;

// "ok", "note", "warning", "problem". The text is static.
const char* Name(Level level);

struct Finding {
  Level level = Level::kOk;
  std::string what;    // what it is about, a stable name: "socket", "budget", ...
  std::string found;   // printable
  std::string remedy;  // what to do; empty for kOk, and where nothing needs doing
};

// In the order of NodeFacts.
std::vector<Finding> Diagnose(const NodeFacts& facts);

std::size_t Count(const std::vector<Finding>& findings, Level level);

// Why no daemon answers decides; else kExitTryAgain when there is a problem: another node may do.
int ExitCodeOf(const NodeFacts& facts, const std::vector<Finding>& findings);

// Parts of Diagnose: each adds what it makes of its facts.
void CheckSocket(const NodeFacts& facts, std::vector<Finding>& findings);
void CheckDaemon(const NodeFacts& facts, std::vector<Finding>& findings);
void CheckMemory(const NodeFacts& facts, std::vector<Finding>& findings);
void CheckHugePages(const NodeFacts& facts, std::vector<Finding>& findings);
void CheckLimits(const NodeFacts& facts, std::vector<Finding>& findings);
void CheckKernel(const NodeFacts& facts, std::vector<Finding>& findings);
void CheckDevices(const NodeFacts& facts, std::vector<Finding>& findings);

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_DOCTOR_FINDINGS_H_
