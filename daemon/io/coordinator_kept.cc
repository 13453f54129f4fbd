// The coordinator's part in what outlives the daemon: states of an earlier one, those that are
// handed to the keeper, and the end that leaves them to the next.

#include <utility>

#include "base/deadline.h"
#include "base/text.h"
#include "daemon/io/coordinator.h"
#include "daemon/io/notify.h"

namespace sticky::daemon {

void Coordinator::TakeOver(std::map<std::string, std::vector<UniqueFd>> kept) {
  const std::int64_t now_ns = MonotonicNs();
  Recovered recovered = kept_.Recover(std::move(kept));
  for (KeptState& state : recovered.states) {
    Held& held = held_[core_.Adopt(state.record, now_ns)];
    held.epoch = state.record.epoch;
    held.manifest = std::move(state.manifest);
    held.arenas = std::move(state.arenas);
  }
  for (const std::string& problem : recovered.problems) {
    logger_.Line(Log::Level::kError, Printable(problem));
  }
  Do(core_.Adopted(
      {recovered.node, recovered.foreign_count, recovered.foreign_bytes, recovered.epoch_max},
      now_ns));
}

// A socket of our own outlives us too, so that whoever connects in between waits for the next
// daemon instead of finding none.
void Coordinator::KeepSocket() {
  if (home_.is_inherited()) return;  // the service manager has it anyhow
  if (!socket_name_.empty()) keeper_.Remove(socket_name_, [] {});
  socket_name_ = home_.kept_name();
  if (home_.is_kept()) return keeper_.Has(socket_name_, 1);
  const int fd = home_.fd();
  keeper_.Store(socket_name_, std::span(&fd, 1), /*patient=*/true, [](bool) {});
}

void Coordinator::WatchKeeper() {
  keeper_.Check();
  if (!keeper_.is_lost()) return;
  kept_.Lose();
  Do(core_.KeeperLost(MonotonicNs()));
}

void Coordinator::Perform(Publish& action) {
  const Status sealed = Seal(action);
  if (!sealed.ok()) return Queue(core_.LoaderFailed(action.state, sealed.error(), MonotonicNs()));
  Kill(action.state);  // it has nothing left to do
  const StateId id = action.state;
  Held& held = held_[id];
  held.epoch = action.record.epoch;
  kept_.Keep(std::move(action.record), held.manifest.get(), held.arenas, [this, id](bool is_kept) {
    if (!is_kept && keeper_.is_there()) {
      logger_.Line(Log::Level::kWarning,
                   Format("the keeper takes nothing (it has %u of %u descriptors): the next state "
                          "ends with this daemon",
                          keeper_.fd_count(), keeper_.fd_count_max()));
    }
    Do(core_.Published(id, is_kept, MonotonicNs()));
    Notify(
        Format("STATUS=%u states, %s", core_.state_count(), ByteCount(core_.used_bytes()).c_str()));
  });
}

void Coordinator::Perform(KeepRecord& action) { kept_.Update(std::move(action.record)); }

void Coordinator::Perform(KeepNode& action) { kept_.Update(action.record); }

void Coordinator::Perform(FreeArena& action) {
  const auto found = held_.find(action.state);
  if (found == held_.end()) return;
  kept_.Forget(found->second.epoch, [] {});  // its load has failed after all
  freer_.Free(std::move(found->second.arenas), [] {});
  held_.erase(found);
}

// Of a state that nobody borrows: the memory goes first, and then the core is told.
void Coordinator::FreeAndTell(StateId id) {
  std::vector<device::HostArena> arenas;
  if (auto held = held_.extract(id)) arenas = std::move(held.mapped().arenas);
  freer_.Free(std::move(arenas),
              [this, id] { Do(core_.Borrowers(id, /*any=*/false, MonotonicNs())); });
}

void Coordinator::Perform(AskBorrowers& action) {
  const StateId id = action.state;
  const auto found = held_.find(id);
  if (found == held_.end()) return Queue(core_.Borrowers(id, /*any=*/false, MonotonicNs()));
  bool is_borrowed = false;
  for (const device::HostArena& arena : found->second.arenas) {
    const Result<bool> any = arena.HasBorrowers();
    if (!any.ok()) {  // memory that we cannot ask about is not ours to call free
      return logger_.Line(Log::Level::kError, Printable(any.error().message));
    }
    is_borrowed = is_borrowed || any.value();
  }
  // What the keeper holds is not free either; once nobody borrows it, it may let go.
  if (is_borrowed) return Queue(core_.Borrowers(id, /*any=*/true, MonotonicNs()));
  const std::uint64_t epoch = found->second.epoch;
  if (kept_.Has(epoch)) return kept_.Forget(epoch, [this, id] { FreeAndTell(id); });
  if (kept_.IsBeingForgotten(epoch)) return;  // told when it is gone
  FreeAndTell(id);
}

void Coordinator::Perform(Stop& action) {
  keeps_states_ = action.keep_states;
  if (keeps_states_) {
    home_.LeaveToSuccessor();
  } else {
    kept_.ForgetAll();
  }
  ShutDown();
}

}  // namespace sticky::daemon
