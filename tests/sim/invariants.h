// What must hold whatever happens. Each check ends the history when it finds it broken.
//
// Thread: one thread at a time.

#ifndef STICKY_TESTS_SIM_INVARIANTS_H_
#define STICKY_TESTS_SIM_INVARIANTS_H_

#include <cstdint>
#include <map>

#include "tests/sim/model.h"

namespace sticky::daemon::sim {

// After every event.
void CheckNow(Model& model);
// After a tick: no wait is over its deadline.
void CheckInTime(Model& model);
// When an answer goes out: the keeper knows what it says.
void CheckToldIsKept(Model& model, const Send& send, const Request& request);
// When a daemon has started: `before` is what the keeper had for it.
void CheckTakenOver(Model& model, const std::map<std::uint64_t, Kept>& before);
// When everybody has gone and everything was evicted.
void CheckNothingLeft(Model& model);

}  // namespace sticky::daemon::sim

#endif  // STICKY_TESTS_SIM_INVARIANTS_H_
