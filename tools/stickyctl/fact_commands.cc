// The commands that only tell: ls, show, status, leases, version.

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "tools/client/daemon_client.h"
#include "tools/stickyctl/commands.h"
#include "tools/stickyctl/render_text.h"

namespace sticky::stickyctl {
namespace {

using client::DaemonClient;
using client::Failed;
using client::Outcome;

template <typename Reply>
Outcome<Reply> AskDaemon(const Request& request, wire::Body body) {
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(request.socket));
  return daemon.AskFor<Reply>(std::move(body));
}

struct Shown {
  wire::StateInfo state;
  std::optional<wire::SealedView> bytes;       // of the manifest
  std::optional<wire::ManifestView> manifest;  // once there is one
  std::vector<wire::LeaseInfo> leases;         // on this epoch of it, when they were asked for
};

Outcome<Shown> AskForState(DaemonClient& daemon, const std::string& name) {
  STICKY_STEP(wire::Received received, daemon.Ask(wire::ShowRequest{name}));
  auto* const reply = std::get_if<wire::ShowReply>(&received.message.body);
  if (reply == nullptr) {
    return Failed{Stage::kTalk, Error{Code::kCorrupt, "show '" + Escape(name) +
                                                          "': the daemon gave another answer"}};
  }
  Shown shown;
  shown.state = std::move(reply->state);
  if (received.fds.empty()) return shown;
  STICKY_STEP(shown.bytes,
              client::During(Stage::kTalk, wire::SealedView::Map(received.fds[0].get(),
                                                                 wire::kManifestBytesMax)));
  STICKY_STEP(shown.manifest,
              client::During(Stage::kTalk, wire::ManifestView::Open(shown.bytes->bytes())));
  return shown;
}

Outcome<Shown> ShowOn(const Request& request) {
  const std::string& name = request.options.operands()[0];
  if (const Status named = wire::CheckStateName(name); !named.ok()) {
    return Failed{Stage::kUsage, named.error()};
  }
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(request.socket));
  STICKY_STEP(Shown shown, AskForState(daemon, name));
  STICKY_STEP(wire::LeasesReply all, daemon.AskFor<wire::LeasesReply>(wire::LeasesRequest{}));
  shown.leases = LeasesOn(shown.state.name, shown.state.epoch, std::move(all.leases));
  return shown;
}

Staleness StalenessOf(const Shown& shown) {
  return shown.manifest ? CheckSources(*shown.manifest, shown.state.source) : Staleness{};
}

struct Listed {
  std::vector<wire::StateInfo> states;
  std::vector<Staleness> staleness;  // of each, when it was asked for
};

Outcome<Listed> ListOn(const Request& request) {
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(request.socket));
  STICKY_STEP(wire::ListReply reply, daemon.AskFor<wire::ListReply>(wire::ListRequest{}));
  Listed listed{std::move(reply.states), {}};
  if (!request.options.Has("check-sources")) return listed;
  for (const wire::StateInfo& state : listed.states) {
    Outcome<Shown> shown = AskForState(daemon, state.name);
    // One that has gone meanwhile, or has been replaced under its name, is not the one listed.
    const bool same = shown.ok() && shown.value().state.epoch == state.epoch;
    if (!shown.ok() && shown.failed().stage != Stage::kAnswer) return shown.failed();
    listed.staleness.push_back(same ? StalenessOf(shown.value()) : Staleness{});
  }
  return listed;
}

}  // namespace

int Ls(const Request& request, Console& console) {
  Outcome<Listed> outcome = ListOn(request);
  if (!outcome.ok()) return console.Fail(outcome.failed());
  const Listed& listed = outcome.value();
  Json document = Document();
  document["states"] = StatesJson(listed.states);
  for (std::size_t i = 0; i < listed.staleness.size(); ++i) {
    AddStaleness(listed.staleness[i], document["states"][i]);
  }
  console.Print(document, StatesText(listed.states, listed.staleness));
  return kExitOk;
}

int Show(const Request& request, Console& console) {
  Outcome<Shown> outcome = ShowOn(request);
  if (!outcome.ok()) return console.Fail(outcome.failed());
  const Shown& shown = outcome.value();
  const Staleness staleness = StalenessOf(shown);
  Json document = Document();
  document["state"] = StateJson(shown.state);
  const wire::ManifestView* const manifest = shown.manifest ? &*shown.manifest : nullptr;
  AddStaleness(staleness, document["state"]);
  AddMaking(manifest, document["state"]);
  document["notes"] = shown.manifest ? NotesJson(*shown.manifest) : Json(nullptr);
  document["leases"] = LeasesJson(shown.leases);
  const UserNames users = UsersOfThisNode();
  std::string text = StateText(shown.state, shown.leases, users, manifest);
  if (shown.manifest) text += StalenessText(staleness) + NotesText(*shown.manifest);
  if (!shown.leases.empty()) text += "\n" + LeasesText(shown.leases, users);
  const bool wants_tensors = request.options.Has("tensors");
  if (wants_tensors && manifest != nullptr) AddManifest(*manifest, document);
  // The files of a file state are few, and what it is.
  if (manifest != nullptr && (wants_tensors || manifest->whole_files()) && !console.json()) {
    text += "\n" + ManifestText(*manifest);
  } else if (wants_tensors && manifest == nullptr) {
    document["tensors"] = nullptr;
    document["assets"] = nullptr;
    text +=
        "\nno tensors to show: the state is " + std::string(wire::Name(shown.state.phase)) + "\n";
  }
  console.Print(document, text);
  return kExitOk;
}

int ShowStatus(const Request& request, Console& console) {
  Outcome<wire::StatusReply> status = AskDaemon<wire::StatusReply>(request, wire::StatusRequest{});
  if (!status.ok()) return console.Fail(status.failed());
  Json document = Document();
  document["daemon"] = StatusJson(status.value());
  console.Print(document, StatusText(status.value(), UsersOfThisNode()));
  return kExitOk;
}

int Leases(const Request& request, Console& console) {
  Outcome<wire::LeasesReply> reply = AskDaemon<wire::LeasesReply>(request, wire::LeasesRequest{});
  if (!reply.ok()) return console.Fail(reply.failed());
  Json document = Document();
  document["leases"] = LeasesJson(reply.value().leases);
  console.Print(document, LeasesText(reply.value().leases, UsersOfThisNode()));
  return kExitOk;
}

// A daemon that is not there is no failure here: its version is what is asked for, if any.
int Version(const Request& request, Console& console) {
  Outcome<wire::StatusReply> status = AskDaemon<wire::StatusReply>(request, wire::StatusRequest{});
  Json document = Document();
  document["stickyctl"] = STICKY_VERSION;
  document["stickyd"] = nullptr;
  document["protocol_min"] = wire::kProtocolMin;
  document["protocol_max"] = wire::kProtocolMax;
  std::string text = Format("stickyctl %s (protocol %d to %d)\n", STICKY_VERSION,
                            wire::kProtocolMin, wire::kProtocolMax);
  if (status.ok()) {
    document["stickyd"] = status.value().version;
    text += "stickyd " + Printable(status.value().version) +
            Format(" (pid %llu, ", static_cast<unsigned long long>(status.value().pid)) +
            Printable(status.value().socket_path) + ")\n";
  } else {
    text += "stickyd: " + Printable(status.failed().error.message) + "\n";
  }
  console.Print(document, text);
  return kExitOk;
}

}  // namespace sticky::stickyctl
