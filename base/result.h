// Result<T>: either a T or an Error saying what failed, where, and with which OS or driver code.
//
// Every fallible function in StickyInvoc returns Result<T> (or Status = Result<Ok>). No exception
// crosses a folder: a room that uses a throwing library catches inside its own .cc file.
//
// Thread: a Result is an ordinary value; share one between threads only with outside locking.

#ifndef STICKY_BASE_RESULT_H_
#define STICKY_BASE_RESULT_H_

#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace sticky {

// What a caller can do about a failure. Mirrors wire ErrorCode and the C ABI's sti_code, value for
// value (tests/layout checks it).
enum class Code : int {
  kInvalidArgument = 1,   // the caller's mistake; retrying the same call fails again
  kNotFound = 2,          // no such state, lease, file or device
  kUnavailable = 3,       // try again later: loading, draining, daemon restarting
  kOutOfMemory = 4,       // a budget or a device is full; nothing was changed
  kPermissionDenied = 5,  // the caller may not; the message names the rule
  kCorrupt = 6,           // bytes of a file or a peer do not parse or do not match their checksum
  kDeviceLost = 7,        // the device context is unusable until this process restarts
  kInternal = 8,          // a bug of ours that we could report instead of aborting
};

struct Error {
  Code code;
  std::string message;                  // what was being done, to what: "map arena of 'llama-8b'"
  int os_code = 0;                      // errno, -uv_err or cudaError_t; 0 when none
  const char* file = __builtin_FILE();  // std::source_location does not build with clang 14
  int line = __builtin_LINE();
};

template <typename T>
// NOLINTNEXTLINE(bugprone-exception-escape): what T and Error do, their variant does.
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }

  // Requires ok().
  T& value() & {
    STICKY_CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    STICKY_CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  T value() && {  // by value: `for (auto& x : Make().value())` must not dangle
    STICKY_CHECK(ok());
    return std::move(*std::get_if<0>(&state_));
  }
  // Requires !ok().
  const Error& error() const {
    STICKY_CHECK(!ok());
    return *std::get_if<1>(&state_);
  }

 private:
  std::variant<T, Error> state_;
};

struct Ok {};
using Status = Result<Ok>;

}  // namespace sticky

// clang-format off
// Returns the error of `expr` from the enclosing function; goes on when there is none.
#define STICKY_TRY(expr) \
  do { if (auto status_ = (expr); !status_.ok()) return status_.error(); } while (false)

// Declares `decl` from the value of `expr`, or returns its error: STICKY_ASSIGN(auto fd, Open(p));
#define STICKY_ASSIGN(decl, expr) STICKY_ASSIGN_AT_(decl, expr, __LINE__)
#define STICKY_ASSIGN_AT_(decl, expr, line) STICKY_ASSIGN_AS_(decl, expr, line)
#define STICKY_ASSIGN_AS_(decl, expr, line) \
  auto result_##line = (expr); \
  if (!result_##line.ok()) return result_##line.error(); \
  decl = std::move(result_##line).value()
// clang-format on

#endif  // STICKY_BASE_RESULT_H_
