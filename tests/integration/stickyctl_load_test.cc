// `stickyctl load` and `run --wait` with the real programs: every weight file of the cases, what
// waits for a load that is under way, and what a terminal and a log see of one.

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <pty.h>
#include <unistd.h>

#include "tests/testing/ctl_run.h"
#include "tests/testing/expected_cases.h"

namespace sticky::testing {
namespace {

using Json = nlohmann::json;
using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class StickyctlLoad : public ::testing::Test {
 protected:
  // Without it nothing is drawn. NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread
  static void SetUpTestSuite() { ::setenv("TERM", "xterm", 1); }

  void Start(const DaemonOptions& options = {}) { daemon_.emplace(options); }
  // A daemon whose loaders do nothing before OpenGate().
  void StartWithGate() {
    DaemonOptions options;
    const std::string loader = ProgramPrefix() + "/libexec/stickyinvoc/sticky-loader";
    options.program =
        MakeProgramTree(folder_, "#!/bin/sh\nwhile [ ! -e '" + (folder_ / "gate") +
                                     "' ]; do sleep 0.01; done\nexec '" + loader + "'\n");
    Start(options);
  }
  void OpenGate() const { WriteText(folder_ / "gate", ""); }

  std::string WriteTemplate(const std::string& name, const std::string& source) const {
    std::string path = folder_ / (name + ".yaml");
    WriteText(path, "name: " + name + "\nsource:\n  path: '" + source + "'\n");
    return path;
  }
  std::string MakeTemplate(const std::string& name, std::uint64_t size_bytes) const {
    WriteTensorFile(folder_ / (name + ".safetensors"), size_bytes);
    return WriteTemplate(name, folder_ / (name + ".safetensors"));
  }
  std::vector<std::string> Words(std::vector<std::string> words) const {
    words.insert(words.begin(), {"--socket", daemon_->socket_path()});
    return words;
  }
  CtlResult Run(const std::vector<std::string>& words) const { return Ctl(Words(words)); }
  Json Ask(std::vector<std::string> words) const {
    words.push_back("--json");
    return Json::parse(Run(words).out, nullptr, /*allow_exceptions=*/false);
  }
  std::string PhaseOf(const std::string& name) const {
    return Ask({"show", name})["state"]["phase"];
  }

  TempFolder folder_;
  std::optional<DaemonProcess> daemon_;
};

// --- every weight file of the cases -------------------------------------------------------------

TEST_F(StickyctlLoad, EveryCaseIsReadyOrRefusedWithItsReasonAndTheDaemonLives) {
  Start();
  int ready_count = 0;
  int refused_count = 0;
  for (const Case& one : ReadCases()) {
    SCOPED_TRACE(one.file + ": " + one.verdict);
    const std::string name = "case" + std::to_string(ready_count + refused_count);
    const std::string path = (CasesDir() / "fixtures" / one.file).string();

    const CtlResult result = Run({"load", WriteTemplate(name, path), "--wait"});

    const std::vector<std::string> reason = WordsOfRefusal(one.verdict);
    if (reason.empty()) {
      EXPECT_EQ(result.code, 0) << result.err;
      EXPECT_EQ(PhaseOf(name), "ready");
      ++ready_count;
    } else {
      EXPECT_EQ(result.code, 65) << result.err;
      const std::vector<std::string> said = sticky::testing::Words(result.err);
      for (const std::string& word : reason) EXPECT_THAT(said, Contains(word)) << result.err;
      EXPECT_EQ(PhaseOf(name), "failed");
      ++refused_count;
    }
    const Json status = Ask({"status"})["daemon"];
    EXPECT_EQ(status["pid"], daemon_->pid());
    EXPECT_EQ(status["lease_count"], 0);
  }
  EXPECT_GT(ready_count, 0);
  EXPECT_GT(refused_count, ready_count);
  EXPECT_EQ(ChildrenOf(daemon_->pid()), std::vector<pid_t>());
}

TEST_F(StickyctlLoad, FoldersOfShardsAreReadyOrRefusedWithTheShard) {
  Start();
  const auto load = [&](const char* folder) {
    const std::string path = (CasesDir() / "fixtures/idx" / folder).string();
    return Run({"load", WriteTemplate(folder, path), "--wait"});
  };

  const CtlResult whole = load("ok");
  const CtlResult missing = load("missing-shard");
  const CtlResult escaping = load("path-escape");

  EXPECT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(PhaseOf("ok"), "ready");
  EXPECT_EQ(missing.code, 66) << missing.err;
  EXPECT_THAT(missing.err, HasSubstr("model-00002-of-00002.safetensors"));
  EXPECT_EQ(escaping.code, 65) << escaping.err;
  EXPECT_EQ(Ask({"ls"})["states"].size(), 1U) << "the daemon was asked for none of these";
}

// --- run --wait ---------------------------------------------------------------------------------

TEST_F(StickyctlLoad, RunWaitsForAStateThatIsBeingLoaded) {
  StartWithGate();
  ASSERT_EQ(Run({"load", MakeTemplate("smol", 1 << 20)}).code, 0);
  EXPECT_EQ(PhaseOf("smol"), "planning");

  CtlRun run(Words({"run", "--state", "smol", "--wait", "--", "echo", "it is there"}));
  ASSERT_TRUE(WaitUntil([&] { return Ask({"status"})["daemon"]["connection_count"] == 2; }))
      << "run's connection and status's own";
  EXPECT_EQ(run.out(), "") << "not before the state is ready";
  OpenGate();

  const CtlResult result = run.Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "it is there\n");
  EXPECT_THAT(result.err, StartsWith("load 'smol': ")) << "it shows how far the load is";
  EXPECT_THAT(result.err, EndsWith("load 'smol': 100%, 1.00 MiB of 1.00 MiB\n"));
  EXPECT_EQ(PhaseOf("smol"), "ready");
}

TEST_F(StickyctlLoad, RunThatWaitsIsToldWhyTheLoadFailed) {
  StartWithGate();
  const std::string path = (CasesDir() / "fixtures/st/truncated-1-byte.safetensors").string();
  ASSERT_EQ(Run({"load", WriteTemplate("bad", path)}).code, 0);

  CtlRun run(Words({"run", "--state", "bad", "--wait", "--", "echo", "never"}));
  ASSERT_TRUE(WaitUntil([&] { return Ask({"status"})["daemon"]["connection_count"] == 2; }));
  OpenGate();

  const CtlResult result = run.Wait();
  EXPECT_EQ(result.code, 65) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("truncated-1-byte.safetensors"));
}

