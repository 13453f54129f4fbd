// `stickyctl events` and `top` with the real programs: what a person, a log and a terminal see of a
// node, and how it ends.

#include <algorithm>
#include <array>
#include <csignal>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <termios.h>
#include <unistd.h>

#include "tests/testing/ctl_daemon.h"

namespace sticky::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kTake = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr const char* kGiveBack = "\x1b[?7h\x1b[?25h\x1b[?1049l";

class StickyctlWatch : public CtlDaemon {
 protected:
  // Each line of `text`, which must be a document. A last line that is not yet whole is left out.
  static std::vector<Json> Documents(const std::string& text) {
    std::vector<Json> documents;
    for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos;) {
      documents.push_back(Json::parse(text.substr(at, end - at), nullptr,
                                      /*allow_exceptions=*/false));
      EXPECT_EQ(documents.back().value("schema_version", 0), 1) << text.substr(at, end - at);
      at = end + 1;
    }
    return documents;
  }
  static std::vector<std::string> Kinds(const std::vector<Json>& events) {
    std::vector<std::string> kinds;
    for (const Json& event : events) kinds.push_back(event.value("kind", "none"));
    return kinds;
  }
  std::vector<Json> Events(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"events", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const CtlResult result = Run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return Documents(result.out);
  }
};

// --- events -------------------------------------------------------------------------------------

TEST_F(StickyctlWatch, EventsTellTheLifeOfAStateInOrder) {
  Start();
  ASSERT_EQ(Run({"load", MakeTemplate("smol"), "--wait"}).code, 0);
  ASSERT_EQ(Run({"run", "--state", "smol", "--", "true"}).code, 0);
  ASSERT_TRUE(daemon_->LeaseCountBecomes(0));
  ASSERT_EQ(Run({"drain", "smol"}).code, 0);
  ASSERT_EQ(Run({"drain", "smol", "--resume"}).code, 0);
  ASSERT_EQ(Run({"evict", "smol", "--wait"}).code, 0);

  const std::vector<Json> events = Events();

  EXPECT_THAT(Kinds(events),
              ElementsAre("load", "ready", "attach", "detach", "drain", "resume", "evict", "gone"));
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["sequence"], i + 1);
    EXPECT_EQ(events[i]["state"], "smol");
    EXPECT_EQ(events[i]["epoch"], 1);
    EXPECT_EQ(events[i]["uid"], ::geteuid());
  }
  EXPECT_GT(events[0]["pid"], 0);
  EXPECT_EQ(events[1]["pid"], 0) << "the daemon's own doing";
  EXPECT_THAT(Kinds(Events({"--after", "6"})), ElementsAre("evict", "gone"));
  EXPECT_THAT(Events({"--after=8"}), IsEmpty());
}

TEST_F(StickyctlWatch, PeopleReadEventsInATable) {
  Start();
  ASSERT_EQ(Run({"load", MakeTemplate("smol"), "--wait"}).code, 0);

  const std::string text = Run({"events"}).out;

  EXPECT_THAT(text, StartsWith("EVENT  TIME "));
  EXPECT_THAT(text, HasSubstr("  load            smol              1  " + OwnName() + "  "));
  const std::size_t line = text.find('\n') + 1;
  EXPECT_EQ(text.substr(line, 7), "    1  ") << "its number, as --after takes it";
  EXPECT_THAT(text.substr(line + 7, 29), MatchesRegex("....-..-..T..:..:..\\....[+-]..:.."));
  EXPECT_EQ(Run({"events", "--after", "many"}).code, 64);
}

TEST_F(StickyctlWatch, WhoAsksTooLateIsToldHowManyEventsWereLost) {
  DaemonOptions options;
  options.config = "journal: {events: 64}\n";
  Start(options);
  ASSERT_EQ(Run({"load", MakeTemplate("smol"), "--wait"}).code, 0);
  constexpr int kAttaches = 40;  // two events each
  for (int i = 0; i < kAttaches; ++i) {
    WireClient client = daemon_->Client();
    ASSERT_TRUE(client.Ask(wire::AttachRequest{"smol", {}, 0, false}).ok());
  }
  ASSERT_TRUE(daemon_->LeaseCountBecomes(0));

  const std::vector<Json> documents = Events();
  const CtlResult text = Run({"events"});

  ASSERT_EQ(documents.size(), 65U);
  EXPECT_EQ(documents[0]["lost"], 2 + 2 * kAttaches - 64);
  EXPECT_EQ(documents[1]["sequence"], 2 + 2 * kAttaches - 64 + 1);
  EXPECT_THAT(text.err, HasSubstr("18 events before these are not kept any more"));
}

