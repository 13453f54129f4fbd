// Outside: tells the core what happens and does what its actions say, on a model, as
// daemon/io/coordinator*.cc and daemon/io/kept_states.cc do it with real processes and memory.
// After each event it has the invariants checked.
//
// Thread: one thread at a time. The model and the saboteur are the caller's, and outlive it.

#ifndef STICKY_TESTS_SIM_OUTSIDE_H_
#define STICKY_TESTS_SIM_OUTSIDE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>

#include "tests/sim/model.h"
#include "tests/sim/saboteur.h"

namespace sticky::daemon::sim {

class Outside {
 public:
  // Starts the first daemon. verbose: each event and action is printed.
  Outside(Model& model, Saboteur& saboteur, bool verbose);

  // --- events ---------------------------------------------------------------------------------
  // Returns the connection's number.
  std::uint64_t Connect(std::uint32_t uid);
  // leaves_mapping: what the connection's process maps is still mapped by a child of its.
  void Disconnect(std::uint64_t connection, bool leaves_mapping);
  void Ask(std::uint64_t connection, wire::Body body);
  void Tick(std::int64_t after_ns);
  void LetGo(std::size_t mapping);    // one mapping ends
  void Protect(std::size_t mapping);  // a writable one is readable from here on

  void LoaderPlanned(StateId id, std::uint64_t bytes);
  void LoaderProgressed(StateId id, std::uint64_t done, std::uint64_t present);
  void LoaderDone(StateId id);  // with the content, or with the pages of a builder's arena
  void LoaderFailed(StateId id);
  void LoaderEnded(StateId id);  // in any way; it is reaped
  void RequesterEnded(StateId id);

  void FlushKeeper();  // the first message that waits for the keeper gets through
  void LoseKeeper();
  void TellKeeperLoss();
  void Crash();                   // the daemon is killed and started again
  void CrashWithin(int actions);  // likewise, before that many more actions are performed
  void ShutDown();                // SIGTERM
  void SuccessorStarts();         // after a shutdown

 private:
  [[gnu::format(printf, 2, 3)]] void Event(const char* format, ...);
  void Do(NodeState::Actions actions);
  void Queue(NodeState::Actions actions);

  void Perform(const Send& action);
  void Perform(const DropBundle& action);
  void Perform(const StartRequester& action);
  void Perform(const StartLoader& action);
  void Perform(const AllocateArena& action);
  void Perform(const Publish& action);
  void Perform(const KeepRecord& action);
  void Perform(const KeepNode& action);
  void Perform(const MakeBuildArena& action);
  void Perform(const CommitBuild& action);
  void Perform(const KillLoader& action);
  void Perform(const FreeArena& action);
  void Perform(const AskBorrowers& action);
  void Perform(const Stop& action);
  void Perform(const Log& /*action*/) {}

  bool MayHandOut(const Send& action);
  void HandOut(const Send& action);
  void Kill(StateId id);
  Held& Allocate(StateId id, std::uint64_t bytes);
  Digest Fill(StateId id);

  // As KeptStates.
  void Keep(const Publish& action);
  void Arrive(Keeping& keeping);
  void EndKeeping(const Keeping& keeping);
  void Forget(std::uint64_t epoch);
  void EndForgetting(const Forgetting& forgetting);

  void Restart();
  void ForgetThisLife();
  void TakeOver();

  Model& model_;
  Saboteur& saboteur_;
  const bool verbose_;
  std::deque<Action> todo_;
  std::optional<int> crash_after_;   // so many actions
  std::set<std::uint64_t> kept_;     // epochs that the keeper has, or is being told of
  std::set<std::uint64_t> leaving_;  // epochs that it has been told to let go of
};

}  // namespace sticky::daemon::sim

#endif  // STICKY_TESTS_SIM_OUTSIDE_H_
