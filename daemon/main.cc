// stickyd: the daemon's composition root. Reads options and config, joins the rooms, runs the loop.

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <getopt.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/exit_codes.h"
#include "base/text.h"
#include "config/node_config.h"
#include "config/template.h"
#include "daemon/io/coordinator.h"
#include "daemon/io/host_facts.h"
#include "flatbuffers/wire_socket.h"

namespace sticky::daemon {
namespace {

constexpr const char* kUsage =
    "stickyd: holds states in memory for short-lived invocations on this node\n"
    "\n"
    "  --socket PATH       where to listen; else $STICKYINVOC_SOCKET, else\n"
    "                      $XDG_RUNTIME_DIR/stickyinvoc/stickyd.sock, else\n"
    "                      /run/stickyinvoc/stickyd.sock\n"
    "  --config FILE       the node config (YAML); every key has a default. Else\n"
    "                      $XDG_CONFIG_HOME/stickyinvoc/stickyinvoc.yaml (~/.config), else\n"
    "                      /etc/stickyinvoc/stickyinvoc.yaml, when they are there\n"
    "  --templates DIR     the installed templates; overrides templates.folder of the config\n"
    "  --memory BYTES      budget for states, as 8GiB; overrides memory.host of the config\n"
    "  --log-level LEVEL   error, warning, info (the default) or debug\n"
    "  --version, --help\n"
    "\n"
    "SIGTERM or SIGINT: answers whoever waits, then exits; leases that are held stay valid.\n"
    "A second one: exits at once. Exit codes: see docs/exit-codes.md.\n";

struct Options {
  std::optional<std::string> socket;
  std::optional<std::string> config;
  std::optional<std::string> templates;
  std::optional<std::uint64_t> memory_bytes;
  Log::Level log_level = Log::Level::kInfo;
  bool help = false;
  bool version = false;
};

Result<Log::Level> ParseLevel(const std::string& text) {
  if (text == "error") return Log::Level::kError;
  if (text == "warning") return Log::Level::kWarning;
  if (text == "info") return Log::Level::kInfo;
  if (text == "debug") return Log::Level::kDebug;
  return Error{Code::kInvalidArgument,
               "read --log-level '" + Escape(text) + "': want error, warning, info or debug"};
}

constexpr option kOptions[] = {{"socket", required_argument, nullptr, 's'},
                               {"config", required_argument, nullptr, 'c'},
                               {"templates", required_argument, nullptr, 't'},
                               {"memory", required_argument, nullptr, 'm'},
                               {"log-level", required_argument, nullptr, 'l'},
                               {"version", no_argument, nullptr, 'v'},
                               {"help", no_argument, nullptr, 'h'},
                               {nullptr, 0, nullptr, 0}};

// One option as getopt_long found it; `value` is null where kOptions says that it has none.
Status SetOption(Options& options, int found, const char* value) {
  switch (found) {
    case 's':
      options.socket = value;
      return Ok{};
    case 'c':
      options.config = value;
      return Ok{};
    case 't':
      options.templates = value;
      return Ok{};
    case 'm': {
      STICKY_ASSIGN(const std::uint64_t bytes, ParseByteCount(value));
      if (bytes < config::kMemoryBytesMin) {
        return Error{Code::kInvalidArgument,
                     Format("read --memory '%s': that is %llu bytes; want 1MiB or more, as 8GiB",
                            Escape(value).c_str(), static_cast<unsigned long long>(bytes))};
      }
      options.memory_bytes = bytes;
      return Ok{};
    }
    case 'l': {
      STICKY_ASSIGN(options.log_level, ParseLevel(value));
      return Ok{};
    }
    case 'v':
      options.version = true;
      return Ok{};
    case 'h':
      options.help = true;
      return Ok{};
    default:
      return Error{Code::kInvalidArgument, "read options: see stickyd --help"};
  }
}

Result<Options> ParseOptions(int argc, char** argv) {
  Options options;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there is no second thread yet.
  for (int found; (found = ::getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
    STICKY_TRY(SetOption(options, found, optarg));
  }
  if (optind < argc) {
    return Error{Code::kInvalidArgument,
                 "read options: '" + Escape(argv[optind]) + "' is not one; see stickyd --help"};
  }
  return options;
}

int Fail(const Error& error) {
  std::fprintf(stderr, "stickyd: %s\n", error.message.c_str());
  return ExitCode(Stage::kServe, error.code);
}

CoordinatorOptions OptionsFrom(const config::NodeConfig& config, const Options& options) {
  CoordinatorOptions out;
  out.limits.budget_bytes = options.memory_bytes       ? *options.memory_bytes
                            : config.memory_host_bytes ? *config.memory_host_bytes
                                                       : DefaultBudgetBytes();
  out.limits.lease_count_max = config.lease_count_max;
  out.limits.state_count_max = config.state_count_max;
  out.limits.load_count_max = config.load_count_max;
  out.limits.queue_count_max = config.queued_load_count_max;
  out.limits.event_count_max = config.journal_event_count;
  out.limits.user = {config.per_user.connection_count_max, config.per_user.load_count_max,
                     config.per_user.memory_bytes_max.value_or(0), config.per_user.lease_count_max};
  if (config.access) {
    out.limits.who = Access{AccessMode::kOwner, config.access->users, config.access->groups};
  }
  out.limits.plan_ns = std::int64_t{config.plan_ms} * 1'000'000;
  out.limits.fill_stall_ns = std::int64_t{config.fill_stall_ms} * 1'000'000;
  out.connection_count_max = config.connection_count_max;
  out.handshake_ms = config.handshake_ms;
  out.shutdown_ms = config.shutdown_ms;
  out.loader_program = ProgramFolder() + "/../libexec/stickyinvoc/sticky-loader";
  out.requester_program = ProgramFolder() + "/stickyctl";
  out.version = STICKY_VERSION;
  return out;
}

// A template that cannot be used is told with its reason and costs the others nothing. Without the
// default folder there are none; one that was named must be there.
Result<std::vector<Installed>> FindInstalled(const config::NodeConfig& config,
                                             const Options& options) {
  const std::string folder = options.templates.value_or(config.template_folder);
  const bool is_named = options.templates || folder != config::NodeConfig{}.template_folder;
  Result<std::vector<config::InstalledTemplate>> found = config::LoadTemplateFolder(folder);
  if (!found.ok() && found.error().code == Code::kNotFound && !is_named) {
    return std::vector<Installed>();
  }
  // What the folder holds is wrong, not how we were called: another exit code.
  if (!found.ok() && found.error().code == Code::kInvalidArgument) {
    return Error{Code::kCorrupt, found.error().message};
  }
  if (!found.ok()) return found.error();
  std::vector<Installed> installed;
  for (const config::InstalledTemplate& one : found.value()) {
    if (one.made.ok()) {
      const config::Template& made = one.made.value();
      installed.push_back({made.name, one.path, made.build, made.policy.access,
                           config::TemplateDigest(made.canonical), /*problem=*/{}});
    } else {
      Installed unusable;
      unusable.path = one.path;
      unusable.problem = one.made.error().message;
      installed.push_back(std::move(unusable));
    }
  }
  return installed;
}

Result<std::uint64_t> RandomNonce() {
  std::uint64_t nonce = 0;
  if (::getrandom(&nonce, sizeof nonce, 0) != sizeof nonce) {
    return ErrnoError("draw the daemon's nonce", errno);
  }
  return nonce;
}

// The file that --config names, else the user's own, else the node's, else every default.
std::string ConfigPath(const Options& options) {
  if (options.config) return *options.config;
  const char* const home = std::getenv("HOME");
  const char* const xdg = std::getenv("XDG_CONFIG_HOME");
  std::string own;
  if (xdg != nullptr && *xdg != '\0') {
    own = xdg;
  } else if (home != nullptr && *home != '\0') {
    own = std::string(home) + "/.config";
  }
  for (const std::string& folder : {own, std::string("/etc")}) {
    std::string path = folder + "/stickyinvoc/stickyinvoc.yaml";
    if (!folder.empty() && ::access(path.c_str(), F_OK) == 0) return path;
  }
  return {};
}

Result<config::NodeConfig> ReadConfig(const Options& options) {
  const std::string path = ConfigPath(options);
  if (path.empty()) return config::NodeConfig{};
  Result<config::NodeConfig> config = config::LoadNodeConfig(path);
  if (config.ok() || config.error().code != Code::kInvalidArgument) return config;
  // What the file says is wrong, not how we were called: another exit code.
  return Error{Code::kCorrupt, config.error().message};
}

// Of the socket's file.
mode_t ModeOf(AccessMode access) {
  constexpr mode_t kOwner = S_IRUSR | S_IWUSR;
  constexpr mode_t kGroup = kOwner | S_IRGRP | S_IWGRP;
  switch (access) {
    case AccessMode::kGroup:
      return kGroup;
    case AccessMode::kNode:
      return kGroup | S_IROTH | S_IWOTH;
    case AccessMode::kOwner:
      break;
  }
  return kOwner;
}

// Returns the exit code.
Result<int> Serve(const Options& options) {
  STICKY_ASSIGN(const config::NodeConfig config, ReadConfig(options));
  std::string path;
  if (options.socket) {
    path = *options.socket;
  } else {
    STICKY_ASSIGN(path, wire::DefaultSocketPath());
  }
  CoordinatorOptions coordinator_options = OptionsFrom(config, options);
  STICKY_ASSIGN(coordinator_options.nonce, RandomNonce());
  STICKY_ASSIGN(coordinator_options.installed, FindInstalled(config, options));
  ::umask(0077);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGIO, SIG_IGN);   // what a lease on an arena may send, while HostArena::Seal has one
  ::signal(SIGHUP, SIG_IGN);  // a terminal that closes does not take the node's states along
  const std::uint64_t descriptor_count_max = RaiseDescriptorLimit();
  Inherited inherited = TakeInherited();
  Result<std::unique_ptr<SocketHome>> home =
      SocketHome::Open(path, ModeOf(config.socket), inherited);
  if (!home.ok()) {
    Error error = home.error();
    if (!options.socket)
      error.message += "; --socket PATH or $STICKYINVOC_SOCKET names another place";
    return error;
  }
  Logger logger(options.log_level);
  // A quarter for those that one user's file system does not let us close.
  Closer closer(std::clamp<std::size_t>(descriptor_count_max / 4, 1, Closer::kWaitingMax));
  Loop loop;
  bool keeps_states = false;
  {
    Keeper keeper(loop);
    Coordinator coordinator(loop, closer, *home.value(), keeper, logger, coordinator_options);
    STICKY_TRY(coordinator.Start(std::move(inherited.kept)));
    const SignalWatcher on_term(loop, SIGTERM, [&] { coordinator.ShutDown(); });
    const SignalWatcher on_int(loop, SIGINT, [&] { coordinator.ShutDown(); });
    loop.Run();
    keeps_states = coordinator.keeps_states();
  }
  logger.Line(Log::Level::kInfo, keeps_states ? "stopped; its states are kept" : "stopped");
  return keeps_states ? kExitStartAgain : kExitOk;
}

int Main(int argc, char** argv) {
  const Result<Options> options = ParseOptions(argc, argv);
  if (!options.ok()) return Fail(options.error());
  if (options.value().help) {
    std::fputs(kUsage, stdout);
    return kExitOk;
  }
  if (options.value().version) {
    std::printf("stickyd %s\n", STICKY_VERSION);
    return kExitOk;
  }
  const Result<int> served = Serve(options.value());
  return served.ok() ? served.value() : Fail(served.error());
}

}  // namespace
}  // namespace sticky::daemon

int main(int argc, char** argv) { return sticky::daemon::Main(argc, argv); }
