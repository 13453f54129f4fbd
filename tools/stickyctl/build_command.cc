// build: runs a command that makes a state. The connection that is the build goes to the command
// alone, so that its end, however it comes, is the build's end.

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include <fcntl.h>

#include "base/deadline.h"
#include "base/text.h"
#include "tools/client/daemon_client.h"
#include "tools/client/prepare_build.h"
#include "tools/stickyctl/builder_watch.h"
#include "tools/stickyctl/commands.h"
#include "tools/stickyctl/placement.h"
#include "tools/stickyctl/render_policy.h"
#include "tools/stickyctl/render_text.h"
#include "tools/stickyctl/signals.h"
#include "tools/stickyctl/text_table.h"

namespace sticky::stickyctl {
namespace {

using client::BuildWish;
using client::DaemonClient;
using client::Failed;
using client::Outcome;
using wire::StatePhase;

struct Begun {
  wire::StateInfo state;    // ready: of this recipe, there already
  std::uint64_t nonce = 0;  // of the daemon's life
  std::string socket_path;  // absolute: the command may change its folder before it looks
  UniqueFd connection;      // the build hangs on it
};

Outcome<BuildWish> ReadWish(const Options& options) {
  BuildWish wish;
  wish.name = options.Value("name");
  wish.template_path = options.Value("template");
  wish.base = options.Value("base");
  wish.command = options.command();
  STICKY_STEP(wish.placement, PlacementOf("build", options));
  return wish;
}

// The content of the base. Nothing without one, or when it is not to be had: the daemon says why.
Outcome<std::optional<Digest>> BaseDigest(DaemonClient& daemon, const BuildWish& wish) {
  if (!wish.base) return std::optional<Digest>();
  Outcome<wire::ShowReply> reply = daemon.AskFor<wire::ShowReply>(wire::ShowRequest{*wish.base});
  if (reply.ok()) return reply.value().state.content_digest;
  if (reply.failed().stage != Stage::kAnswer) return reply.failed();
  return std::optional<Digest>();
}

std::string AbsolutePath(const std::string& path) {
  std::error_code failure;
  const std::filesystem::path absolute = std::filesystem::absolute(path, failure);
  return failure ? path : absolute.string();
}

// Scripts use descriptors below 10 by their numbers (`exec 3>file`), and would end the build so.
Result<UniqueFd> MoveOutOfTheWay(const UniqueFd& fd) {
  constexpr int kLeast = 10;
  UniqueFd moved(::fcntl(fd.get(), F_DUPFD_CLOEXEC, kLeast));
  if (!moved.valid()) return ErrnoError("pass the build on to the command", errno);
  return moved;
}

Outcome<Begun> Begin(const std::optional<std::string>& socket, const BuildWish& wish,
                     wire::BuildRequest request) {
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(socket));
  STICKY_STEP(const wire::StatusReply status,
              daemon.AskFor<wire::StatusReply>(wire::StatusRequest{}));
  STICKY_STEP(const std::optional<Digest> base_digest, BaseDigest(daemon, wish));
  request.template_digest = client::RecipeDigest(request.state, wish, base_digest);
  STICKY_STEP(wire::BuildReply reply, daemon.AskFor<wire::BuildReply>(request));
  if (reply.state.phase != StatePhase::kReady && reply.base_digest != base_digest) {
    return Failed{
        Stage::kAnswer,
        Error{Code::kUnavailable, "build '" + request.state + "' from '" + wish.base.value_or("") +
                                      "': it was replaced meanwhile; build again"}};
  }
  std::string path = AbsolutePath(daemon.path());
  STICKY_STEP(UniqueFd connection, client::During(Stage::kTalk, MoveOutOfTheWay(daemon.Release())));
  return Begun{std::move(reply.state), status.nonce, std::move(path), std::move(connection)};
}

// Of the new state's name and its base, the one that somebody else is building.
std::optional<wire::StateInfo> FindUnderWay(DaemonClient& daemon, const std::string& name,
                                            const std::optional<std::string>& base) {
  for (const std::string& state : {base.value_or(name), name}) {
    Outcome<wire::ShowReply> reply = daemon.AskFor<wire::ShowReply>(wire::ShowRequest{state});
    if (!reply.ok()) continue;
    const StatePhase phase = reply.value().state.phase;
    const bool is_loading = phase == StatePhase::kQueued || phase == StatePhase::kPlanning ||
                            phase == StatePhase::kFilling;
    if (is_loading) return std::move(reply.value().state);
  }
  return std::nullopt;
}

// As Begin, and waits for whoever builds the name or the base right now.
Outcome<Begun> BeginWhenPossible(const Request& request, const BuildWish& wish,
                                 const wire::BuildRequest& build, std::uint32_t wait_ms,
                                 const Console& console) {
  const std::int64_t until_ns = MonotonicNs() + std::int64_t{wait_ms} * 1'000'000;
  Progress progress = console.MakeBuildProgress();
  std::uint64_t waited_for = 0;  // the epoch of who was waited for last
  for (;;) {
    Outcome<Begun> begun = Begin(request.socket, wish, build);
    const std::int64_t left_ms = (until_ns - MonotonicNs()) / 1'000'000;
    const bool may_wait = !begun.ok() && begun.failed().stage == Stage::kAnswer &&
                          begun.failed().error.code == Code::kUnavailable && left_ms > 0;
    if (!may_wait) return begun;
    STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(request.socket));
    const std::optional<wire::StateInfo> other = FindUnderWay(daemon, build.state, wish.base);
    if (!other || other->epoch == waited_for) return begun;
    waited_for = other->epoch;
    progress.Show(*other, MonotonicNs());
    wire::AttachRequest attach{
        .state = other->name, .wait_ms = static_cast<std::uint32_t>(left_ms), .progress = true};
    // Whatever comes of it, the next try tells. The lease goes with its connection.
    static_cast<void>(daemon.Attach(
        attach, [&](const wire::StateInfo& info) { progress.Show(info, MonotonicNs()); }));
  }
}

