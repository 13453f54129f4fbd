// Exit codes of stickyctl, each seen with the real programs: the rows of docs/exit-codes.md.

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/testing/ctl_run.h"

namespace sticky::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

MATCHER_P2(EndsWithCode, code, reason, "") {
  *result_listener << "it ended with " << arg.code << " and said: " << arg.err;
  return arg.code == code && arg.err.find(reason) != std::string::npos;
}

class StickyctlExitCodes : public ::testing::Test {
 protected:
  void Start(const DaemonOptions& options = {}) { daemon_.emplace(options); }

  CtlResult Run(std::vector<std::string> words, const std::function<void()>& before_exec = {}) {
    const std::string socket = daemon_ ? daemon_->socket_path() : folder_ / "none.sock";
    words.insert(words.begin(), {"--socket", socket});
    return Ctl(words, before_exec);
  }
  // As nobody, when this is root: from a copy, since the build may lie where nobody cannot go.
  CtlResult RunAsNobody(std::vector<std::string> words) {
    if (::geteuid() != 0) return Run(std::move(words));
    const std::string program = folder_ / "stickyctl";
    std::filesystem::copy_file(ProgramPrefix() + "/bin/stickyctl", program,
                               std::filesystem::copy_options::skip_existing);
    ::chmod(folder_.path().c_str(), 0755);
    words.insert(words.begin(), {"--socket", daemon_->socket_path()});
    const auto become_nobody = [] {
      if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(1);
    };
    return CtlRun(words, become_nobody, program).Wait();
  }
  std::string WriteTemplate(const std::string& text) {
    std::string path = folder_ / ("t" + std::to_string(++template_count_) + ".yaml");
    WriteText(path, text);
    return path;
  }
  std::string MakeTemplate(const std::string& name, std::uint64_t size_bytes = 1 << 16) {
    WriteTensorFile(folder_ / (name + ".safetensors"), size_bytes);
    return WriteTemplate("name: " + name + "\nsource: {path: " + name + ".safetensors}\n");
  }
  // A daemon whose loads never get further than planning.
  void StartWithHangingLoader() {
    DaemonOptions options;
    options.program = MakeProgramTree(folder_, "#!/bin/sh\nexec sleep 600\n");
    Start(options);
  }

  TempFolder folder_;
  std::optional<DaemonProcess> daemon_;
  int template_count_ = 0;
};

TEST_F(StickyctlExitCodes, Usage64) {
  EXPECT_THAT(Run({}), EndsWithCode(64, "the command is missing"));
  EXPECT_THAT(Run({"lss"}), EndsWithCode(64, "did you mean 'ls'?"));
  EXPECT_THAT(Run({"ls", "--jsn"}), EndsWithCode(64, "did you mean '--json'?"));
  EXPECT_THAT(Run({"show"}), EndsWithCode(64, "stickyctl show --help"));
  EXPECT_THAT(Run({"show", "a/b"}), EndsWithCode(64, "a/b"));
  EXPECT_THAT(Run({"evict", ".x"}), EndsWithCode(64, ".x"));
  EXPECT_THAT(Run({"run", "--", "true"}), EndsWithCode(64, "--state NAME or --template FILE"));
  EXPECT_THAT(Run({"run", "--state", "x"}), EndsWithCode(64, "COMMAND is missing"));
  EXPECT_THAT(Run({"load", "x.yaml", "--wait=soon"}), EndsWithCode(64, "want seconds"));
  EXPECT_THAT(Ctl({"ls", "--socket", std::string(200, 'x')}), EndsWithCode(64, "200 bytes"));
}

TEST_F(StickyctlExitCodes, BadInput65) {
  Start();
  const std::string good = MakeTemplate("good");
  ASSERT_EQ(Run({"load", good, "--wait"}).code, 0);
  MakeTemplate("short");
  std::filesystem::resize_file(folder_ / "short.safetensors", 1000);
  const auto loading = [&](const std::string& text) {
    return Run({"load", WriteTemplate(text), "--wait"});
  };

  EXPECT_THAT(loading("name: a\nsource: {path: x}\nnmae: b\n"),
              EndsWithCode(65, ".yaml:3:1: unknown key 'nmae'; did you mean 'name'?"));
  EXPECT_THAT(loading("\tname: a\n"), EndsWithCode(65, ".yaml:1:1: not YAML"));
  EXPECT_THAT(loading("name: a\nsource: {path: short.safetensors}\n"),
              EndsWithCode(65, "short.safetensors"));
  EXPECT_THAT(loading("name: a\nsource: {path: .}\n"), EndsWithCode(65, "no"));
  EXPECT_THAT(loading("name: good\nsource: {path: good.safetensors}\ndtype: f32\n"),
              EndsWithCode(65, "use another name, or --replace"));
}

