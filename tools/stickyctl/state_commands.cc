// The commands that build and keep states: load, hold.

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "base/job.h"
#include "base/text.h"
#include "tools/client/daemon_client.h"
#include "tools/client/prepare_load.h"
#include "tools/stickyctl/commands.h"
#include "tools/stickyctl/placement.h"
#include "tools/stickyctl/render_policy.h"
#include "tools/stickyctl/render_text.h"
#include "tools/stickyctl/signals.h"

namespace sticky::stickyctl {
namespace {

using client::DaemonClient;
using client::Outcome;
using client::PreparedLoad;

Outcome<std::uint32_t> WaitMs(const Request& request, bool wait_by_default) {
  if (wait_by_default && !request.options.Has("wait")) return kDefaultWaitMs;
  return client::During(Stage::kUsage, request.options.WaitMs(kDefaultWaitMs));
}

Outcome<wire::LoadReply> LoadShowingProgress(DaemonClient& daemon, const PreparedLoad& load,
                                             const Console& console) {
  Progress progress = console.MakeProgress();
  Outcome<wire::LoadReply> reply = daemon.Load(
      load.request, load.files,
      [&progress](const wire::StateInfo& state) { progress.Show(state, MonotonicNs()); });
  if (reply.ok()) progress.Done(reply.value().state.arena_bytes);
  progress.End();
  return reply;
}

struct Loaded {
  wire::LoadReply reply;
  std::vector<std::string> policy_differs;  // as PolicyDifferences, when it was joined
};

Outcome<Loaded> LoadOn(const Request& request, const Console& console) {
  STICKY_STEP(const std::uint32_t wait_ms, WaitMs(request, /*wait_by_default=*/false));
  STICKY_STEP(const wire::Placement placement, PlacementOf("load", request.options));
  const client::WideDescriptorLimit wide;
  STICKY_STEP(PreparedLoad load, client::PrepareLoad(request.options.operands()[0]));
  load.request.wait_ms = wait_ms;
  load.request.placement = placement;
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(request.socket));
  STICKY_STEP(wire::LoadReply reply, LoadShowingProgress(daemon, load, console));
  std::vector<std::string> differs = PolicyDifferences(load.request.policy, reply.state.policy);
  return Loaded{std::move(reply), std::move(differs)};
}

void NoteKeptPolicy(const Loaded& loaded, Console& console) {
  const std::string words = KeptPolicyText(loaded.reply.state.name, loaded.policy_differs);
  if (!words.empty()) console.Note(words);
}

std::string LoadText(const wire::LoadReply& reply) {
  const wire::StateInfo& state = reply.state;
  const std::string name = "'" + Printable(state.name) + "'";
  if (state.phase != wire::StatePhase::kReady) {
    const std::string where = state.queue_place > 0 ? " at " + QueueText(state) : "";
    return "state " + name + " is " + wire::Name(state.phase) + where + "; `stickyctl show " +
           Printable(state.name) + "` tells how far it is" + ClosedText(state) + "\n";
  }
  return "state " + name + (reply.joined ? " was there already: " : " is ready: ") +
         ByteCount(state.arena_bytes) +
         (state.tensor_count > 0 ? Format(", %u tensors", state.tensor_count) : "") +
         (reply.joined ? "" : ", built in " + Duration(state.load_ms) + QueuedText(state)) +
         ClosedText(state) + "\n";
}

struct Held {
  DaemonClient daemon;
  DaemonClient::Lease lease;
  Loaded loaded;
};

Outcome<Held> TakeHold(const Request& request, const Console& console) {
  STICKY_STEP(const std::uint32_t wait_ms, WaitMs(request, /*wait_by_default=*/true));
  const client::WideDescriptorLimit wide;
  STICKY_STEP(PreparedLoad load, client::PrepareLoad(request.options.operands()[0]));
  load.request.wait_ms = wait_ms;
  load.request.hold = true;
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(request.socket));
  STICKY_STEP(wire::LoadReply loaded, LoadShowingProgress(daemon, load, console));
  wire::AttachRequest attach;
  attach.state = load.request.state;
  attach.wait_ms = wait_ms;
  attach.hold = true;
  attach.job = JobOfThisProcess();
  STICKY_STEP(DaemonClient::Lease lease, daemon.Attach(attach));
  std::vector<std::string> differs = PolicyDifferences(load.request.policy, loaded.state.policy);
  return Held{std::move(daemon), std::move(lease), {std::move(loaded), std::move(differs)}};
}

