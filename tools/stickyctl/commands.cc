#include "tools/stickyctl/commands.h"

#include <csignal>
#include <cstdio>

#include <sys/signalfd.h>
#include <unistd.h>

#include "base/text.h"
#include "tools/client/client.h"
#include "tools/client/exit_codes.h"
#include "tools/client/load_request.h"
#include "tools/stickyctl/output.h"
#include "tools/stickyctl/progress.h"

namespace sticky::tools {
namespace {

Result<Client> Connect(const Common& common) {
  std::string path = common.socket_path;
  if (path.empty()) {
    STICKY_ASSIGN(path, wire::DefaultSocketPath());
  }
  return Client::Connect(path);
}

// Asks one question and prints the answer: as JSON through `to_json`, else through `to_text`.
template <typename Reply, typename Request, typename ToJson, typename ToText>
int AskAndPrint(const Common& common, const Request& request, ToJson to_json, ToText to_text) {
  Result<Client> client = Connect(common);
  if (!client.ok()) return FailFromDaemon(common, client.error());
  Result<Answer<Reply>> answer = client.value().template Ask<Reply>(request);
  if (!answer.ok()) return FailFromDaemon(common, answer.error());
  if (common.json) {
    PrintJson(to_json(answer.value().reply));
  } else {
    std::fputs(to_text(answer.value().reply).c_str(), stdout);
  }
  return kExitOk;
}

Json LoadToJson(const wire::LoadReply& reply) {
  return {{"joined", reply.joined}, {"state", ToJson(reply.state)}};
}

Result<wire::LoadReply> LoadWith(Client& client, PreparedLoad& prepared, bool quiet) {
  std::vector<int> fds;
  for (const UniqueFd& fd : prepared.fds) fds.push_back(fd.get());
  Progress progress;
  return client.Load(prepared.request, prepared.files, fds, [&](const wire::StateInfo& state) {
    if (!quiet) progress.Show(state);
  });
}

void PrintLoaded(const wire::LoadReply& reply) {
  const wire::StateInfo& state = reply.state;
  if (state.phase == wire::StatePhase::kReady) {
    std::printf("%s is ready: %u tensors, %s, digest %s%s\n", Escape(state.name).c_str(),
                state.tensor_count, ByteCount(state.arena_bytes).c_str(),
                ToHex(state.content_digest.value_or(Digest{})).c_str(),
                reply.joined ? " (it was there already)" : "");
  } else {
    std::printf("%s is %s; `stickyctl show %s` tells how far it is\n", Escape(state.name).c_str(),
                wire::Name(state.phase), Escape(state.name).c_str());
  }
}

}  // namespace

int Fail(const Common& common, const Error& error, int exit_code) {
  if (common.json) PrintJson(ErrorToJson(error, exit_code));
  std::fprintf(stderr, "stickyctl: %s\n", Printable(error.message).c_str());
  return exit_code;
}

int FailFromDaemon(const Common& common, const Error& error) {
  return Fail(common, error, IsNoDaemon(error) ? kExitNoDaemon : ExitCodeOf(error.code));
}

int Load(const Common& common, const LoadOptions& options) {
  Result<PreparedLoad> prepared = PrepareLoad(options.template_path);
  if (!prepared.ok()) return Fail(common, prepared.error(), ExitCodeOf(prepared.error().code));
  prepared.value().request.wait_ms = options.wait_ms;
  Result<Client> client = Connect(common);
  if (!client.ok()) return FailFromDaemon(common, client.error());
  const Result<wire::LoadReply> reply =
      LoadWith(client.value(), prepared.value(), /*quiet=*/common.json);
  if (!reply.ok()) return FailFromDaemon(common, reply.error());
  if (common.json) {
    PrintJson(LoadToJson(reply.value()));
  } else {
    PrintLoaded(reply.value());
  }
  return kExitOk;
}

int Hold(const Common& common, const LoadOptions& options) {
  Result<PreparedLoad> prepared = PrepareLoad(options.template_path);
  if (!prepared.ok()) return Fail(common, prepared.error(), ExitCodeOf(prepared.error().code));
  // Signals end the hold in order; they are blocked before there is anything to end.
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&signals, signal);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  const UniqueFd wake(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));

  Result<Client> client = Connect(common);
  if (!client.ok()) return FailFromDaemon(common, client.error());
  prepared.value().request.wait_ms = options.wait_ms;
  prepared.value().request.hold = true;
  const Result<wire::LoadReply> reply =
      LoadWith(client.value(), prepared.value(), /*quiet=*/common.json);
  if (!reply.ok()) return FailFromDaemon(common, reply.error());
  wire::AttachRequest attach;
  attach.state = prepared.value().request.state;
  attach.hold = true;
  const auto held = client.value().Ask<wire::AttachReply>(attach);
  if (!held.ok()) return FailFromDaemon(common, held.error());
  if (common.json) {
    Json facts = LoadToJson(reply.value());
    facts["lease_id"] = held.value().reply.lease_id;
    PrintJson(facts);
  } else {
    PrintLoaded(reply.value());
    std::printf("holding it until SIGTERM, SIGINT or SIGHUP\n");
  }
  std::fflush(stdout);
  if (client.value().WaitForEnd(wake.get())) return kExitOk;
  std::fprintf(stderr, "stickyctl: the daemon is gone, and the hold on '%s' with it\n",
               Escape(attach.state).c_str());
  return kExitNoDaemon;
}

