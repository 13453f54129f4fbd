// Actions and requests as one line each, for people who follow a history.
//
// Thread: any thread (pure functions).

#ifndef STICKY_TESTS_SIM_TRACE_H_
#define STICKY_TESTS_SIM_TRACE_H_

#include <string>

#include "daemon/core/actions.h"

namespace sticky::daemon::sim {

// "attach 's1' wait 300 ms", "Failure: attach 's1': ...".
std::string TextOf(const wire::Body& body);
// "send 3/17: Failure: ...", "free #4".
std::string TextOf(const Action& action);

}  // namespace sticky::daemon::sim

#endif  // STICKY_TESTS_SIM_TRACE_H_