TEST_F(StickyctlWatch, EventsOfMoreThanOneReplyAreAllPrinted) {
  Start();
  ASSERT_EQ(Run({"load", MakeTemplate("smol"), "--wait"}).code, 0);
  constexpr int kAttaches = 600;
  for (int i = 0; i < kAttaches; ++i) {
    WireClient client = daemon_->Client();
    ASSERT_TRUE(client.Ask(wire::AttachRequest{"smol", {}, 0, false}).ok());
  }
  ASSERT_TRUE(daemon_->LeaseCountBecomes(0));

  EXPECT_EQ(Events().size(), 2U + 2 * kAttaches);
}

TEST_F(StickyctlWatch, FollowPrintsWhatComesUntilASignal) {
  Start();
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string name = "smol" + std::to_string(signal);
    CtlRun follow(Words({"events", "--follow", "--json"}));
    ASSERT_EQ(Run({"load", MakeTemplate(name), "--wait"}).code, 0);
    ASSERT_TRUE(WaitUntil([&] {
      const std::vector<Json> seen = Documents(follow.out());
      return !seen.empty() && seen.back()["kind"] == "ready" && seen.back()["state"] == name;
    })) << follow.out();

    follow.process().Signal(signal);

    const CtlResult end = follow.Wait();
    EXPECT_EQ(end.code, 0) << end.err;
    EXPECT_EQ(end.err, "");
  }
}

TEST_F(StickyctlWatch, FollowEndsWhenTheDaemonGoesAway) {
  Start();
  CtlRun killed(Words({"events", "--follow"}));
  ASSERT_TRUE(WaitUntil([&] { return killed.out().starts_with("EVENT  TIME "); }));
  daemon_->process().KillAndReap();
  EXPECT_EQ(killed.Wait().code, 69) << killed.err();
  daemon_->Restart();
  CtlRun ended(Words({"events", "--follow", "--json"}));
  ASSERT_EQ(Run({"load", MakeTemplate("smol"), "--wait"}).code, 0);
  ASSERT_TRUE(WaitUntil([&] { return Documents(ended.out()).size() == 2; }));

  daemon_->process().Signal(SIGTERM);

  const CtlResult end = ended.Wait();
  EXPECT_EQ(end.code, 69) << end.err;
  const std::vector<Json> documents = Documents(end.out);
  ASSERT_EQ(documents.size(), 4U) << end.out;
  EXPECT_EQ(documents[2]["kind"], "shutdown");
  EXPECT_EQ(documents[3]["error"]["exit_code"], 69);
}

TEST_F(StickyctlWatch, AUserSeesTheirOwnEventsAndThoseOfStatesForThem) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become two users";
  Start();
  ASSERT_EQ(Run({"load", MakeTemplate("secret"), "--wait"}).code, 0);
  ASSERT_EQ(Run({"load", MakeTemplate("shared", 1 << 20, "access: {mode: node}\n"), "--wait"}).code,
            0);
  OpenToAll();
  EXPECT_EQ(RunAsNobody({"show", "secret"}).code, 77);

  const std::vector<Json> theirs = Documents(RunAsNobody({"events", "--json"}).out);
  const std::vector<Json> all = Events();

  EXPECT_THAT(Kinds(theirs), ElementsAre("load", "ready", "refusal"));
  EXPECT_EQ(theirs[0]["state"], "shared");
  EXPECT_EQ(theirs[2]["uid"], 65534);
  EXPECT_THAT(Kinds(all), ElementsAre("load", "ready", "load", "ready", "refusal"));
  EXPECT_THAT(Run({"events"}).out, HasSubstr("  nobody  "));
}

// The daemon's end is no event of theirs: they are refused to wait any longer.
TEST_F(StickyctlWatch, AUserWhoFollowsIsToldThatTheDaemonGoesAway) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become two users";
  Start();
  OpenToAll();
  CtlRun follow(Words({"events", "--follow"}), BecomeNobody, folder_ / "stickyctl");
  ASSERT_TRUE(WaitUntil([&] { return Ask({"status"})["daemon"]["connection_count"] == 2; }));

  daemon_->process().Signal(SIGTERM);

  EXPECT_EQ(follow.Wait().code, 69) << follow.err();
}

