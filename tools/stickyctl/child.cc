#include "tools/stickyctl/child.h"

#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "tools/stickyctl/signals.h"

namespace sticky::stickyctl {
namespace {

// In the child, after fork. Returns only when it failed: errno says why.
void Become(const Child::Options& options, char* const* argv, pid_t parent) {
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0) return;
  if (::getppid() != parent) ::_exit(128 + SIGTERM);  // it died before it could be watched
  if (options.prints_to_stderr && ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return;
  if (::fcntl(options.inherited, F_SETFD, 0) != 0) return;
  sigset_t ending;
  ::sigemptyset(&ending);
  for (const int number : kEndingSignals) ::sigaddset(&ending, number);
  // NOLINTNEXTLINE(concurrency-mt-unsafe): it has one thread.
  if (::sigprocmask(SIG_UNBLOCK, &ending, nullptr) != 0) return;
  ::execvp(argv[0], argv);
}

// What came through the pipe that exec closes: 0, nothing came, or why there was no exec.
int WhyNotExecuted(const UniqueFd& pipe) {
  int why = 0;
  ssize_t got = 0;
  while ((got = ::read(pipe.get(), &why, sizeof why)) < 0 && errno == EINTR) {
  }
  return got == sizeof why ? why : 0;
}

}  // namespace

Result<Child> Child::Start(const Options& options) {
  const std::string doing = "run '" + Escape(options.words[0]) + "'";
  std::vector<std::string> words = options.words;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoError(doing, errno);
  const UniqueFd why_end(ends[0]);
  UniqueFd child_end(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return ErrnoError(doing, errno);
  if (pid == 0) {
    Become(options, argv.data(), parent);
    const int why = errno;
    static_cast<void>(!::write(child_end.get(), &why, sizeof why));
    ::_exit(127);
  }
  child_end.Reset();
  Child child(pid, UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))));
  if (const int why = WhyNotExecuted(why_end); why != 0) return ErrnoError(doing, why);
  if (child.ended_.valid()) return child;
  const int why = errno;
  child.Signal(SIGTERM);
  return ErrnoError("watch '" + Escape(options.words[0]) + "'", why);
}

void Child::Signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

int Child::Wait() {
  int status = 0;
  if (pid_ < 0) return status;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace sticky::stickyctl
