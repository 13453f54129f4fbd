// `stickyctl shutdown`: ends the daemon, with its states or without.

#include "base/text.h"
#include "tools/client/daemon_client.h"
#include "tools/stickyctl/commands.h"

namespace sticky::stickyctl {
namespace {

using client::DaemonClient;
using client::Outcome;

Outcome<wire::ShutdownReply> ShutDownOn(const Request& request) {
  if (request.options.Has("keep-states") && request.options.Has("drop-states")) {
    return client::Failed{
        Stage::kUsage,
        Error{Code::kInvalidArgument,
              "shut the daemon down: --keep-states and --drop-states contradict each other"}};
  }
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(request.socket));
  return daemon.AskFor<wire::ShutdownReply>(
      wire::ShutdownRequest{request.options.Has("keep-states")});
}

std::string States(std::uint32_t count) {
  return Format("%u %s", count, count == 1 ? "state" : "states");
}

}  // namespace

int Shutdown(const Request& request, Console& console) {
  Outcome<wire::ShutdownReply> reply = ShutDownOn(request);
  if (!reply.ok()) return console.Fail(reply.failed());
  const bool keeps = request.options.Has("keep-states");
  const wire::ShutdownReply& ended = reply.value();
  Json document = Document();
  document["keeps_states"] = keeps;
  document["state_count"] = ended.state_count;
  document["lease_count"] = ended.lease_count;
  std::string text =
      "stickyd ends; " + States(ended.state_count) +
      (keeps ? " wait for the next one, which its keeper starts now" : " end with it");
  if (ended.lease_count > 0) {
    text += Format(keeps ? "; %u leases end, and what their holders mapped stays valid"
                         : "; %u leases end, but what their holders mapped stays valid, and in "
                           "memory until they let go",
                   ended.lease_count);
  }
  console.Print(document, text + "\n");
  return kExitOk;
}

}  // namespace sticky::stickyctl