// A source's path may hold anything.
TEST_F(StickyctlWatch, EventsOfOddPathsStayOneLineEach) {
  Start();
  WireClient client = daemon_->Client();
  const std::string file = folder_ / "m.safetensors";
  WriteTensorFile(file, 1 << 16);
  wire::LoadRequest request = LoadRequestFor("smol", /*wait_ms=*/10'000);
  request.source = "/a\x1b[2J\nb" + std::string(3000, 'x');
  ASSERT_TRUE(client.Load(request, file).ok());

  const CtlResult text = Run({"events"});
  const CtlResult json = Run({"events", "--json"});

  EXPECT_EQ(std::count(text.out.begin(), text.out.end(), '\n'), 3) << text.out;
  EXPECT_EQ(Documents(json.out).size(), 2U);
  for (const std::string& out : {text.out, json.out, Run({"ls"}).out, Run({"show", "smol"}).out}) {
    EXPECT_THAT(out, Not(HasSubstr("\x1b")));
  }
  EXPECT_THAT(text.out, HasSubstr("/a\\x1b[2J\\nbxxx"));
}

// --- top ----------------------------------------------------------------------------------------

// A terminal of 24 rows whose text is read all the time.
class Terminal {
 public:
  Terminal() {
    int leader = -1;
    int follower = -1;
    STICKY_CHECK(::openpty(&leader, &follower, nullptr, nullptr, nullptr) == 0);
    leader_.Reset(leader);
    follower_.Reset(follower);
    Resize(100, 24);
    STICKY_CHECK(::tcgetattr(follower, &before_) == 0);
    thread_ = std::thread([this] { Read(); });
  }
  ~Terminal() {
    follower_.Reset();  // the thread's end
    thread_.join();
  }

  // What makes it the standard input and output of a process.
  std::function<void()> Attach() const {
    return [fd = follower_.get()] {
      ::dup2(fd, STDIN_FILENO);
      ::dup2(fd, STDOUT_FILENO);
    };
  }
  void Resize(unsigned short columns, unsigned short rows) const {
    const winsize size{.ws_row = rows, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    STICKY_CHECK(::ioctl(leader_.get(), TIOCSWINSZ, &size) == 0);
  }
  void Type(const std::string& keys) const {
    STICKY_CHECK(::write(leader_.get(), keys.data(), keys.size()) ==
                 static_cast<ssize_t>(keys.size()));
  }
  std::string Text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  bool Shows(const std::string& text) {
    return WaitUntil([&] { return Text().find(text) != std::string::npos; });
  }
  // Whether it echoes and waits for whole lines, as it did at first.
  bool IsAsBefore() const {
    termios now{};
    return ::tcgetattr(follower_.get(), &now) == 0 && now.c_lflag == before_.c_lflag;
  }

 private:
  void Read() {
    std::array<char, 512> part{};
    for (ssize_t count = 0; (count = ::read(leader_.get(), part.data(), part.size())) > 0;) {
      const std::lock_guard lock(mutex_);
      text_.append(part.data(), static_cast<std::size_t>(count));
    }
  }

  UniqueFd leader_;
  UniqueFd follower_;
  termios before_{};
  std::mutex mutex_;
  std::string text_;    // guarded by mutex_
  std::thread thread_;  // last: it uses the others
};

class StickyctlTop : public CtlDaemon {
 protected:
  // Without it nothing is drawn. NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread
  static void SetUpTestSuite() { ::setenv("TERM", "xterm", 1); }

  void StartWithAState() {
    Start();
    ASSERT_EQ(Run({"load", MakeTemplate("smol"), "--wait"}).code, 0);
  }
};

TEST_F(StickyctlTop, APageIsPrintedOnceWhereNoTerminalIsOrWhenAskedFor) {
  StartWithAState();
  Terminal terminal;

  const CtlResult piped = Run({"top"});
  const CtlResult once = Run({"top", "--once"}, terminal.Attach());
  const Json document = Ask({"top"});

  EXPECT_EQ(piped.code, 0) << piped.err;
  EXPECT_THAT(piped.out, HasSubstr("\nsmol   ready  1.00 MiB       0      0  "));
  EXPECT_THAT(piped.out, Not(HasSubstr("\x1b")));
  EXPECT_EQ(once.code, 0);
  EXPECT_TRUE(terminal.Shows("smol   ready"));
  EXPECT_THAT(terminal.Text(), Not(HasSubstr("\x1b")));
  EXPECT_EQ(document["daemon"]["state_count"], 1);
  EXPECT_EQ(document["states"][0]["name"], "smol");
}

TEST_F(StickyctlTop, ATerminalIsDrawnAnewUntilQAndThenAsItWas) {
  StartWithAState();
  Terminal terminal;
  CtlRun top(Words({"top", "--interval", "0.1"}), terminal.Attach());
  ASSERT_TRUE(terminal.Shows("smol   ready")) << terminal.Text();
  EXPECT_FALSE(terminal.IsAsBefore()) << "keys come without Enter";

  ASSERT_EQ(Run({"load", MakeTemplate("later"), "--wait"}).code, 0);
  EXPECT_TRUE(terminal.Shows("later  ready")) << terminal.Text();
  EXPECT_TRUE(terminal.Shows(" a second")) << "from the second page on there is a rate";
  terminal.Type("xq");

  EXPECT_EQ(top.Wait().code, 0) << top.err();
  EXPECT_TRUE(terminal.Shows(kGiveBack));
  EXPECT_THAT(terminal.Text(), StartsWith(kTake));
  EXPECT_THAT(terminal.Text(), EndsWith(kGiveBack));
  EXPECT_TRUE(terminal.IsAsBefore());
}

TEST_F(StickyctlTop, SignalsEndItWithTheTerminalAsItWas) {
  StartWithAState();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    Terminal terminal;
    CtlRun top(Words({"top"}), terminal.Attach());
    ASSERT_TRUE(terminal.Shows("smol   ready")) << terminal.Text();

    top.process().Signal(signal);

    EXPECT_EQ(top.Wait().code, 0) << signal;
    EXPECT_TRUE(terminal.Shows(kGiveBack)) << signal;
    EXPECT_TRUE(terminal.IsAsBefore()) << signal;
  }
}

TEST_F(StickyctlTop, AnotherSizeIsDrawnAtOnce) {
  StartWithAState();
  Terminal terminal;
  CtlRun top(Words({"top", "--interval", "3600"}), terminal.Attach());
  ASSERT_TRUE(terminal.Shows("smol   ready")) << terminal.Text();

  terminal.Resize(30, 4);
  top.process().Signal(SIGWINCH);  // it is not the terminal's own session that it runs in

  EXPECT_TRUE(terminal.Shows("... and 4 more")) << terminal.Text();
  top.process().Signal(SIGTERM);
  EXPECT_EQ(top.Wait().code, 0);
}

TEST_F(StickyctlTop, ItStopsAndGoesOnWithTheTerminal) {
  StartWithAState();
  Terminal terminal;
  CtlRun top(Words({"top", "--interval", "3600"}), terminal.Attach());
  ASSERT_TRUE(terminal.Shows("smol   ready")) << terminal.Text();

  top.process().Signal(SIGTSTP);
  EXPECT_TRUE(terminal.Shows(kGiveBack));
  EXPECT_TRUE(WaitUntil([&] { return terminal.IsAsBefore(); }));
  top.process().Signal(SIGCONT);

  EXPECT_TRUE(terminal.Shows(std::string(kGiveBack) + kTake)) << terminal.Text();
  top.process().Signal(SIGTERM);
  EXPECT_EQ(top.Wait().code, 0);
}

TEST_F(StickyctlTop, ADaemonThatGoesAwayIsToldOnAWholeTerminal) {
  StartWithAState();
  Terminal terminal;
  CtlRun top(Words({"top", "--interval", "0.1"}), terminal.Attach());
  ASSERT_TRUE(terminal.Shows("smol   ready")) << terminal.Text();

  daemon_->process().KillAndReap();

  const CtlResult end = top.Wait();
  EXPECT_EQ(end.code, 69);
  EXPECT_THAT(end.err, HasSubstr("stickyctl: talk to stickyd"));
  EXPECT_TRUE(terminal.Shows(kGiveBack));
  EXPECT_TRUE(terminal.IsAsBefore());
}

TEST_F(StickyctlTop, AnIntervalIsATenthOfASecondOrMore) {
  Start();

  for (const char* interval : {"0.05", "0", "-1", "soon", ""}) {
    EXPECT_EQ(Run({"top", "--interval", interval}).code, 64) << interval;
  }
}

}  // namespace
}  // namespace sticky::testing
