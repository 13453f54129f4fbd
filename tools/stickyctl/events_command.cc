// The command `events`: what happened on this node, and what happens.

#include <utility>

#include "base/deadline.h"
#include "tools/client/daemon_client.h"
#include "tools/stickyctl/commands.h"
#include "tools/stickyctl/render_events.h"
#include "tools/stickyctl/signals.h"

namespace sticky::stickyctl {
namespace {

using client::DaemonClient;
using client::Failed;
using client::Outcome;

constexpr std::uint32_t kFollowMs = 60'000;  // the daemon is asked anew after so long

void PrintEvents(const wire::EventsReply& reply, EventTable& table, const UserNames& users,
                 Console& console) {
  if (reply.lost > 0 && console.json()) {
    Json document = Document();
    document["lost"] = reply.lost;
    console.Print(document, "");
  } else if (reply.lost > 0) {
    console.Note(LostText(reply.lost));
  }
  if (!console.json()) return console.Print({}, table.Lines(reply.events, users));
  for (const wire::Event& event : reply.events) console.Print(EventJson(event), "");
}

// Prints what there is after event `after`, up to now.
Outcome<Ok> PrintKept(DaemonClient& daemon, std::uint64_t after, Console& console) {
  const std::int64_t now_ms = WallMs();
  const UserNames users = UsersOfThisNode();
  EventTable table;
  if (!console.json()) console.Print({}, table.Headings());
  for (;;) {
    STICKY_STEP(const wire::EventsReply reply,
                daemon.AskFor<wire::EventsReply>(wire::EventsRequest{after, 0}));
    PrintEvents(reply, table, users, console);
    // On a busy node there is always one more.
    if (reply.events.empty() || reply.events.back().time_ms >= now_ms) return Ok{};
    if (!console.CanPrint()) return Ok{};
    after = reply.last;
  }
}

// A daemon that refuses to let anybody wait because it ends is one that goes away.
Failed AsDeparture(DaemonClient& daemon, Failed failed) {
  if (failed.stage != Stage::kAnswer || failed.error.code != Code::kUnavailable) return failed;
  Outcome<wire::StatusReply> status = daemon.AskFor<wire::StatusReply>(wire::StatusRequest{});
  if (!status.ok() || status.value().draining) failed.stage = Stage::kTalk;
  return failed;
}

// Prints what comes, until a signal or the daemon's end.
Outcome<Ok> Follow(DaemonClient& daemon, const UniqueFd& signals, std::uint64_t after,
                   Console& console) {
  const UserNames users = UsersOfThisNode();
  EventTable table;
  if (!console.json()) console.Print({}, table.Headings());
  while (console.CanPrint()) {
    STICKY_STEP(const std::uint32_t id, daemon.Send(wire::EventsRequest{after, kFollowMs}));
    constexpr int kTimeoutMs = static_cast<int>(kFollowMs + client::kAnswerMs);
    if (SignalComesFirst(signals, daemon.fd(), kTimeoutMs)) return Ok{};
    Outcome<wire::EventsReply> reply = daemon.Receive<wire::EventsReply>(id);
    if (!reply.ok()) return AsDeparture(daemon, reply.failed());
    PrintEvents(reply.value(), table, users, console);
    after = reply.value().last;
  }
  return Ok{};
}

Outcome<Ok> TellEvents(const Request& request, Console& console) {
  STICKY_STEP(const std::uint64_t after,
              client::During(Stage::kUsage, request.options.Number("after")));
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(request.socket));
  if (!request.options.Has("follow")) return PrintKept(daemon, after, console);
  STICKY_STEP(const UniqueFd signals,
              client::During(Stage::kTalk, SignalsAsDescriptor(kEndingSignals)));
  return Follow(daemon, signals, after, console);
}

}  // namespace

int Events(const Request& request, Console& console) {
  const Outcome<Ok> told = TellEvents(request, console);
  return told.ok() ? kExitOk : console.Fail(told.failed());
}

}  // namespace sticky::stickyctl
