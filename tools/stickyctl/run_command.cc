// run: takes a lease and becomes the command, which inherits it. Nothing can be evicted in between,
// since the connection that holds the lease never closes.

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "base/job.h"
#include "base/text.h"
#include "flatbuffers/wire_blob.h"
#include "tools/client/daemon_client.h"
#include "tools/client/prepare_load.h"
#include "tools/stickyctl/commands.h"
#include "tools/stickyctl/lent_files.h"
#include "tools/stickyctl/render_policy.h"
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
  std::vector<AsFile> files;
};

Failed Usage(const std::string& what) {
  return Failed{Stage::kUsage, Error{Code::kInvalidArgument, what}};
}

// --state, or else the one state that every file is of, or else what the template will name: "".
Outcome<std::string> StateOf(const Options& options, const std::vector<AsFile>& files) {
  if (options.Has("state")) return *options.Value("state");
  if (files.empty()) {
    if (options.Has("template")) return std::string();
    return Usage("--state NAME or --template FILE is missing: the state to run on");
  }
  for (const AsFile& file : files) {
    if (file.state == files[0].state) continue;
    return Usage("--as-file names the states '" + files[0].state + "' and '" + file.state +
                 "': --state NAME says which of them is the command's");
  }
  return files[0].state;
}

Outcome<Wish> ReadWish(const Options& options) {
  Wish wish;
  wish.template_path = options.Value("template");
  STICKY_STEP(wish.files, client::During(Stage::kUsage, ParseAsFiles(options.Values("as-file"))));
  STICKY_STEP(wish.state, StateOf(options, wish.files));
  STICKY_STEP(const Ok used,
              client::During(Stage::kUsage, CheckAllUsed(wish.files, options.command())));
  static_cast<void>(used);
  if (const Status named = wire::CheckStateName(wish.state); !wish.state.empty() && !named.ok()) {
    return Failed{Stage::kUsage, named.error()};
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
  const std::string kept = KeptPolicyText(
      load.made.name, PolicyDifferences(load.request.policy, reply.value().state.policy));
  if (!kept.empty()) console.Note(kept);
  return load.made.name;
}

// Waits for a load that is under way, showing how far it is.
Outcome<DaemonClient::Lease> Attach(const std::string& state, std::uint32_t wait_ms,
                                    DaemonClient& daemon, Console& console) {
  wire::AttachRequest attach;
  attach.state = state;
  attach.wait_ms = wait_ms;
  attach.progress = true;
  attach.job = JobOfThisProcess();
  Progress progress = console.MakeProgress();
  Outcome<DaemonClient::Lease> lease = daemon.Attach(
      attach, [&progress](const wire::StateInfo& info) { progress.Show(info, MonotonicNs()); });
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

using Leases = std::map<std::string, DaemonClient::Lease>;  // by the state's name

// The lease on the command's state, and on every other one that a file is of.
Outcome<Leases> AttachAll(const Wish& wish, DaemonClient& daemon, Console& console) {
  Leases leases;
  std::vector<std::string> states = {wish.state};
  for (const AsFile& file : wish.files) states.push_back(file.state);
  for (const std::string& state : states) {
    if (leases.contains(state)) continue;
    STICKY_STEP(leases[state], Attach(state, wish.wait_ms, daemon, console));
  }
  return leases;
}

// A path that opens the file in this process and in the command that it becomes.
Result<std::string> PathOf(const AsFile& file, const DaemonClient::Lease& lease) {
  STICKY_ASSIGN(const wire::SealedView bytes,
                wire::SealedView::Map(lease.manifest.get(), wire::kManifestBytesMax));
  STICKY_ASSIGN(const wire::ManifestView manifest, wire::ManifestView::Open(bytes.bytes()));
  STICKY_ASSIGN(const std::optional<std::uint32_t> arena, FindLentFile(file, manifest));
  int fd = -1;
  if (!arena) {
    STICKY_ASSIGN(const UniqueFd empty, wire::MakeBlob({}));
    STICKY_ASSIGN(fd, Inherited(empty));
  } else if (*arena < lease.arenas.size()) {
    STICKY_ASSIGN(fd, Inherited(lease.arenas[*arena]));
  } else {
    return Error{Code::kCorrupt, "lend the file '" + Escape(file.file) + "' of '" + file.state +
                                     "': the daemon did not send its memory"};
  }
  return Format("/proc/self/fd/%d", fd);
}

// The command's words with the paths of the files that it is lent. Sets their variables.
Outcome<std::vector<std::string>> LendFiles(const Wish& wish, const Leases& leases,
                                            std::vector<std::string> words) {
  std::vector<std::string> paths;
  for (const AsFile& file : wish.files) {
    STICKY_STEP(std::string path,
                client::During(Stage::kAnswer, PathOf(file, leases.at(file.state))));
    // NOLINTNEXTLINE(concurrency-mt-unsafe): stickyctl has one thread.
    ::setenv(VariableOf(file).c_str(), path.c_str(), /*overwrite=*/1);
    paths.push_back(std::move(path));
  }
  for (std::string& word : words) word = PutPaths(word, wish.files, paths);
  return words;
}

// Takes the lease; gives the command's words.
Outcome<std::vector<std::string>> TakeLease(const Request& request, Console& console) {
  STICKY_STEP(Wish wish, ReadWish(request.options));
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(request.socket));
  if (wish.template_path) {
    STICKY_STEP(wish.state, LoadFirst(wish, daemon, console));
  }
  STICKY_STEP(const Leases leases, AttachAll(wish, daemon, console));
  STICKY_STEP(std::vector<std::string> words, LendFiles(wish, leases, request.options.command()));
  // The command may change its folder before it looks.
  std::error_code failure;
  std::filesystem::path socket = std::filesystem::absolute(daemon.path(), failure);
  if (failure) socket = daemon.path();
  const UniqueFd connection = daemon.Release();
  STICKY_STEP(const std::string text,
              client::During(Stage::kTalk, LeaseText(connection, leases.at(wish.state))));
  // NOLINTBEGIN(concurrency-mt-unsafe): stickyctl has one thread.
  ::setenv("STICKYINVOC_LEASE", text.c_str(), /*overwrite=*/1);
  ::setenv("STICKYINVOC_SOCKET", socket.c_str(), /*overwrite=*/1);
  ::setenv("STICKYINVOC_STATE", wish.state.c_str(), /*overwrite=*/1);
  // NOLINTEND(concurrency-mt-unsafe)
  return words;
}

}  // namespace

int Run(const Request& request, Console& console) {
  Outcome<std::vector<std::string>> taken = TakeLease(request, console);
  if (!taken.ok()) return console.Fail(taken.failed());
  std::vector<std::string>& words = taken.value();
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  const int failure = errno;
  return console.FailWith(failure == ENOENT ? kExitNoCommand : kExitCannotRun,
                          {Stage::kUsage, ErrnoError("run '" + Escape(words[0]) + "'", failure)});
}

}  // namespace sticky::stickyctl
