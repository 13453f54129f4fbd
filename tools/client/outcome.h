// Outcome<T>: a T, or an Error together with what was being done, from which the exit code follows.
//
// Thread: an ordinary value.

#ifndef STICKY_TOOLS_CLIENT_OUTCOME_H_
#define STICKY_TOOLS_CLIENT_OUTCOME_H_

#include <utility>
#include <variant>

#include "base/check.h"
#include "base/exit_codes.h"
#include "base/result.h"

namespace sticky::client {

struct Failed {
  Stage stage = Stage::kUsage;
  Error error;

  int exit_code() const { return ExitCode(stage, error.code); }
};

template <typename T>
class [[nodiscard]] Outcome {
 public:
  Outcome(T value) : state_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Outcome(Failed failed) : state_(std::move(failed)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  // Requires ok().
  T& value() & {
    STICKY_CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    STICKY_CHECK(ok());
    return std::move(*std::get_if<0>(&state_));
  }
  // Requires !ok().
  const Failed& failed() const {
    STICKY_CHECK(!ok());
    return *std::get_if<1>(&state_);
  }

 private:
  std::variant<T, Failed> state_;
};

// Says during which stage `result` came about.
template <typename T>
Outcome<T> During(Stage stage, Result<T> result) {
  if (!result.ok()) return Failed{stage, result.error()};
  return std::move(result).value();
}

}  // namespace sticky::client

// clang-format off
// Declares `decl` from the value of the Outcome `expr`, or returns what failed.
#define STICKY_STEP(decl, expr) STICKY_STEP_AT_(decl, expr, __LINE__)
#define STICKY_STEP_AT_(decl, expr, line) STICKY_STEP_AS_(decl, expr, line)
#define STICKY_STEP_AS_(decl, expr, line) \
  auto outcome_##line = (expr); \
  if (!outcome_##line.ok()) return outcome_##line.failed(); \
  decl = std::move(outcome_##line).value()
// clang-format on

#endif  // STICKY_TOOLS_CLIENT_OUTCOME_H_