void SetEnvironment(const Begun& begun, const BuildWish& wish, std::uint32_t wait_ms) {
  // NOLINTBEGIN(concurrency-mt-unsafe): stickyctl has one thread.
  ::setenv("STICKYINVOC_BUILD", Format("%d", begun.connection.get()).c_str(), /*overwrite=*/1);
  ::setenv("STICKYINVOC_STATE", begun.state.name.c_str(), /*overwrite=*/1);
  ::setenv("STICKYINVOC_SOCKET", begun.socket_path.c_str(), /*overwrite=*/1);
  ::setenv("STICKYINVOC_BUILD_WAIT_MS", Format("%u", wait_ms).c_str(), /*overwrite=*/1);
  ::unsetenv("STICKYINVOC_LEASE");  // of a `run` around this: it is for another state
  ::unsetenv("STICKYINVOC_BASE");
  if (wish.base) ::setenv("STICKYINVOC_BASE", wish.base->c_str(), /*overwrite=*/1);
  // NOLINTEND(concurrency-mt-unsafe)
}

// The state that this build has published, whatever has become of it since. Nothing: it has not.
Outcome<std::optional<wire::StateInfo>> FindPublished(const Begun& begun) {
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(begun.socket_path));
  STICKY_STEP(const wire::StatusReply status,
              daemon.AskFor<wire::StatusReply>(wire::StatusRequest{}));
  if (status.nonce != begun.nonce) {
    return Failed{Stage::kTalk,
                  Error{Code::kUnavailable, "build '" + begun.state.name +
                                                "': stickyd was started anew meanwhile, and what "
                                                "was built is gone; build again"}};
  }
  STICKY_STEP(wire::ListReply list, daemon.AskFor<wire::ListReply>(wire::ListRequest{}));
  for (wire::StateInfo& state : list.states) {
    const bool is_published = state.phase == StatePhase::kReady ||
                              state.phase == StatePhase::kDraining ||
                              state.phase == StatePhase::kClosing;
    if (state.epoch == begun.state.epoch && is_published && state.content_digest) {
      return std::optional<wire::StateInfo>(std::move(state));
    }
  }
  return std::optional<wire::StateInfo>();
}

std::string HowItEnded(int code) {
  return code > 128 && code <= 128 + 64
             ? Format("ended with exit code %d (signal %d)", code, code - 128)
             : Format("ended with exit code %d", code);
}