// Waits for a signal or for the daemon's end. True: a signal came.
bool WaitForEnd(DaemonClient& daemon, const UniqueFd& signals) {
  for (;;) {
    // No deadline: a hold lasts as long as its owner wants it to.
    if (SignalComesFirst(signals, daemon.fd(), /*timeout_ms=*/-1)) return true;
    if (daemon.Ended()) return false;
  }
}

// The next daemon may have taken the state over: holds it again there, the same bytes.
Outcome<Held> HoldAgain(const Request& request, const Held& before, const UniqueFd& signals) {
  constexpr std::int64_t kPatienceMs = 15'000;  // less than the daemon awaits its sticky tasks
  constexpr int kRetryMs = 100;
  const Deadline deadline = Deadline::AfterMs(kPatienceMs);
  wire::AttachRequest attach;
  attach.state = before.loaded.reply.state.name;
  attach.digest = before.loaded.reply.state.content_digest;
  attach.hold = true;
  attach.job = JobOfThisProcess();
  for (;;) {
    Outcome<DaemonClient> daemon = DaemonClient::Connect(request.socket);
    if (!daemon.ok()) {
      if (deadline.passed() || SignalComesFirst(signals, /*other=*/-1, kRetryMs)) {
        return daemon.failed();
      }
      continue;
    }
    Outcome<DaemonClient::Lease> lease = daemon.value().Attach(attach);
    if (lease.ok()) {
      return Held{std::move(daemon).value(), std::move(lease).value(), before.loaded};
    }
    const bool has_died_again = lease.failed().stage == Stage::kTalk && !deadline.passed();
    if (!has_died_again) return lease.failed();
  }
}

}  // namespace

int Load(const Request& request, Console& console) {
  Outcome<Loaded> loaded = LoadOn(request, console);
  if (!loaded.ok()) return console.Fail(loaded.failed());
  const auto& [reply, policy_differs] = loaded.value();
  NoteKeptPolicy(loaded.value(), console);
  Json document = Document();
  document["state"] = StateJson(reply.state);
  document["joined"] = reply.joined;
  document["policy_differs"] = policy_differs;
  console.Print(document, LoadText(reply));
  return kExitOk;
}

int Hold(const Request& request, Console& console) {
  Outcome<Held> held = TakeHold(request, console);
  if (!held.ok()) return console.Fail(held.failed());
  const Loaded loaded = held.value().loaded;
  const wire::StateInfo& state = loaded.reply.state;
  const Result<UniqueFd> signals = SignalsAsDescriptor(kEndingSignals);
  if (!signals.ok()) return console.Fail({Stage::kTalk, signals.error()});
  NoteKeptPolicy(loaded, console);
  Json document = Document();
  document["state"] = StateJson(state);
  document["joined"] = loaded.reply.joined;
  document["policy_differs"] = loaded.policy_differs;
  document["lease_id"] = held.value().lease.reply.lease_id;
  document["pid"] = ::getpid();
  console.Print(document, "holding state '" + Printable(state.name) + "' (" +
                              ByteCount(state.arena_bytes) + ") until SIGTERM, SIGINT or SIGHUP\n");
  while (!WaitForEnd(held.value().daemon, signals.value())) {
    Outcome<Held> again = HoldAgain(request, held.value(), signals.value());
    if (!again.ok()) {
      return console.Fail({Stage::kTalk, Error{Code::kUnavailable,
                                               "hold '" + Escape(state.name) + "': stickyd at '" +
                                                   Escape(held.value().daemon.path()) +
                                                   "' went away, and the hold with it: " +
                                                   again.failed().error.message,
                                               EPIPE}});
    }
    held = std::move(again);
    console.Note("hold '" + Printable(state.name) +
                 "': stickyd was started again, and the state is held again");
  }
  return kExitOk;
}

}  // namespace sticky::stickyctl
