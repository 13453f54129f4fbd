// Small text helpers: formatting, byte counts for people, and making untrusted text safe to print.
//
// Thread: any thread.

#ifndef STICKY_BASE_TEXT_H_
#define STICKY_BASE_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sticky {

// printf into a string, for C++20 libraries without std::format.
[[gnu::format(printf, 1, 2)]] std::string Format(const char* format, ...);

// `text` with control characters, backslash, quotes and bytes that are not valid UTF-8 written as
// \n, \xNN and so on: safe on a terminal and in a one-line log. Cut with "..." past 512 bytes.
std::string Escape(std::string_view text);

// A whole message, made safe to print: as Escape, but quotes and backslashes stay as they are, and
// it is cut past 8 KiB.
std::string Printable(std::string_view text);

// Whether all of `text` is valid UTF-8: no overlong forms, no surrogates, nothing past U+10FFFF.
bool IsUtf8(std::string_view text);

// Bytes of the UTF-8 character at the front of `text` (not empty): 1 to 4; 0 when the text ends
// within it; -1 when no character begins so.
// Source: The Unicode Standard, table 3-7: no overlong forms, no surrogates, nothing past U+10FFFF.
int Utf8CharacterBytes(std::string_view text);

// "1.50 GiB", "12 B": for people; scripts get whole bytes.
std::string ByteCount(std::uint64_t bytes);

// "4GiB", "512 MiB", "1.5G", "1048576": binary units, case does not matter.
// Errors: kInvalidArgument for anything else, and past 2^63.
Result<std::uint64_t> ParseByteCount(std::string_view text);

// Adds errno's text to what was being done: {code, "open '/x': No such file or directory", errno}.
// The code follows errno: ENOENT is kNotFound, EACCES and EPERM kPermissionDenied, ENOMEM, ENOSPC,
// EMFILE and ENFILE kOutOfMemory, EAGAIN, ECONNREFUSED and ETIMEDOUT kUnavailable, EIO kCorrupt,
// all others kInternal.
Error ErrnoError(std::string what, int errno_value, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE());

// The word of `known` nearest to `word` by edit distance, or empty when none is near: "did you
// mean". `known`: `known_count` static strings.
std::string_view NearestWord(std::string_view word, const std::string_view* known,
                             std::size_t known_count);

}  // namespace sticky

#endif  // STICKY_BASE_TEXT_H_
