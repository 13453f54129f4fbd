// run: takes a lease and becomes the command, which inherits it. Nothing can be evicted in between,
// since the connection that holds the lease never closes.

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "base/job.h"
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

struct Wish {
  std::string state;  // empty: as the template names it
  std::optional<std::string> template_path;
  std::uint32_t wait_ms = 0;
};

Failed Usage(const std::string& what) {
  return Failed{Stage::kUsage, Error{Code::kInvalidArgument, what}};
}

Outcome<Wish> ReadWish(const Options& options) {
  Wish wish;
  wish.template_path = options.Value("template");
  wish.state = options.Value("state").value_or("");
  if (!options.Has("state") && !wish.template_path) {
    return Usage("--state NAME or --template FILE is missing: the state to run on");
  }
  if (options.Has("state")) {
    const Status named = wire::CheckStateName(wish.state);
    if (!named.ok()) return Failed{Stage::kUsage, named.error()};
  }
  const bool waits_anyway = wish.template_path && !options.Has("wait");
  STICKY_STEP(const std::uint32_t wait_ms,
              client::During(Stage::kUsage, options.WaitMs(kDefaultWaitMs)));
  wish.wait_ms = waits_anyway ? kDefaultWaitMs : wait_ms;
  return wish;
}

// Builds the state when it is not there; joins a load that is under way. Gives the state's name.
Outcome<std::string> LoadFirst(const Wish& wish, DaemonClient& daemon, Console& console) {
  const client::WideDescriptorLimit wide;  // for the load alone: the command gets the old limit
  STICKY_STEP(PreparedLoad load, client::PrepareLoad(*wish.template_path));
  if (!wish.state.empty() && load.made.name != wish.state) {
    return Failed{Stage::kTemplate,
                  Error{Code::kInvalidArgument,
                        "run on '" + wish.state + "': template '" + Escape(*wish.template_path) +
                            "' makes a state called '" + Escape(load.made.name) +
                            "'; leave out --state, or give another template"}};
  }
  load.request.wait_ms = wish.wait_ms;
  Progress progress = console.MakeProgress();
  Outcome<wire::LoadReply> reply = daemon.Load(
      load.request, load.files,
      [&progress](const wire::StateInfo& state) { progress.Show(state, MonotonicNs()); });
  if (reply.ok()) progress.Done(reply.value().state.arena_bytes);
  progress.End();
  if (!reply.ok()) return reply.failed();
  return load.made.name;
}

// Waits for a load that is under way, showing how far it is.
Outcome<DaemonClient::Lease> Attach(const Wish& wish, DaemonClient& daemon, Console& console) {
  wire::AttachRequest attach;
  attach.state = wish.state;
  attach.wait_ms = wish.wait_ms;
  attach.progress = true;
  attach.job = JobOfThisProcess();
  Progress progress = console.MakeProgress();
  Outcome<DaemonClient::Lease> lease = daemon.Attach(
      attach, [&progress](const wire::StateInfo& state) { progress.Show(state, MonotonicNs()); });
  if (lease.ok()) {
    const std::vector<std::uint64_t>& arenas = lease.value().reply.arena_bytes;
    progress.Done(std::accumulate(arenas.begin(), arenas.end(), std::uint64_t{0}));
  }
  progress.End();
  return lease;
}

// A copy of `fd` that exec keeps, and that is none of the three standard streams.
Result<int> Inherited(const UniqueFd& fd) {
  const int copy = ::fcntl(fd.get(), F_DUPFD, STDERR_FILENO + 1);
  if (copy < 0) return ErrnoError("pass the lease on to the command", errno);
  return copy;
}

Result<std::string> LeaseText(const UniqueFd& connection, const DaemonClient::Lease& lease) {
  STICKY_ASSIGN(const int socket, Inherited(connection));
  STICKY_ASSIGN(const int manifest, Inherited(lease.manifest));
  std::string text = Format("%d:%d:", socket, manifest);
  for (std::size_t i = 0; i < lease.arenas.size(); ++i) {
    STICKY_ASSIGN(const int arena, Inherited(lease.arenas[i]));
    text += (i > 0 ? "," : "") + Format("%d", arena);
  }
  return text;
}

Outcome<Ok> TakeLease(const Request& request, Console& console) {
  STICKY_STEP(Wish wish, ReadWish(request.options));
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(request.socket));
  if (wish.template_path) {
    STICKY_STEP(wish.state, LoadFirst(wish, daemon, console));
  }
  STICKY_STEP(const DaemonClient::Lease lease, Attach(wish, daemon, console));
  // The command may change its folder before it looks.
  std::error_code failure;
  std::filesystem::path socket = std::filesystem::absolute(daemon.path(), failure);
  if (failure) socket = daemon.path();
  const UniqueFd connection = daemon.Release();
  STICKY_STEP(const std::string text, client::During(Stage::kTalk, LeaseText(connection, lease)));
  // NOLINTBEGIN(concurrency-mt-unsafe): stickyctl has one thread.
  ::setenv("STICKYINVOC_LEASE", text.c_str(), /*overwrite=*/1);
  ::setenv("STICKYINVOC_SOCKET", socket.c_str(), /*overwrite=*/1);
  ::setenv("STICKYINVOC_STATE", wish.state.c_str(), /*overwrite=*/1);
  // NOLINTEND(concurrency-mt-unsafe)
  return Ok{};
}

}  // namespace

int Run(const Request& request, Console& console) {
  const Outcome<Ok> taken = TakeLease(request, console);
  if (!taken.ok()) return console.Fail(taken.failed());
  std::vector<std::string> words = request.options.command();
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  const int failure = errno;
  return console.FailWith(failure == ENOENT ? kExitNoCommand : kExitCannotRun,
                          {Stage::kUsage, ErrnoError("run '" + Escape(words[0]) + "'", failure)});
}

}  // namespace sticky::stickyctl