TEST_F(StickyctlExitCodes, NoInput66) {
  Start();

  EXPECT_THAT(Run({"load", "/no/such/template.yaml"}), EndsWithCode(66, "/no/such/template.yaml"));
  EXPECT_THAT(Run({"load", WriteTemplate("name: a\nsource: {path: gone.gguf}\n")}),
              EndsWithCode(66, "gone.gguf"));
  EXPECT_THAT(Run({"show", "none"}), EndsWithCode(66, "stickyctl ls"));
  EXPECT_THAT(Run({"evict", "none"}), EndsWithCode(66, "stickyctl ls"));
  EXPECT_THAT(Run({"run", "--state", "none", "--", "true"}), EndsWithCode(66, "stickyctl load"));
}

// What was being done to what, the value, and what to do next.
TEST_F(StickyctlExitCodes, ALoadThatCannotBeginSaysWhatItReadAndWhatToDo) {
  Start();
  const std::string none = folder_ / "nope.yaml";
  const std::string misspelt = WriteTemplate("name: a\nsource: {path: x}\nnmae: b\n");
  const std::string binary = WriteTemplate(std::string("GGUF\x03\0\0\0\xa8\x01", 10));
  const std::string gone = WriteTemplate("name: a\nsource: {path: gone.gguf}\n");

  EXPECT_EQ(Run({"load", none}).err,
            "stickyctl: load a template: read '" + none +
                "': No such file or directory; give the path of a YAML file with `name` and "
                "`source.path`\n");
  EXPECT_EQ(
      Run({"load", misspelt}).err,
      "stickyctl: load a template: " + misspelt +
          ":3:1: unknown key 'nmae'; did you mean 'name'?; docs/templates.md has every key\n");
  EXPECT_EQ(Run({"hold", folder_.path()}).err,
            "stickyctl: load a template: read '" + folder_.path() +
                "': not a file; docs/templates.md has every key\n");
  EXPECT_THAT(Run({"load", binary}), EndsWithCode(65, "load a template: " + binary + ":1:"));
  EXPECT_EQ(Run({"load", gone}).err, "stickyctl: load 'a': open '" + (folder_ / "gone.gguf") +
                                         "': No such file or directory; source.path of '" + gone +
                                         "' is '" + (folder_ / "gone.gguf") + "'\n");
}

TEST_F(StickyctlExitCodes, NoDaemon69) {
  const std::string path = MakeTemplate("good");
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"ls"},
                                             {"show", "x"},
                                             {"status"},
                                             {"leases"},
                                             {"top"},
                                             {"events"},
                                             {"events", "--follow"},
                                             {"drain"},
                                             {"evict", "x"},
                                             {"load", path},
                                             {"hold", path},
                                             {"run", "--state", "x", "--", "true"}}) {
    const CtlResult result = Run(words);
    EXPECT_THAT(result, EndsWithCode(69, "none.sock")) << words[0];
    EXPECT_THAT(result.err, AllOf(HasSubstr("stickyd"), HasSubstr("STICKYINVOC_SOCKET")));
  }
  EXPECT_EQ(Run({"version"}).code, 0) << "its own version is there in any case";
}

TEST_F(StickyctlExitCodes, NoDaemon69WhenItDiesDuringAWait) {
  StartWithHangingLoader();
  CtlRun load({"--socket", daemon_->socket_path(), "load", MakeTemplate("good"), "--wait"});
  ASSERT_TRUE(WaitUntil([&] { return daemon_->LoaderPid().has_value(); }));

  const pid_t loader = *daemon_->LoaderPid();
  daemon_->process().KillAndReap();

  EXPECT_THAT(load.Wait(), EndsWithCode(69, "closed"));
  ::kill(loader, SIGKILL);  // the stand-in does not notice that its coordinator is gone
}

TEST_F(StickyctlExitCodes, OutputThatCannotBeWritten74) {
  Start();

  EXPECT_THAT(Run({"version"}, [] { ::close(STDOUT_FILENO); }),
              EndsWithCode(74, "write to standard output"));
  EXPECT_THAT(Run({"ls"}, [] { ::dup2(::open("/dev/full", O_WRONLY | O_CLOEXEC), 1); }),
              EndsWithCode(74, "No space left"));
}

TEST_F(StickyctlExitCodes, TryAgain75OverTheBudget) {
  DaemonOptions options;
  options.arguments = {"--memory", "1MiB"};
  Start(options);

  EXPECT_THAT(Run({"load", MakeTemplate("big", 8 << 20), "--wait"}),
              EndsWithCode(75, "memory.host"));
}

TEST_F(StickyctlExitCodes, TryAgain75WhileItLoads) {
  StartWithHangingLoader();
  const std::string path = MakeTemplate("slow");

  EXPECT_THAT(Run({"load", path, "--wait=0.1"}), EndsWithCode(75, "deadline passed"));
  EXPECT_THAT(Run({"run", "--state", "slow", "--", "true"}), EndsWithCode(75, "being loaded"));
  EXPECT_EQ(Run({"load", path}).code, 0) << "it joins, and does not wait";
  EXPECT_EQ(Run({"evict", "slow", "--wait"}).code, 0);
}

