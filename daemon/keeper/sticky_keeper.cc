// sticky-keeper: the parent of a stickyd that no service manager starts. It holds the descriptors
// of all published states, and starts the daemon again when that has died, with what it holds.
//
// It is small so that nothing in it can fail: libc alone, no memory from the heap, no file of its
// own, no policy about states.
//
// Source: docs/reliability.md, "The keeper".

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/exit_codes.h"
#include "daemon/keeper/fd_store.h"
#include "daemon/keeper/notify_socket.h"
#include "daemon/keeper/restarts.h"

namespace sticky::keeper {
namespace {

constexpr const char* kUsage =
    "sticky-keeper: runs stickyd, and starts it again when it has died, with its states\n"
    "\n"
    "  sticky-keeper [OPTION...] [-- STICKYD-OPTION...]\n"
    "\n"
    "  --restarts N      most starts in a row, each within a minute of the last (20)\n"
    "  --max-delay MS    longest wait before a start; it begins with 50 ms and doubles (10000)\n"
    "  --daemon PROGRAM  what to run; else the stickyd beside this program\n"
    "  --version, --help\n"
    "\n"
    "SIGTERM or SIGINT: ends the daemon, and its states with it. `stickyctl shutdown\n"
    "--keep-states` has the next daemon, perhaps a newer one, take the states over. Exit code:\n"
    "that of the daemon; 128 + N when signal N ended it for the last time.\n";

constexpr int kFdsStart = 3;
// For a daemon that was told to end; its own deadlines are shorter.
constexpr std::int64_t kEndMs = 60'000;

struct Options {
  std::uint32_t restart_count_max = 20;
  std::uint32_t delay_ms_max = 10'000;
  const char* program = nullptr;
  char** arguments = nullptr;  // of the daemon, after its name
};

std::int64_t NowMs() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// Sets a variable of the environment to a number.
void SetNumber(const char* variable, long number) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "%ld", number);
  ::setenv(variable, text.data(), 1);
}

// In the child: the kept descriptors from 3 on, and the variables that say so.
bool PassOn(const FdStore& store) {
  static std::array<int, kKeptFdsMax> high;
  static std::array<char, kNamesBytesMax + 1> names;
  const int count = static_cast<int>(store.size());
  for (int i = 0; i < count; ++i) {
    high[static_cast<std::size_t>(i)] =
        ::fcntl(store.fd(static_cast<std::size_t>(i)), F_DUPFD_CLOEXEC, kFdsStart + count);
    if (high[static_cast<std::size_t>(i)] < 0) return false;
  }
  std::size_t end = 0;
  for (std::size_t i = 0; i < store.size(); ++i) {
    if (::dup2(high[i], kFdsStart + static_cast<int>(i)) < 0) return false;
    if (i > 0) names[end++] = ':';
    const std::size_t length = std::strlen(store.name(i));
    std::memcpy(&names[end], store.name(i), length);
    end += length;
  }
  names[end] = '\0';
  SetNumber("LISTEN_FDS", count);
  SetNumber("LISTEN_PID", ::getpid());
  ::setenv("LISTEN_FDNAMES", names.data(), 1);
  return true;
}

// In the child. Returns only when the daemon cannot be run.
void RunDaemon(const Options& options, const FdStore& store, const NotifySocket& socket,
               pid_t keeper) {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::setpgid(0, 0);  // a Ctrl-C on a terminal is for the keeper, which passes it on once
  if (!PassOn(store)) {
    std::fprintf(stderr, "sticky-keeper: hand %zu descriptors to stickyd: %s\n", store.size(),
                 std::strerror(errno));
    return;
  }
  ::setenv("NOTIFY_SOCKET", socket.address(), 1);
  SetNumber("FDSTORE", static_cast<long>(kKeptFdsMax));
  SetNumber("STICKYINVOC_KEEPER", keeper);
  ::execv(options.program, options.arguments);
  std::fprintf(stderr, "sticky-keeper: run '%s': %s\n", options.program, std::strerror(errno));
}

class Keeper {
 public:
  explicit Keeper(const Options& options)
      : options_(options), restarts_(options.restart_count_max, options.delay_ms_max) {}

  int Run();

 private:
  bool Prepare();
  bool Start();
  void OnSignals();
  void OnEnded(int status);
  int TimeoutMs() const;

  const Options& options_;
  Restarts restarts_;
  FdStore store_;
  NotifySocket socket_;
  int signals_ = -1;
  pid_t daemon_ = -1;  // -1: none runs
  bool is_ready_ = false;
  bool is_ending_ = false;
  bool has_ended_ = false;
  std::int64_t started_ms_ = 0;
  std::int64_t start_again_ms_ = 0;  // when no daemon runs
  std::int64_t kill_ms_ = 0;         // when it is ending
  int exit_code_ = kExitOk;
};

bool Keeper::Prepare() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  ::signal(SIGHUP, SIG_IGN);  // a terminal that closes does not take the node's states along
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t mask;
  ::sigemptyset(&mask);
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) ::sigaddset(&mask, signal);
  ::sigprocmask(SIG_BLOCK, &mask, nullptr);
  signals_ = ::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  return signals_ >= 0 && socket_.Open();
}

bool Keeper::Start() {
  const pid_t keeper = ::getpid();
  started_ms_ = NowMs();
  is_ready_ = false;
  daemon_ = ::fork();
  if (daemon_ == 0) {
    RunDaemon(options_, store_, socket_, keeper);
    ::_exit(kExitNoCommand);
  }
  return daemon_ > 0;
}

