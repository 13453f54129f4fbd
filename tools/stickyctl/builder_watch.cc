#include "tools/stickyctl/builder_watch.h"

#include <cerrno>
#include <csignal>
#include <iterator>
#include <utility>

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/deadline.h"

namespace sticky::stickyctl {
namespace {

constexpr int kAskEveryMs = 200;

// A terminal sends Ctrl-C to the command by itself; a second one may mean "at once" to it.
void PassOn(const UniqueFd& signals, const Child& child) {
  signalfd_siginfo info{};
  if (::read(signals.get(), &info, sizeof info) != sizeof info) return;
  if (info.ssi_code != SI_KERNEL) child.Signal(static_cast<int>(info.ssi_signo));
}

}  // namespace

void BuilderWatch::Ask() {
  if (!daemon_ || asked_) return;
  client::Outcome<std::uint32_t> sent = daemon_->Send(wire::ShowRequest{state_});
  if (!sent.ok()) return daemon_.reset();
  asked_ = sent.value();
}

void BuilderWatch::Show() {
  client::Outcome<wire::ShowReply> reply = daemon_->Receive<wire::ShowReply>(*asked_);
  asked_.reset();
  if (!reply.ok()) {
    if (reply.failed().stage != Stage::kAnswer) daemon_.reset();
    return;
  }
  const wire::StateInfo& state = reply.value().state;
  const bool is_done = state.phase == wire::StatePhase::kReady;
  if (state.epoch == epoch_ && !is_done) progress_.Show(state, MonotonicNs());
}

void BuilderWatch::Stay(const Child& child, const UniqueFd& signals) {
  for (;;) {
    // poll passes over a negative descriptor.
    pollfd ends[] = {{child.ended_fd(), POLLIN, 0},
                     {signals.get(), POLLIN, 0},
                     {asked_ ? daemon_->fd() : -1, POLLIN, 0}};
    const int count = ::poll(ends, std::size(ends), daemon_ && !asked_ ? kAskEveryMs : -1);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 || ends[0].revents != 0) break;
    if (ends[1].revents != 0) PassOn(signals, child);
    if (ends[2].revents != 0) Show();
    if (count == 0) Ask();
  }
  progress_.End();
}

}  // namespace sticky::stickyctl