TEST_F(StickyctlExitCodes, TryAgain75WhileItDrains) {
  Start();
  const std::string path = MakeTemplate("good");
  ASSERT_EQ(Run({"load", path, "--wait"}).code, 0);
  CtlRun user({"--socket", daemon_->socket_path(), "run", "--state", "good", "--", "sleep", "600"});
  ASSERT_TRUE(daemon_->LeaseCountBecomes(1));
  ASSERT_EQ(Run({"evict", "good"}).code, 0);

  EXPECT_THAT(Run({"run", "--state", "good", "--", "true"}), EndsWithCode(75, "being evicted"));
  EXPECT_THAT(Run({"evict", "good", "--wait=0.05"}), EndsWithCode(75, ""));
  EXPECT_EQ(Run({"load", path, "--wait"}).code, 0) << "the next epoch does not wait for it";
  EXPECT_EQ(Run({"run", "--state", "good", "--", "true"}).code, 0);
}

TEST_F(StickyctlExitCodes, TryAgain75AtALimit) {
  DaemonOptions options;
  options.config = "limits: {leases: 1}\n";
  Start(options);
  ASSERT_EQ(Run({"load", MakeTemplate("good"), "--wait"}).code, 0);
  CtlRun user({"--socket", daemon_->socket_path(), "run", "--state", "good", "--", "sleep", "600"});
  ASSERT_TRUE(daemon_->LeaseCountBecomes(1));

  EXPECT_THAT(Run({"run", "--state", "good", "--", "true"}), EndsWithCode(75, "limit"));
}

// Root may read everything.
TEST_F(StickyctlExitCodes, NotAllowed77) {
  Start();
  const std::string path = MakeTemplate("good");
  const bool is_root = ::geteuid() == 0;
  ::chmod((daemon_->folder() / "run").c_str(), is_root ? 0700 : 0000);
  ::chmod(path.c_str(), 0000);

  EXPECT_THAT(RunAsNobody({"ls"}), EndsWithCode(77, "Permission denied"));
  EXPECT_THAT(RunAsNobody({"load", path}), EndsWithCode(77, "Permission denied"));
  ::chmod((daemon_->folder() / "run").c_str(), 0700);
}

TEST_F(StickyctlExitCodes, NotAllowed77OnAnotherUsersState) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become two users";
  Start();
  ASSERT_EQ(Run({"load", MakeTemplate("good"), "--wait"}).code, 0);
  ::chmod(daemon_->folder().path().c_str(), 0755);
  ::chmod((daemon_->folder() / "run").c_str(), 0755);
  ::chmod(daemon_->socket_path().c_str(), 0666);

  EXPECT_EQ(RunAsNobody({"ls"}).code, 0);
  EXPECT_THAT(RunAsNobody({"show", "good"}), EndsWithCode(77, "as user 65534"));
  EXPECT_THAT(RunAsNobody({"run", "--state", "good", "--", "true"}),
              EndsWithCode(77, "user 0 had it built, for itself alone"));
  EXPECT_THAT(RunAsNobody({"evict", "good"}), EndsWithCode(77, "for its owner, user 0"));
}

TEST_F(StickyctlExitCodes, OfACommandThatCannotRun) {
  Start();
  ASSERT_EQ(Run({"load", MakeTemplate("good"), "--wait"}).code, 0);
  WriteText(folder_ / "plain", "no program");

  EXPECT_THAT(Run({"run", "--state", "good", "--", "no-such-program"}),
              EndsWithCode(127, "no-such-program"));
  EXPECT_THAT(Run({"run", "--state", "good", "--", folder_ / "plain"}),
              EndsWithCode(126, "Permission denied"));
  EXPECT_TRUE(daemon_->LeaseCountBecomes(0));
}

// Whoever waits alone and gives up takes the load along.
TEST_F(StickyctlExitCodes, AnInterruptedLoadIsCancelled) {
  StartWithHangingLoader();
  CtlRun load({"--socket", daemon_->socket_path(), "load", MakeTemplate("slow"), "--wait"});
  ASSERT_TRUE(WaitUntil([&] { return daemon_->LoaderPid().has_value(); }));

  load.process().Signal(SIGINT);

  EXPECT_EQ(load.Wait().signal, SIGINT);
  EXPECT_TRUE(WaitUntil([&] { return !daemon_->LoaderPid().has_value(); }));
  EXPECT_THAT(Run({"show", "slow"}).out, HasSubstr("\ncancelled:  "));
  EXPECT_THAT(Run({"ls"}).out, HasSubstr("\nslow  cancelled  "));
  EXPECT_THAT(Run({"events"}).out, HasSubstr("  load-cancelled  slow"));
}

}  // namespace
}  // namespace sticky::testing
