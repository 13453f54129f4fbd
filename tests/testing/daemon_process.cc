#include "tests/testing/daemon_process.h"

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string_view>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/text.h"

namespace sticky::testing {

std::string ProgramPrefix() {
  const char* const prefix = std::getenv("STICKY_TEST_PREFIX");
  return prefix != nullptr && *prefix != '\0' ? prefix : STICKY_BUILD_DIR;
}

DaemonProcess::DaemonProcess(const DaemonOptions& options) : options_(options) { Start(); }

void DaemonProcess::Start() {
  ::mkdir((folder_ / "run").c_str(), 0700);
  Process::Options start;
  const std::string program =
      options_.program.empty() ? ProgramPrefix() + "/bin/stickyd" : options_.program;
  start.command = {program};
  if (options_.kept) {
    start.command = {ProgramPrefix() + "/bin/sticky-keeper",
                     "--restarts",
                     "1000000",
                     "--max-delay",
                     "50",
                     "--daemon",
                     program,
                     "--"};
  }
  start.command.insert(start.command.end(), {"--socket", socket_path()});
  // Always a config of our own, so that none of this machine's is read.
  WriteText(folder_ / "config.yaml", options_.config.empty() ? "{}\n" : options_.config);
  start.command.insert(start.command.end(), {"--config", folder_ / "config.yaml"});
  start.command.insert(start.command.end(), options_.arguments.begin(), options_.arguments.end());
  start.environment = options_.environment;
  start.output_path = folder_ / "log";
  start.before_exec = options_.before_exec;
  process_ = Process::Start(start);
  if (!WaitUntil([&] { return Answers(); })) {
    ADD_FAILURE() << "stickyd does not answer; its log:\n" << log();
  }
}

bool DaemonProcess::Answers() const {
  Result<WireClient> client = WireClient::Connect(socket_path(), /*wait_ms=*/1000);
  return client.ok() && client.value().Status().ok();
}

pid_t DaemonProcess::pid() const {
  if (!options_.kept) return process_.pid();
  const std::vector<pid_t> children = ChildrenOf(process_.pid());
  return children.empty() ? -1 : children.front();
}

void DaemonProcess::KillAndWait() {
  const pid_t killed = pid();
  ASSERT_GT(killed, 0);
  ::kill(killed, SIGKILL);
  const auto is_back = [&] { return pid() > 0 && pid() != killed && Answers(); };
  EXPECT_TRUE(WaitUntil(is_back)) << "no other stickyd answers; its log:\n" << log();
}

DaemonProcess::~DaemonProcess() {
  process_.Signal(SIGCONT);
  process_.Signal(SIGTERM);
  static_cast<void>(process_.Wait());
  process_.KillAndReap();
  for (const char* const report : {"Sanitizer: ", "runtime error: "}) {
    if (log().find(report) != std::string::npos) ADD_FAILURE() << "a sanitizer found something";
  }
  if (::testing::Test::HasFailure()) std::cerr << "--- log of stickyd ---\n" << log();
}

WireClient DaemonProcess::Client() const { return WireClient::Connect(socket_path()).value(); }

void DaemonProcess::Restart() {
  process_.KillAndReap();
  Start();
}

bool DaemonProcess::LeaseCountBecomes(std::uint32_t count, std::int64_t deadline_ms) const {
  WireClient client = Client();
  return WaitUntil(
      [&] {
        const Result<wire::StatusReply> status = client.Status();
        return status.ok() && status.value().lease_count == count;
      },
      deadline_ms);
}

std::optional<pid_t> DaemonProcess::LoaderPid() const {
  const std::vector<pid_t> children = ChildrenOf(pid());
  if (children.empty()) return std::nullopt;
  // Between fork and exec it is still the daemon, which waits for that exec: to stop it there would
  // stop both.
  const auto program_of = [](pid_t process) {
    std::error_code error;
    return std::filesystem::read_symlink(Format("/proc/%d/exe", process), error);
  };
  if (program_of(children.front()) == program_of(pid())) return std::nullopt;
  return children.front();
}

void DaemonProcess::ExpectResidentBelow(std::uint64_t limit_bytes) const {
  const bool is_sanitized = !std::string_view(STICKY_SANITIZE).empty();
  if (is_sanitized) return;
  EXPECT_LT(ResidentBytes(pid()), limit_bytes);
}

std::string MakeProgramTree(const TempFolder& folder, const std::string& loader_script) {
  namespace fs = std::filesystem;
  const std::string loader = folder / "tree/libexec/stickyinvoc/sticky-loader";
  fs::create_directories(folder / "tree/bin");
  fs::create_directories(folder / "tree/libexec/stickyinvoc");
  // A copy: the program finds its loader through /proc/self/exe, which follows links.
  fs::copy_file(ProgramPrefix() + "/bin/stickyd", folder / "tree/bin/stickyd");
  if (!loader_script.empty()) {
    WriteText(loader, loader_script);
    ::chmod(loader.c_str(), 0755);
  }
  return folder / "tree/bin/stickyd";
}

}  // namespace sticky::testing
