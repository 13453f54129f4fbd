// A history: a daemon, its outside and its players from the first event to the last, all of it
// drawn from one seed.
//
// Thread: any thread (histories share nothing).

#ifndef STICKY_TESTS_SIM_HISTORY_H_
#define STICKY_TESTS_SIM_HISTORY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "tests/sim/model.h"
#include "tests/sim/saboteur.h"

namespace sticky::daemon::sim {

struct HistoryOptions {
  unsigned seed = 0;
  std::uint64_t event_count = 4000;  // about so many, then everybody leaves
  Fault fault = Fault::kNone;
  bool verbose = false;  // each event and action is printed
};

struct Outcome {
  std::optional<Violation> violation;
  Counts counts;
};

Outcome RunHistory(const HistoryOptions& options);

// What a test says of a history that broke an invariant: which, when, and how to see it again.
std::string TextOf(const HistoryOptions& options, const Violation& violation);

}  // namespace sticky::daemon::sim

#endif  // STICKY_TESTS_SIM_HISTORY_H_
