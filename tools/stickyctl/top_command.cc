// The command `top`: a live view of the node on a terminal, one page of it anywhere else.

#include <array>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <optional>
#include <utility>

#include <poll.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/text.h"
#include "tools/client/daemon_client.h"
#include "tools/stickyctl/commands.h"
#include "tools/stickyctl/render_top.h"
#include "tools/stickyctl/screen.h"
#include "tools/stickyctl/signals.h"

namespace sticky::stickyctl {
namespace {

using client::DaemonClient;
using client::Failed;
using client::Outcome;

constexpr std::uint32_t kIntervalMs = 2000;
constexpr std::uint32_t kIntervalMsMin = 100;
constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};

Outcome<TopPage> AskForPage(DaemonClient& daemon) {
  TopPage page;
  STICKY_STEP(page.status, daemon.AskFor<wire::StatusReply>(wire::StatusRequest{}));
  STICKY_STEP(wire::ListReply list, daemon.AskFor<wire::ListReply>(wire::ListRequest{}));
  page.states = std::move(list.states);
  return page;
}

// Asks, draws and waits, so that keys and signals are heard also while the daemon does not answer.
class LiveView {
 public:
  LiveView(DaemonClient& daemon, const UniqueFd& signals, std::uint32_t interval_ms)
      : daemon_(daemon),
        signals_(signals),
        interval_ms_(interval_ms),
        users_(UsersOfThisNode()),
        next_(Deadline::AfterMs(0)) {}

  // Until somebody ends it. Errors: the daemon went away or does not answer.
  Outcome<Ok> Run() {
    for (;;) {
      if (!asked_ && next_.passed()) {
        STICKY_STEP(asked_, Ask(wire::StatusRequest{}));
      }
      pollfd ends[] = {{signals_.get(), POLLIN, 0},
                       {screen_.has_keys() && !keys_ended_ ? STDIN_FILENO : -1, POLLIN, 0},
                       {asked_ ? daemon_.fd() : -1, POLLIN, 0}};
      const int count = ::poll(ends, std::size(ends), next_.left_ms());
      if (ends[0].revents != 0 && !HearSignal()) return Ok{};
      if (ends[1].revents != 0 && !HearKeys()) return Ok{};
      if (asked_ && count == 0 && next_.passed()) return NoAnswer();
      if (ends[2].revents == 0) continue;
      STICKY_STEP(const bool goes_on, TakeAnswer());
      if (!goes_on) return Ok{};
    }
  }

 private:
  // The request's id. From here on, next_ is when an answer would be late.
  Outcome<std::optional<std::uint32_t>> Ask(wire::Body request) {
    STICKY_STEP(const std::uint32_t id, daemon_.Send(std::move(request)));
    next_ = Deadline::AfterMs(client::kAnswerMs);
    return std::optional(id);
  }

  Failed NoAnswer() const {
    const std::string seconds = Format("%.0f s", static_cast<double>(client::kAnswerMs) / 1000);
    return {Stage::kTalk, Error{Code::kUnavailable, "top: stickyd at '" + Escape(daemon_.path()) +
                                                        "' gave no answer within " + seconds}};
  }

  // The status comes first, then the states. False: nobody can see them.
  Outcome<bool> TakeAnswer() {
    const std::uint32_t id = *std::exchange(asked_, std::nullopt);
    if (!has_status_) {
      STICKY_STEP(page_.status, daemon_.Receive<wire::StatusReply>(id));
      has_status_ = true;
      STICKY_STEP(asked_, Ask(wire::ListRequest{}));
      return true;
    }
    STICKY_STEP(wire::ListReply list, daemon_.Receive<wire::ListReply>(id));
    page_.states = std::move(list.states);
    has_status_ = false;
    next_ = Deadline::AfterMs(interval_ms_);
    earlier_ = std::exchange(drawn_, page_);
    return Draw();
  }

  bool Draw() const {
    if (!drawn_) return true;
    const wire::StatusReply* const earlier = earlier_ ? &earlier_->status : nullptr;
    return Screen::Draw(TopText(*drawn_, earlier, Screen::Size(), users_));
  }

  // False: it was one to end by.
  bool HearSignal() {
    const std::optional<int> number = TakeSignal(signals_);
    if (number == SIGTSTP) screen_.Suspend();
    if (!number || number == SIGTSTP || number == SIGWINCH) return Draw();
    return false;
  }

  // False: one of them was 'q'.
  bool HearKeys() {
    std::array<char, 64> keys{};
    const ssize_t count = ::read(STDIN_FILENO, keys.data(), keys.size());
    keys_ended_ = count <= 0;
    for (ssize_t i = 0; i < count; ++i) {
      if (keys[static_cast<std::size_t>(i)] == 'q') return false;
    }
    return true;
  }

  DaemonClient& daemon_;
  const UniqueFd& signals_;
  const std::uint32_t interval_ms_;
  const UserNames users_;
  Screen screen_;
  Deadline next_;                       // of the next request, or of the answer
  std::optional<std::uint32_t> asked_;  // the request that waits for its answer
  bool has_status_ = false;             // page_ waits for its states
  TopPage page_;                        // that is coming
  std::optional<TopPage> drawn_;
  std::optional<TopPage> earlier_;  // drawn before that
  bool keys_ended_ = false;
};

Outcome<std::uint32_t> IntervalMs(const Options& options) {
  STICKY_STEP(const std::uint32_t interval_ms,
              client::During(Stage::kUsage, options.Ms("interval", kIntervalMs)));
  if (interval_ms >= kIntervalMsMin) return interval_ms;
  return Failed{Stage::kUsage,
                Error{Code::kInvalidArgument, "option '--interval': want 0.1 seconds or more"}};
}

Outcome<Ok> ShowTop(const Request& request, Console& console) {
  STICKY_STEP(const std::uint32_t interval_ms, IntervalMs(request.options));
  STICKY_STEP(DaemonClient daemon, DaemonClient::Connect(request.socket));
  if (Screen::IsThere() && !console.json() && !request.options.Has("once")) {
    STICKY_STEP(const UniqueFd signals,
                client::During(Stage::kTalk, SignalsAsDescriptor(kSignals)));
    return LiveView(daemon, signals, interval_ms).Run();
  }
  STICKY_STEP(const TopPage page, AskForPage(daemon));
  Json document = Document();
  document["daemon"] = StatusJson(page.status);
  document["states"] = StatesJson(page.states);
  console.Print(document, TopText(page, /*earlier=*/nullptr, {}, UsersOfThisNode()));
  return Ok{};
}

}  // namespace

int Top(const Request& request, Console& console) {
  const Outcome<Ok> shown = ShowTop(request, console);
  return shown.ok() ? kExitOk : console.Fail(shown.failed());
}

}  // namespace sticky::stickyctl
