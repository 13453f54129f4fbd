#include "tests/testing/process.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/text.h"

namespace sticky::testing {

bool WaitUntil(const std::function<bool()>& condition, std::int64_t deadline_ms) {
  const Deadline deadline = Deadline::AfterMs(deadline_ms);
  for (;;) {
    if (condition()) return true;
    if (deadline.passed()) return false;
    ::poll(nullptr, 0, 2);
  }
}

TempFolder::TempFolder() {
  char name[] = "/tmp/sticky-test-XXXXXX";
  STICKY_CHECK(::mkdtemp(name) != nullptr);
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  return *this;
}

Process Process::Start(const Options& options) {
  std::vector<std::string> environment;
  for (const auto& [name, value] : options.environment) environment.push_back(name + "=" + value);
  std::vector<char*> envp;
  for (char** entry = environ; *entry != nullptr; ++entry) envp.push_back(*entry);
  for (std::string& entry : environment) envp.insert(envp.begin(), entry.data());
  envp.push_back(nullptr);
  std::vector<std::string> command = options.command;
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);

  const pid_t pid = ::fork();
  STICKY_CHECK(pid >= 0);
  if (pid > 0) return Process(pid);
  if (!options.output_path.empty()) {
    const int fd = ::open(options.output_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(fd, STDOUT_FILENO);
    ::dup2(fd, STDERR_FILENO);
    if (fd > STDERR_FILENO) ::close(fd);
  }
  if (options.before_exec) options.before_exec();
  ::execve(argv[0], argv.data(), envp.data());
  ::_exit(127);
}

Process Process::Fork(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  STICKY_CHECK(pid >= 0);
  if (pid == 0) ::_exit(body());
  return Process(pid);
}

void Process::Signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

std::optional<ExitStatus> Process::Wait(std::int64_t deadline_ms) {
  int status = 0;
  if (pid_ <= 0) return std::nullopt;
  if (!WaitUntil([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, deadline_ms)) {
    return std::nullopt;
  }
  pid_ = -1;
  ExitStatus exit;
  if (WIFEXITED(status)) exit.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) exit.signal = WTERMSIG(status);
  return exit;
}

void Process::KillAndReap() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

std::vector<pid_t> ChildrenOf(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code error;
  for (const auto& thread :
       std::filesystem::directory_iterator(Format("/proc/%d/task", pid), error)) {
    std::ifstream file(thread.path() / "children");
    for (pid_t child = 0; file >> child;) children.push_back(child);
  }
  return children;
}

std::uint64_t ResidentBytes(pid_t pid) {
  std::ifstream file(Format("/proc/%d/statm", pid));
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

int OpenDescriptors(pid_t pid) {
  std::error_code ignored;
  int count = 0;
  for (std::filesystem::directory_iterator it(Format("/proc/%d/fd", pid), ignored), end; it != end;
       it.increment(ignored)) {
    ++count;
  }
  return count;
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void WriteText(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

}  // namespace sticky::testing
