// What every fuzzer has: its entry, bytes as the product gets them, and checks that end it.
//
// A fuzzer feeds foreign bytes to a parser and checks what the parser promises of them: errors of
// the promised codes, and of what is taken, that it is what it says. Crashes and undefined
// behaviour are the sanitizers' part.
//
// Thread: one thread.
// Source: https://llvm.org/docs/LibFuzzer.html.

#ifndef STICKY_TESTS_FUZZ_FUZZER_H_
#define STICKY_TESTS_FUZZ_FUZZER_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

// `bytes`: `size` of them, of any alignment. Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

// Ends the process, so that the input is a finding, unless `what` holds.
#define FUZZ_CHECK(what) \
  ((what) ? void() : sticky::fuzz::Fail(__FILE__, __LINE__, #what, std::string_view{}))

namespace sticky::fuzz {

[[noreturn]] inline void Fail(const char* file, int line, const char* what,
                              std::string_view detail) {
  std::fprintf(stderr, "%s:%d: does not hold: %s %.*s\n", file, line, what,
               static_cast<int>(detail.size()), detail.data());
  std::abort();
}

// A copy aligned to 8, in a block of its own, so that a read past its end is seen.
inline std::vector<std::uint8_t> Copy(const std::uint8_t* bytes, std::size_t size) {
  return {bytes, bytes + size};
}

inline std::string_view Text(const std::uint8_t* bytes, std::size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

// A refusal says why, and its code is one of those that the parser names.
inline void CheckRefusal(const Error& error, std::initializer_list<Code> promised) {
  FUZZ_CHECK(!error.message.empty());
  for (const Code code : promised) {
    if (error.code == code) return;
  }
  Fail(error.file, error.line, "a code that was promised", error.message);
}

}  // namespace sticky::fuzz

#endif  // STICKY_TESTS_FUZZ_FUZZER_H_
