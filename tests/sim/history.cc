#include "tests/sim/history.h"

#include "base/text.h"
#include "tests/sim/invariants.h"
#include "tests/sim/outside.h"
#include "tests/sim/players.h"

namespace sticky::daemon::sim {

Outcome RunHistory(const HistoryOptions& options) {
  Model model(options.seed);
  Saboteur saboteur(options.fault);
  Outside outside(model, saboteur, options.verbose);
  Players players(model, outside);
  while (!model.violation && model.counts.events < options.event_count) players.Step();
  if (!model.violation) players.Leave();
  if (!model.violation) CheckNothingLeft(model);
  return {model.violation, model.counts};
}

std::string TextOf(const HistoryOptions& options, const Violation& violation) {
  return Format("seed %u, event %llu: \"%s\" does not hold: ", options.seed,
                static_cast<unsigned long long>(violation.event), Name(violation.invariant)) +
         violation.text +
         Format(
             "\nsee it again: STICKY_SIM_SEED=%u STICKY_SIM_EVENTS=%llu "
             "build/dev/tests/simulator_test",
             options.seed, static_cast<unsigned long long>(options.event_count));
}

}  // namespace sticky::daemon::sim
