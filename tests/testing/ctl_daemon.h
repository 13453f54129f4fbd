// CtlDaemon: a fixture with the real stickyd, and stickyctl run on it by this user or another.
//
// Thread: one thread at a time.

#ifndef STICKY_TESTS_TESTING_CTL_DAEMON_H_
#define STICKY_TESTS_TESTING_CTL_DAEMON_H_

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/testing/ctl_run.h"

namespace sticky::testing {

class CtlDaemon : public ::testing::Test {
 protected:
  using Json = nlohmann::json;

  void Start(const DaemonOptions& options = {}) { daemon_.emplace(options); }
  // A daemon whose budget is `memory`, as --memory takes it.
  void StartWithMemory(const std::string& memory) {
    DaemonOptions options;
    options.arguments = {"--memory", memory};
    Start(options);
  }

  // more: further lines of the template.
  std::string WriteTemplate(const std::string& file, const std::string& name,
                            const std::string& source, const std::string& more = "") const {
    std::string path = folder_ / file;
    WriteText(path, "name: " + name + "\nsource: {path: " + source + "}\n" + more);
    return path;
  }
  // A template of a model with one tensor of `size_bytes`.
  std::string MakeTemplate(const std::string& name, std::uint64_t size_bytes = 1 << 20,
                           const std::string& more = "") const {
    WriteTensorFile(folder_ / (name + ".safetensors"), size_bytes);
    return WriteTemplate(name + ".yaml", name, name + ".safetensors", more);
  }

  std::vector<std::string> Words(std::vector<std::string> words) const {
    words.insert(words.begin(), {"--socket", daemon_->socket_path()});
    return words;
  }
  CtlResult Run(const std::vector<std::string>& words,
                const std::function<void()>& before_exec = {}) const {
    return Ctl(Words(words), before_exec);
  }
  // The document that a command prints with --json, which must succeed.
  Json Ask(std::vector<std::string> words) const {
    words.push_back("--json");
    const CtlResult result = Run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return Json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  }

  // Lets every user of the machine reach the daemon, and stickyctl: from a copy, since the build
  // may lie where others cannot go. For root, who can become another user.
  void OpenToAll() {
    ::chmod(daemon_->folder().path().c_str(), 0755);
    ::chmod((daemon_->folder() / "run").c_str(), 0755);
    ::chmod(daemon_->socket_path().c_str(), 0666);
    ::chmod(folder_.path().c_str(), 0755);
    std::filesystem::copy_file(ProgramPrefix() + "/bin/stickyctl", folder_ / "stickyctl",
                               std::filesystem::copy_options::skip_existing);
  }
  static void BecomeNobody() {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(1);
  }
  CtlResult RunAsNobody(const std::vector<std::string>& words) const {
    return CtlRun(Words(words), BecomeNobody, folder_ / "stickyctl").Wait();
  }

  // As stickyctl tells this process's user.
  static std::string OwnName() {
    const passwd* const entry = ::getpwuid(::geteuid());  // NOLINT(concurrency-mt-unsafe)
    return entry != nullptr ? entry->pw_name : std::to_string(::geteuid());
  }

  TempFolder folder_;
  std::optional<DaemonProcess> daemon_;
};

}  // namespace sticky::testing

#endif  // STICKY_TESTS_TESTING_CTL_DAEMON_H_