void Keeper::OnEnded(int status) {
  is_ready_ = socket_.Read(daemon_, store_) || is_ready_;  // its last words
  const bool was_killed = WIFSIGNALED(status);
  const int code = was_killed ? WTERMSIG(status) : WEXITSTATUS(status);
  const pid_t pid = daemon_;
  daemon_ = -1;
  exit_code_ = was_killed ? 128 + code : code;
  const std::int64_t now_ms = NowMs();
  const std::int64_t delay_ms =
      restarts_.DelayAfter({was_killed, code, is_ready_, now_ms - started_ms_});
  if (is_ending_ || delay_ms < 0) {
    has_ended_ = true;
    if (exit_code_ == kExitOk) return;
    std::fprintf(
        stderr, "sticky-keeper: stickyd (pid %d) %s %d; it is not started again%s\n", pid,
        was_killed ? "was ended by signal" : "ended with code", code,
        restarts_.count() >= options_.restart_count_max ? ", too many starts in a row" : "");
    return;
  }
  start_again_ms_ = now_ms + delay_ms;
  std::fprintf(stderr,
               "sticky-keeper: stickyd (pid %d) %s %d; it is started again in %lld ms, with %zu "
               "descriptors\n",
               pid, was_killed ? "was ended by signal" : "ended with code", code,
               static_cast<long long>(delay_ms), store_.size());
}

void Keeper::OnSignals() {
  signalfd_siginfo told{};
  while (::read(signals_, &told, sizeof told) == static_cast<ssize_t>(sizeof told)) {
    if (told.ssi_signo == SIGCHLD) continue;
    is_ending_ = true;
    kill_ms_ = NowMs() + kEndMs;
    if (daemon_ > 0) {
      ::kill(daemon_, SIGTERM);
    } else {
      has_ended_ = true;
    }
  }
  int status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid == daemon_) OnEnded(status);
  }
}

// Until something is to be done without being told; -1: nothing is.
int Keeper::TimeoutMs() const {
  const bool waits_to_start = daemon_ < 0;
  if (!waits_to_start && !is_ending_) return -1;
  const std::int64_t left_ms = (waits_to_start ? start_again_ms_ : kill_ms_) - NowMs();
  return static_cast<int>(left_ms < 0 ? 0 : left_ms);
}

int Keeper::Run() {
  if (!Prepare() || !Start()) {
    std::fprintf(stderr, "sticky-keeper: start: %s\n", std::strerror(errno));
    return kExitTryAgain;
  }
  while (!has_ended_) {
    std::array<pollfd, 2> fds{{{signals_, POLLIN, 0}, {socket_.fd(), POLLIN, 0}}};
    ::poll(fds.data(), fds.size(), TimeoutMs());
    is_ready_ = socket_.Read(daemon_, store_) || is_ready_;
    OnSignals();
    const std::int64_t now_ms = NowMs();
    if (is_ending_ && daemon_ > 0 && now_ms >= kill_ms_) ::kill(daemon_, SIGKILL);
    if (!has_ended_ && daemon_ < 0 && now_ms >= start_again_ms_ && !Start()) {
      start_again_ms_ = now_ms + options_.delay_ms_max;  // no process can be made now
    }
  }
  return exit_code_;
}

// The stickyd that lies beside this program; null with errno set when that cannot be found out.
const char* ProgramBeside() {
  static std::array<char, PATH_MAX> path;
  constexpr const char* kName = "stickyd";
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (length <= 0) return nullptr;
  path[static_cast<std::size_t>(length)] = '\0';
  char* const slash = std::strrchr(path.data(), '/');
  if (slash == nullptr || slash + 1 + std::strlen(kName) >= path.data() + path.size()) {
    return nullptr;
  }
  std::strcpy(slash + 1, kName);
  return path.data();
}

bool ParseCount(const char* text, std::uint32_t& out) {
  char* end = nullptr;
  errno = 0;
  const unsigned long count = std::strtoul(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || count > UINT32_MAX) return false;
  out = static_cast<std::uint32_t>(count);
  return true;
}

int Main(int argc, char** argv) {
  constexpr std::array<option, 6> kOptions{{{"restarts", required_argument, nullptr, 'r'},
                                            {"max-delay", required_argument, nullptr, 'm'},
                                            {"daemon", required_argument, nullptr, 'd'},
                                            {"version", no_argument, nullptr, 'v'},
                                            {"help", no_argument, nullptr, 'h'},
                                            {nullptr, 0, nullptr, 0}}};
  Options options;
  for (int found; (found = ::getopt_long(argc, argv, "+", kOptions.data(), nullptr)) != -1;) {
    if (found == 'h') return std::fputs(kUsage, stdout) < 0 ? kExitOutput : kExitOk;
    if (found == 'v') return std::puts("sticky-keeper " STICKY_VERSION) < 0 ? kExitOutput : kExitOk;
    if (found == 'd') options.program = optarg;
    const bool is_wrong = (found == 'r' && !ParseCount(optarg, options.restart_count_max)) ||
                          (found == 'm' && !ParseCount(optarg, options.delay_ms_max));
    if (found == '?' || is_wrong) {
      std::fputs("sticky-keeper: read options: see sticky-keeper --help\n", stderr);
      return kExitUsage;
    }
  }
  if (options.program == nullptr) options.program = ProgramBeside();
  if (options.program == nullptr) {
    std::fprintf(stderr, "sticky-keeper: find stickyd: %s\n", std::strerror(errno));
    return kExitNoInput;
  }
  // The daemon's options follow ours; its name takes the place of the last word before them.
  options.arguments = argv + optind - 1;
  options.arguments[0] = const_cast<char*>(options.program);
  static Keeper keeper(options);
  return keeper.Run();
}

}  // namespace
}  // namespace sticky::keeper

int main(int argc, char** argv) { return sticky::keeper::Main(argc, argv); }
