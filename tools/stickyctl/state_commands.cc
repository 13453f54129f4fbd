// The commands that build, keep and end states: load, hold, evict.

#include <cerrno>
#include <csignal>
#include <iterator>
#include <utility>

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/text.h"
#include "tools/client/daemon_client.h"
#include "tools/client/prepare_load.h"
#include "tools/stickyctl/commands.h"
#include "tools/stickyctl/render_text.h"

namespace sticky::stickyctl {
namespace {

using client::DaemonClient;
using client::Failed;
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
  progress.End();
  return reply;
}

Outcome<wire::LoadReply> LoadOn(const Request& request, const Console& console) {
  STICKY_STEP(const std::uint32_t wait_ms, WaitMs(request, /*wait_by_default=*/false));
  const client::WideDescriptorLimit wide;
  STICKY_STEP(PreparedLoad load, client::PrepareLoad(request.options.operands()[0]));
  load.request.wait_ms = wait_ms;
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(request.socket));
  return LoadShowingProgress(daemon, load, console);
}

std::string LoadText(const wire::LoadReply& reply) {
  const wire::StateInfo& state = reply.state;
  const std::string name = "'" + Printable(state.name) + "'";
  if (state.phase != wire::StatePhase::kReady) {
    return "state " + name + " is " + wire::Name(state.phase) + "; `stickyctl show " +
           Printable(state.name) + "` tells how far it is\n";
  }
  return "state " + name + (reply.joined ? " was there already: " : " is ready: ") +
         ByteCount(state.arena_bytes) + Format(", %u tensors", state.tensor_count) +
         (reply.joined ? "" : ", built in " + Duration(state.load_ms)) + "\n";
}

std::string EvictText(const wire::EvictReply& reply) {
  const std::string name = "state '" + Printable(reply.state.name) + "'";
  if (reply.freed) {
    return name + " is gone: " + ByteCount(reply.state.arena_bytes) + " are free again\n";
  }
  if (reply.leases.empty()) {
    return name + " is closing: nobody leases it any more, but a process still maps it\n";
  }
  return name +
         Format(" drains: no new leases; it goes when the last of %zu ends:\n",
                reply.leases.size()) +
         LeasesText(reply.leases);
}

Outcome<wire::EvictReply> EvictOn(const Request& request, std::uint32_t wait_ms) {
  const std::string& name = request.options.operands()[0];
  if (const Status named = wire::CheckStateName(name); !named.ok()) {
    return Failed{Stage::kUsage, named.error()};
  }
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(request.socket));
  return daemon.AskFor<wire::EvictReply>(wire::EvictRequest{name, wait_ms}, wait_ms);
}

// --- hold ---------------------------------------------------------------------------------------

// The signals that end a hold, as a descriptor. One that was ignored at the start (as under nohup)
// stays ignored.
Result<UniqueFd> EndingSignals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    struct sigaction action {};
    const bool ignored = ::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
    if (!ignored) ::sigaddset(&set, number);
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): stickyctl has one thread.
  if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return ErrnoError("block signals", errno);
  UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC));
  if (!fd.valid()) return ErrnoError("wait for signals", errno);
  return fd;
}

struct Held {
  DaemonClient daemon;
  DaemonClient::Lease lease;
  wire::LoadReply loaded;
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
  STICKY_STEP(DaemonClient::Lease lease, daemon.Attach(attach));
  return Held{std::move(daemon), std::move(lease), std::move(loaded)};
}

// Waits for a signal or for the daemon's end. True: a signal came.
bool WaitForEnd(DaemonClient& daemon, int signals) {
  for (;;) {
    pollfd ends[] = {{signals, POLLIN, 0}, {daemon.fd(), POLLIN, 0}};
    // No deadline: a hold lasts as long as its owner wants it to.
    const int count = ::poll(ends, std::size(ends), /*timeout=*/-1);
    if (count < 0) continue;
    if (ends[0].revents != 0) return true;
    if (daemon.Ended()) return false;
  }
}

}  // namespace

int Load(const Request& request, Console& console) {
  Outcome<wire::LoadReply> reply = LoadOn(request, console);
  if (!reply.ok()) return console.Fail(reply.failed());
  Json document = Document();
  document["state"] = StateJson(reply.value().state);
  document["joined"] = reply.value().joined;
  console.Print(document, LoadText(reply.value()));
  return kExitOk;
}

int Evict(const Request& request, Console& console) {
  Outcome<std::uint32_t> wait_ms = WaitMs(request, /*wait_by_default=*/false);
  if (!wait_ms.ok()) return console.Fail(wait_ms.failed());
  Outcome<wire::EvictReply> reply = EvictOn(request, wait_ms.value());
  if (!reply.ok()) return console.Fail(reply.failed());
  Json document = Document();
  document["state"] = StateJson(reply.value().state);
  document["freed"] = reply.value().freed;
  document["leases"] = LeasesJson(reply.value().leases);
  // Whoever waits wants it gone; without --wait it is enough that it will go.
  if (reply.value().freed || wait_ms.value() == 0) {
    console.Print(document, EvictText(reply.value()));
    return kExitOk;
  }
  const Error late{
      Code::kUnavailable,
      Format("evict '%s': it is still there after %.3g s of waiting, and goes when its "
             "last user ends; wait longer, or end those that `stickyctl leases` shows",
             reply.value().state.name.c_str(), wait_ms.value() / 1000.0)};
  if (!console.json()) console.Print(document, EvictText(reply.value()));
  return console.Fail({Stage::kAnswer, late}, std::move(document));
}

int Hold(const Request& request, Console& console) {
  Outcome<Held> held = TakeHold(request, console);
  if (!held.ok()) return console.Fail(held.failed());
  DaemonClient& daemon = held.value().daemon;
  const wire::StateInfo& state = held.value().loaded.state;
  const Result<UniqueFd> signals = EndingSignals();
  if (!signals.ok()) return console.Fail({Stage::kTalk, signals.error()});
  Json document = Document();
  document["state"] = StateJson(state);
  document["joined"] = held.value().loaded.joined;
  document["lease_id"] = held.value().lease.reply.lease_id;
  document["pid"] = ::getpid();
  console.Print(document, "holding state '" + Printable(state.name) + "' (" +
                              ByteCount(state.arena_bytes) + ") until SIGTERM, SIGINT or SIGHUP\n");
  if (WaitForEnd(daemon, signals.value().get())) return kExitOk;
  return console.Fail(
      {Stage::kTalk,
       Error{Code::kUnavailable,
             "hold '" + Escape(state.name) + "': stickyd at '" + Escape(daemon.path()) +
                 "' went away, and the hold with it; start it and hold again",
             EPIPE}});
}

}  // namespace sticky::stickyctl
