// stickyctl doctor: what this node has for states, what is wrong with it, and what to do.

#include <algorithm>
#include <utility>

#include <unistd.h>

#include "base/cpu_features.h"
#include "base/text.h"
#include "tools/client/daemon_client.h"
#include "tools/stickyctl/commands.h"
#include "tools/stickyctl/doctor/gather_facts.h"
#include "tools/stickyctl/doctor/render_findings.h"

namespace sticky::stickyctl {
namespace {

using client::DaemonClient;
using client::Outcome;

constexpr const char* kRealRoot = "";

struct Answers {
  wire::StatusReply status;
  wire::ListReply list;
  wire::TemplatesReply templates;
};

Outcome<Answers> AskDaemon(const std::optional<std::string>& path) {
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(path));
  Answers answers;
  STICKY_STEP(answers.status, daemon.AskFor<wire::StatusReply>(wire::StatusRequest{}));
  STICKY_STEP(answers.list, daemon.AskFor<wire::ListReply>(wire::ListRequest{}));
  STICKY_STEP(answers.templates, daemon.AskFor<wire::TemplatesReply>(wire::TemplatesRequest{}));
  return answers;
}

DaemonFacts GatherDaemon(const std::optional<std::string>& path) {
  DaemonFacts facts;
  Outcome<Answers> asked = AskDaemon(path);
  if (!asked.ok()) {
    facts.failure = asked.failed().error;
    facts.exit_code = asked.failed().exit_code();
    return facts;
  }
  const Answers answers = std::move(asked).value();
  const wire::StatusReply& status = answers.status;
  facts.failure.reset();
  facts.version = status.version;
  facts.pid = status.pid;
  facts.uid = status.uid;
  facts.budget_bytes = status.budget_bytes;
  facts.used_bytes = status.used_bytes;
  facts.connection_count_max = status.connection_count_max;
  facts.shutting_down = status.draining;
  facts.keeper = status.keeper;
  facts.keeper_lost = status.keeper_lost;
  facts.foreign_count = status.foreign_count;
  facts.foreign_bytes = status.foreign_bytes;
  for (const wire::StateInfo& state : answers.list.states) {
    facts.largest_state_bytes = std::max(facts.largest_state_bytes, state.arena_bytes);
  }
  for (const wire::InstalledTemplate& installed : answers.templates.templates) {
    if (installed.problem.empty()) {
      ++facts.template_count;
    } else {
      facts.template_problems.push_back(installed.problem);
    }
  }
  const std::string process = Format("%llu", static_cast<unsigned long long>(status.pid));
  facts.limits = GatherLimits(kRealRoot, process);
  facts.group = GatherGroup(kRealRoot, process);
  return facts;
}

NodeFacts Gather(const Request& request) {
  NodeFacts facts;
  facts.stickyctl_version = STICKY_VERSION;
  facts.protocol_min = wire::kProtocolMin;
  facts.protocol_max = wire::kProtocolMax;
  facts.uid = ::geteuid();
  // Before anything is asked: asking may start a daemon that its service manager listens for.
  facts.socket = GatherSocket(request.socket);
  facts.daemon = GatherDaemon(request.socket);
  facts.memory = GatherMemory(kRealRoot);
  facts.huge_pages = GatherHugePages(kRealRoot);
  facts.limits = GatherLimits(kRealRoot, "self");
  facts.kernel = GatherKernelSettings(kRealRoot);
  TryKernelFeatures(facts.kernel);
  facts.best_dtype = BestMatrixDtype();
  facts.gpu_sign = FindGpuSign(kRealRoot);
  GatherLibrary(facts);
  return facts;
}

}  // namespace

int Doctor(const Request& request, Console& console) {
  const NodeFacts facts = Gather(request);
  const std::vector<Finding> findings = Diagnose(facts);
  const int exit_code = ExitCodeOf(facts, findings);
  Json document = Document();
  document["findings"] = FindingsJson(findings);
  if (exit_code == kExitOk || !console.json()) console.Print(document, FindingsText(findings));
  if (exit_code == kExitOk) return exit_code;
  const std::string what =
      Format("doctor: %zu of what was found must be mended, see %s",
             Count(findings, Level::kProblem), console.json() ? "findings" : "above");
  const Code code = facts.daemon.failure ? facts.daemon.failure->code : Code::kUnavailable;
  return console.FailWith(exit_code, {Stage::kConnect, Error{code, what}}, document);
}

}  // namespace sticky::stickyctl
