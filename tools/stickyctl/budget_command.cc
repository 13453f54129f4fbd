// `stickyctl budget`: how much memory the node's states may have, from now on.

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/deadline.h"
#include "base/text.h"
#include "config/node_config.h"
#include "tools/client/daemon_client.h"
#include "tools/stickyctl/commands.h"
#include "tools/stickyctl/render_text.h"

namespace sticky::stickyctl {
namespace {

using client::DaemonClient;
using client::Failed;
using client::Outcome;

Outcome<std::uint64_t> ReadSize(const Request& request) {
  const std::string& text = request.options.operands()[0];
  STICKY_STEP(const std::uint64_t bytes, client::During(Stage::kUsage, ParseByteCount(text)));
  if (bytes >= config::kMemoryBytesMin) return bytes;
  return Failed{Stage::kUsage,
                Error{Code::kInvalidArgument,
                      Format("read the budget '%s': that is %llu bytes; want 1MiB or more, as 8GiB",
                             Escape(text).c_str(), static_cast<unsigned long long>(bytes))}};
}

// The daemon's answer; after the wait, or once what is used fits, how it is then.
Outcome<wire::StatusReply> SetOn(const Request& request) {
  STICKY_STEP(const std::uint64_t bytes, ReadSize(request));
  STICKY_STEP(const std::uint32_t wait_ms,
              client::During(Stage::kUsage, request.options.WaitMs(kDefaultWaitMs)));
  const Deadline deadline = Deadline::AfterMs(wait_ms);
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(request.socket));
  STICKY_STEP(wire::StatusReply status,
              daemon.AskFor<wire::StatusReply>(wire::BudgetRequest{bytes}));
  while (status.used_bytes > status.budget_bytes && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    STICKY_STEP(status, daemon.AskFor<wire::StatusReply>(wire::StatusRequest{}));
  }
  return status;
}

std::string OverText(const wire::StatusReply& status) {
  return ByteCount(status.used_bytes - status.budget_bytes) +
         " more are in use or pinned (`stickyctl leases`, `stickyctl ls`): what is in use goes "
         "with its last lease, and until the rest fits nothing else is loaded";
}

}  // namespace

int SetBudget(const Request& request, Console& console) {
  Outcome<wire::StatusReply> outcome = SetOn(request);
  if (!outcome.ok()) return console.Fail(outcome.failed());
  const wire::StatusReply& status = outcome.value();
  Json document = Document();
  document["daemon"] = StatusJson(status);
  const bool fits = status.used_bytes <= status.budget_bytes;
  const std::string text = "the budget is " + ByteCount(status.budget_bytes) + ", " +
                           ByteCount(status.used_bytes) + " are used";
  if (fits || !request.options.Has("wait")) {
    console.Print(document, text + (fits ? "" : "; " + OverText(status)) + "\n");
    return kExitOk;
  }
  return console.Fail({Stage::kAnswer, Error{Code::kUnavailable, text + "; " + OverText(status)}},
                      std::move(document));
}

}  // namespace sticky::stickyctl