// --- what a terminal and a log see of a load ----------------------------------------------------

// Reads what comes out of `fd` while it comes, as a terminal does: nobody who writes there waits.
class Drain {
 public:
  explicit Drain(int fd) : fd_(fd), thread_([this] { Read(); }) {}
  ~Drain() {
    if (thread_.joinable()) thread_.join();
  }
  // To be called when nobody has the other end open any more.
  std::string Text() {
    thread_.join();
    return text_;
  }

 private:
  void Read() {
    std::array<char, 512> part{};
    for (ssize_t count = 0; (count = ::read(fd_.get(), part.data(), part.size())) > 0;) {
      text_.append(part.data(), static_cast<std::size_t>(count));
    }
  }

  UniqueFd fd_;
  std::string text_;    // the thread's, until it has ended
  std::thread thread_;  // last: it uses the others
};

// `text` cut at each `cut`.
std::vector<std::string> Parts(const std::string& text, const std::string& cut) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(cut, at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + cut.size();
  }
  return parts;
}

constexpr std::uint64_t kManyBytes = 256 << 20;  // enough for several reports of progress

TEST_F(StickyctlLoad, ATerminalGetsOneLineThatIsDrawnAnew) {
  Start();
  int leader = -1;
  int follower = -1;
  const winsize size{.ws_row = 24, .ws_col = 60, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(::openpty(&leader, &follower, nullptr, nullptr, &size), 0);
  UniqueFd follower_end(follower);
  Drain drain(leader);

  CtlRun load(Words({"load", MakeTemplate("smol", kManyBytes), "--wait"}),
              [follower] { ::dup2(follower, STDERR_FILENO); });
  const CtlResult result = load.Wait();
  follower_end.Reset();
  const std::string shown = drain.Text();

  EXPECT_EQ(result.code, 0) << shown;
  EXPECT_THAT(result.out, HasSubstr("state 'smol' is ready"));
  EXPECT_THAT(shown, StartsWith("\rsmol ["));
  EXPECT_THAT(shown, EndsWith("\r\x1b[K")) << "the bar is taken away";
  EXPECT_THAT(shown, Not(HasSubstr("\n")));
  for (const std::string& line : Parts(shown, "\r")) {
    EXPECT_THAT(line, EndsWith("\x1b[K"));
    EXPECT_LT(line.size() - 3, 60u) << "would wrap: " << line;
  }
}

TEST_F(StickyctlLoad, APipeGetsPlainLines) {
  Start();
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  UniqueFd write_end(ends[1]);
  Drain drain(ends[0]);

  CtlRun load(Words({"load", MakeTemplate("smol", kManyBytes), "--wait", "--json"}),
              [fd = ends[1]] { ::dup2(fd, STDERR_FILENO); });
  const CtlResult result = load.Wait();
  write_end.Reset();
  const std::string shown = drain.Text();

  EXPECT_EQ(result.code, 0) << shown;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1);
  EXPECT_TRUE(Json::accept(result.out));
  EXPECT_THAT(shown, EndsWith("\n"));
  EXPECT_THAT(shown, Not(HasSubstr("\r")));
  EXPECT_THAT(shown, Not(HasSubstr("\x1b")));
  const std::vector<std::string> lines = Parts(shown, "\n");
  EXPECT_FALSE(lines.empty());
  for (const std::string& line : lines) EXPECT_THAT(line, StartsWith("load 'smol': "));
  EXPECT_THAT(lines.back(), StartsWith("load 'smol': 100%, 256.00 MiB of 256.00 MiB"));
}

}  // namespace
}  // namespace sticky::testing