int List(const Common& common) {
  return AskAndPrint<wire::ListReply>(
      common, wire::ListRequest{},
      [](const wire::ListReply& reply) {
        Json states = Json::array();
        for (const wire::StateInfo& state : reply.states) states.push_back(ToJson(state));
        return Json{{"states", states}};
      },
      [](const wire::ListReply& reply) { return StatesTable(reply.states); });
}

int Show(const Common& common, const std::string& state, bool tensors) {
  Result<Client> client = Connect(common);
  if (!client.ok()) return FailFromDaemon(common, client.error());
  const auto answer = client.value().Ask<wire::ShowReply>(wire::ShowRequest{state});
  if (!answer.ok()) return FailFromDaemon(common, answer.error());
  wire::Manifest manifest;
  if (tensors && !answer.value().fds.empty()) {
    const Result<wire::SealedView> view =
        wire::SealedView::Map(answer.value().fds[0].get(), wire::kManifestBytesMax);
    if (!view.ok()) return FailFromDaemon(common, view.error());
    Result<wire::Manifest> decoded = wire::DecodeManifest(view.value().bytes());
    if (!decoded.ok()) return FailFromDaemon(common, decoded.error());
    manifest = std::move(decoded).value();
  }
  const wire::StateInfo& info = answer.value().reply.state;
  if (common.json) {
    Json facts = {{"state", ToJson(info)}};
    if (tensors) {
      facts["tensors"] = Json::array();
      for (const auto& tensor : manifest.tensors) facts["tensors"].push_back(ToJson(tensor));
      facts["notes"] = manifest.notes;
    }
    PrintJson(facts);
    return kExitOk;
  }
  std::fputs(StateDetails(info).c_str(), stdout);
  if (!tensors) return kExitOk;
  for (const std::string& note : manifest.notes) std::printf("note: %s\n", Escape(note).c_str());
  std::printf("\n%s", TensorsTable(manifest.tensors).c_str());
  return kExitOk;
}

int DaemonStatus(const Common& common) {
  return AskAndPrint<wire::StatusReply>(
      common, wire::StatusRequest{},
      [](const wire::StatusReply& reply) {
        return Json{{"daemon", ToJson(reply)}};
      },
      [](const wire::StatusReply& reply) { return StatusDetails(reply); });
}

int Leases(const Common& common) {
  return AskAndPrint<wire::LeasesReply>(
      common, wire::LeasesRequest{},
      [](const wire::LeasesReply& reply) {
        Json leases = Json::array();
        for (const wire::LeaseInfo& lease : reply.leases) leases.push_back(ToJson(lease));
        return Json{{"leases", leases}};
      },
      [](const wire::LeasesReply& reply) { return LeasesTable(reply.leases); });
}

int Evict(const Common& common, const std::string& state, std::uint32_t wait_ms) {
  Result<Client> client = Connect(common);
  if (!client.ok()) return FailFromDaemon(common, client.error());
  const auto answer =
      client.value().Ask<wire::EvictReply>(wire::EvictRequest{state, wait_ms}, wait_ms);
  if (!answer.ok()) return FailFromDaemon(common, answer.error());
  const wire::EvictReply& reply = answer.value().reply;
  if (common.json) {
    Json leases = Json::array();
    for (const wire::LeaseInfo& lease : reply.leases) leases.push_back(ToJson(lease));
    PrintJson({{"freed", reply.freed}, {"state", ToJson(reply.state)}, {"leases", leases}});
  } else if (reply.freed) {
    std::printf("%s is gone, %s are free again\n", Escape(state).c_str(),
                ByteCount(reply.state.arena_bytes).c_str());
  } else {
    std::printf("%s is %s: its memory is freed when its holders are done\n", Escape(state).c_str(),
                wire::Name(reply.state.phase));
    std::fputs(LeasesTable(reply.leases).c_str(), stdout);
  }
  // Asked to wait, and it did not happen in time: that is worth a code of its own.
  return !reply.freed && wait_ms != 0 ? kExitTryAgain : kExitOk;
}

int Version(const Common& common) {
  Result<Client> client = Connect(common);
  std::string daemon_version;
  if (client.ok()) {
    const auto answer = client.value().Ask<wire::StatusReply>(wire::StatusRequest{});
    if (answer.ok()) daemon_version = answer.value().reply.version;
  }
  if (common.json) {
    PrintJson({{"stickyctl", STICKY_VERSION},
               {"stickyd", daemon_version.empty() ? Json(nullptr) : Json(daemon_version)},
               {"protocol_min", wire::kProtocolMin},
               {"protocol_max", wire::kProtocolMax}});
    return kExitOk;
  }
  std::printf("stickyctl %s, protocol %u to %u\n", STICKY_VERSION, wire::kProtocolMin,
              wire::kProtocolMax);
  std::printf("stickyd %s\n",
              daemon_version.empty() ? "(no daemon answers)" : Escape(daemon_version).c_str());
  return kExitOk;
}

}  // namespace sticky::tools