// The command has ended with `code`: what that means for the state.
int Report(const Begun& begun, const BuildWish& wish, int code, Console& console) {
  const std::string doing =
      "build '" + begun.state.name + "': '" + client::CommandText(wish.command) + "' ";
  Outcome<std::optional<wire::StateInfo>> published = FindPublished(begun);
  if (!published.ok() && code == 0) return console.Fail(published.failed());
  const bool is_there = published.ok() && published.value().has_value();
  if (code != 0) {
    const char* const and_so = is_there         ? ", after it had published the state"
                               : published.ok() ? "; it published nothing"
                                                : "";
    return console.FailWith(
        code, {Stage::kModel, Error{Code::kInvalidArgument, doing + HowItEnded(code) + and_so}});
  }
  if (!is_there) {
    return console.Fail(
        {Stage::kModel,
         Error{Code::kInvalidArgument,
               doing +
                   "ended with exit code 0, but published nothing; it has to call sti_build_begin "
                   "without a state's name, and sti_build_commit, before it ends"}});
  }
  const wire::StateInfo& state = *published.value();
  Json document = Document();
  document["state"] = StateJson(state);
  document["built"] = true;
  console.Print(document, "state '" + Printable(state.name) +
                              "' is built: " + ByteCount(state.arena_bytes) + " in " +
                              Duration(state.load_ms) + QueuedText(state) + "\n");
  return kExitOk;
}

int RunBuilder(Begun begun, const BuildWish& wish, std::uint32_t wait_ms, Console& console) {
  const Result<UniqueFd> signals = SignalsAsDescriptor(kEndingSignals);
  if (!signals.ok()) return console.Fail({Stage::kTalk, signals.error()});
  SetEnvironment(begun, wish, wait_ms);
  Result<Child> child = Child::Start({.words = wish.command,
                                      .inherited = begun.connection.get(),
                                      .prints_to_stderr = console.json()});
  begun.connection.Reset();
  if (!child.ok()) {
    const bool is_missing = child.error().os_code == ENOENT;
    return console.FailWith(is_missing ? kExitNoCommand : kExitCannotRun,
                            {Stage::kUsage, child.error()});
  }
  // Without this connection nothing is shown, and that is all.
  Outcome<DaemonClient> teller = DaemonClient::Connect(begun.socket_path);
  BuilderWatch watch(
      teller.ok() ? std::optional<DaemonClient>(std::move(teller).value()) : std::nullopt,
      begun.state.name, begun.state.epoch, console.MakeBuildProgress());
  watch.Stay(child.value(), signals.value());
  return Report(begun, wish, child.value().Wait(), console);
}

}  // namespace

int Build(const Request& request, Console& console) {
  Outcome<BuildWish> wish = ReadWish(request.options);
  if (!wish.ok()) return console.Fail(wish.failed());
  const Result<std::uint32_t> wait_ms = request.options.WaitMs(kDefaultWaitMs);
  if (!wait_ms.ok()) return console.Fail({Stage::kUsage, wait_ms.error()});
  Outcome<wire::BuildRequest> build = client::PrepareBuild(wish.value());
  if (!build.ok()) return console.Fail(build.failed());
  Outcome<Begun> begun =
      BeginWhenPossible(request, wish.value(), build.value(), wait_ms.value(), console);
  if (!begun.ok()) return console.Fail(begun.failed());
  const wire::StateInfo& state = begun.value().state;
  if (state.phase != StatePhase::kReady) {
    return RunBuilder(std::move(begun).value(), wish.value(), wait_ms.value(), console);
  }
  const std::vector<std::string> differs = PolicyDifferences(build.value().policy, state.policy);
  if (!differs.empty()) console.Note(KeptPolicyText(state.name, differs));
  Json document = Document();
  document["state"] = StateJson(state);
  document["built"] = false;
  document["policy_differs"] = differs;
  console.Print(document,
                "state '" + Printable(state.name) + "' is there already, of this recipe: " +
                    ByteCount(state.arena_bytes) + "; nothing was run" + ClosedText(state) + "\n");
  return kExitOk;
}

}  // namespace sticky::stickyctl
