#include "tools/stickyctl/doctor/findings.h"

#include <algorithm>

namespace sticky::stickyctl {

const char* Name(Level level) {
  constexpr const char* kNames[kLevelCount] = {"ok", "note", "warning", "problem"};
  return kNames[static_cast<int>(level)];
}

std::vector<Finding> Diagnose(const NodeFacts& facts) {
  std::vector<Finding> findings;
  for (const auto check : {CheckSocket, CheckDaemon, CheckMemory, CheckHugePages, CheckLimits,
                           CheckKernel, CheckDevices}) {
    check(facts, findings);
  }
  return findings;
}

std::size_t Count(const std::vector<Finding>& findings, Level level) {
  return static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [level](const Finding& finding) { return finding.level == level; }));
}

int ExitCodeOf(const NodeFacts& facts, const std::vector<Finding>& findings) {
  if (facts.daemon.failure) return facts.daemon.exit_code;
  return Count(findings, Level::kProblem) > 0 ? kExitTryAgain : kExitOk;
}

}  // namespace sticky::stickyctl
