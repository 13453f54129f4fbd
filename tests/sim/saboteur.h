// Saboteur: stands between the core and its outside and plants one kind of bug, to show that the
// simulator catches it. Without a fault it changes nothing.
//
// Thread: one thread at a time.

#ifndef STICKY_TESTS_SIM_SABOTEUR_H_
#define STICKY_TESTS_SIM_SABOTEUR_H_

#include <cstdint>
#include <vector>

#include "daemon/core/actions.h"

namespace sticky::daemon::sim {

enum class Fault : std::int8_t {
  kNone = 0,
  // Of what the core asks for.
  kDropSend,         // an answer is lost
  kSendTwice,        // an answer is sent twice
  kSendToNobody,     // an answer goes to a connection that is not there
  kDropFree,         // memory is not freed
  kFreeEarly,        // a state is freed when it is lent
  kAllocateMore,     // more bytes than were counted
  kAllocateTooMuch,  // more bytes than the budget
  kShowEarly,        // a state is shown before it is sealed
  kLendWritable,     // memory of a published state is handed out writable
  kForgetRecord,     // the keeper is not told of a state's change
  kForgetNode,       // nor of the node's
  kTellFirst,        // answers go out before the keeper is told
  kLeaveLoader,      // a loader is not told to end
  kLeakBundle,       // the files of a load stay open
  // Of what the core is told.
  kHideDeath,      // a connection's end
  kHideTicks,      // time
  kHideReaped,     // a loader's end
  kDenyBorrowers,  // somebody maps it still
  kClaimKept,      // the keeper has it, when it has not
  kReviveEnding,   // the state is taken over as if it had not been evicted
  kWrongDigest,    // the state is taken over with another digest
  kLoseKept,       // the state is not taken over
};

class Saboteur {
 public:
  explicit Saboteur(Fault fault = Fault::kNone) : fault_(fault) {}

  // Changes what the core asks for in one event.
  void OnActions(std::vector<Action>& actions);
  // Whether the fault strikes now; only at every few chances as a rule, so that the history gets
  // going.
  bool Strikes(Fault fault, std::uint64_t every = 4);

 private:
  void Drop(std::vector<Action>& actions, std::size_t at);
  // Whether it has changed the list: once in an event is enough.
  bool ChangeSend(std::vector<Action>& actions, std::size_t at);
  bool ChangeMemory(std::vector<Action>& actions, std::size_t at);
  bool ChangeRest(std::vector<Action>& actions, std::size_t at);
  void TellFirst(std::vector<Action>& actions);

  const Fault fault_;
  std::uint64_t chances_ = 0;
};

}  // namespace sticky::daemon::sim

#endif  // STICKY_TESTS_SIM_SABOTEUR_H_
