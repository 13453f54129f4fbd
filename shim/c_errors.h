// How every function of the C ABI tells that it failed or not.
//
// Thread: any thread.

#ifndef STICKY_SHIM_C_ERRORS_H_
#define STICKY_SHIM_C_ERRORS_H_

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "shim/include/stickyinvoc/stickyinvoc.h"

namespace sticky::shim {

// No version of a struct with a size field will be larger.
inline constexpr std::uint32_t kStructBytesMax = 4096;

// The message comes from a daemon or a file in parts: a terminal must not obey it, and it is cut
// between two characters.
inline void CopyMessage(std::string_view text, char (&out)[STI_ERROR_MESSAGE_BYTES]) {
  std::size_t size = std::min(text.size(), sizeof out - 1);
  const auto continues = [&] { return (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80; };
  while (size > 0 && size < text.size() && continues()) --size;
  for (std::size_t i = 0; i < size; ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    out[i] = c < 0x20 || c == 0x7F ? '?' : text[i];
  }
  out[size] = '\0';
}

inline int Fail(const Error& error, sti_error* out) {
  const int code = static_cast<int>(error.code);
  if (out != nullptr) {
    out->code = code;
    out->os_code = error.os_code;
    CopyMessage(error.message, out->message);
  }
  return -code;
}

inline int Succeed(sti_error* out) {
  if (out != nullptr) {
    out->code = STI_OK;
    out->os_code = 0;
    out->message[0] = '\0';
  }
  return STI_OK;
}

inline Error Invalid(const char* what) { return Error{Code::kInvalidArgument, what}; }

}  // namespace sticky::shim

#endif  // STICKY_SHIM_C_ERRORS_H_
