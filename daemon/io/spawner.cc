#include "daemon/io/spawner.h"

#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <linux/close_range.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/text.h"
#include "flatbuffers/wire_socket.h"

namespace sticky::daemon {

// What the two threads hand to each other, while the descriptors go over the socket.
struct Spawner::Job {
  const Command* command = nullptr;
  int failure = 0;  // errno
  pid_t pid = -1;
};

namespace {

// Above every number that a child gets, so that none is in the way of another.
constexpr int kAside = 10;

UniqueFd Aside(const UniqueFd& fd) {
  return UniqueFd(fd.valid() ? ::fcntl(fd.get(), F_DUPFD_CLOEXEC, kAside) : -1);
}

// What the thread says first: which table it has.
constexpr std::uint8_t kOwnTable = 1;
constexpr std::uint8_t kSharedTable = 0;
// Ours, when there is a job.
constexpr std::uint8_t kGo[] = {1};

// Both sides are this process, so nobody is waited for who may not come.
Deadline Never() {
  constexpr std::int64_t kYearMs = std::int64_t{365} * 24 * 3600 * 1000;
  return Deadline::AfterMs(100 * kYearMs);
}

// Gives this thread a table of its own with the standard descriptors and `kept` in it. Where that
// cannot be had (close_range(2) came with Linux 5.9), all stays as it is.
bool HaveOwnTable(int kept) {
  const auto number = static_cast<unsigned>(kept);
  if (::close_range(STDERR_FILENO + 1, number - 1, CLOSE_RANGE_UNSHARE) != 0) return false;
  return ::close_range(number + 1, ~0U, 0) == 0;
}

struct Actions {
  Actions() { ::posix_spawn_file_actions_init(&actions); }
  ~Actions() { ::posix_spawn_file_actions_destroy(&actions); }
  posix_spawn_file_actions_t actions{};
};

// The child begins with no signal ignored or blocked.
struct Attributes {
  Attributes() {
    sigset_t none;
    sigset_t all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    ::posix_spawnattr_setsigmask(&attributes, &none);
  }
  ~Attributes() { ::posix_spawnattr_destroy(&attributes); }
  posix_spawnattr_t attributes{};
};

// channel, error_output: none, or at least kAside. Returns errno.
int Start(const Spawner::Command& command, const UniqueFd& channel, const UniqueFd& error_output,
          pid_t& pid) {
  Actions files;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO}) {
    const int flags = fd == STDIN_FILENO ? O_RDONLY : O_RDWR;
    ::posix_spawn_file_actions_addopen(&files.actions, fd, "/dev/null", flags, 0);
  }
  if (error_output.valid()) {
    ::posix_spawn_file_actions_adddup2(&files.actions, error_output.get(), STDERR_FILENO);
  }
  constexpr int kChannel = 3;
  if (channel.valid()) {
    ::posix_spawn_file_actions_adddup2(&files.actions, channel.get(), kChannel);
  }
  std::vector<char*> words = {const_cast<char*>(command.program.c_str())};
  for (const std::string& word : command.arguments)
    words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const Attributes attributes;
  return ::posix_spawn(&pid, command.program.c_str(), &files.actions, &attributes.attributes,
                       words.data(), environ);
}

}  // namespace

Result<std::unique_ptr<Spawner>> Spawner::Create() {
  const std::string doing = "make a thread that starts programs";
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return ErrnoError(doing, errno);
  }
  UniqueFd ours(pair[0]);
  UniqueFd jobs = Aside(UniqueFd(pair[1]));
  if (!jobs.valid()) return ErrnoError(doing, errno);
  std::unique_ptr<Spawner> made(new Spawner);
  // A signal's handler writes to a descriptor that the thread has not.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  int failure = 0;
  try {
    made->thread_ = std::thread([self = made.get(), number = jobs.get()] { self->Run(number); });
  } catch (const std::system_error& error) {
    failure = error.code().value();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failure != 0) return ErrnoError(doing, failure);
  made->jobs_ = std::move(ours);
  const Result<wire::Frame> first = wire::ReceiveFrame(made->jobs_.get(), Never());
  const bool has_own_table = first.ok() && first.value().bytes.front() == kOwnTable;
  if (!has_own_table) static_cast<void>(jobs.Release());  // the thread's, of the one table
  return made;
}

Spawner::~Spawner() {
  jobs_.Reset();
  if (thread_.joinable()) thread_.join();
}

void Spawner::Run(int number) {
  const std::uint8_t table[] = {HaveOwnTable(number) ? kOwnTable : kSharedTable};
  const UniqueFd jobs(number);
  Status sent = wire::SendFrame(jobs.get(), table, {}, Never());
  while (sent.ok()) {
    const Result<wire::Frame> frame = wire::ReceiveFrame(jobs.get(), Never());
    // Descriptors that did not all arrive: in the one table there was no room for them.
    if (!frame.ok() && frame.error().code != Code::kCorrupt) return;
    job_->failure = frame.ok() ? Do(*job_, frame.value().fds) : EMFILE;
    sent = wire::SendFrame(jobs.get(), table, {}, Never());
  }
}

// Returns errno.
int Spawner::Do(Job& job, const std::vector<UniqueFd>& fds) {
  const bool has_channel = job.command->channel >= 0;
  const bool has_output = job.command->error_output >= 0;
  const UniqueFd none;
  const UniqueFd channel = Aside(has_channel ? fds.front() : none);
  const UniqueFd error_output = Aside(has_output ? fds.back() : none);
  if (channel.valid() != has_channel || error_output.valid() != has_output) return EMFILE;
  return Start(*job.command, channel, error_output, job.pid);
}

Result<pid_t> Spawner::Spawn(const Command& command) {
  Job job;
  job.command = &command;
  job_ = &job;
  std::vector<int> fds;
  if (command.channel >= 0) fds.push_back(command.channel);
  if (command.error_output >= 0) fds.push_back(command.error_output);
  STICKY_TRY(wire::SendFrame(jobs_.get(), kGo, fds, Never()));
  // The job is this thread's again when the other has answered, and not before.
  STICKY_TRY(wire::ReceiveFrame(jobs_.get(), Never()));
  if (job.failure != 0) return ErrnoError("start '" + command.program + "'", job.failure);
  return job.pid;
}

}  // namespace sticky::daemon
