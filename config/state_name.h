// The rule for names of states, as the wire protocol has it: they stand in commands, logs and
// environment variables, so nothing in them means anything to a shell or a terminal.
//
// Thread: any thread.

#ifndef STICKY_CONFIG_STATE_NAME_H_
#define STICKY_CONFIG_STATE_NAME_H_

#include <algorithm>
#include <string_view>

namespace sticky::config {

inline constexpr std::size_t kStateNameBytesMax = 128;

inline bool IsLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

inline bool IsNameCharacter(char c) {
  return IsLetterOrDigit(c) || c == '.' || c == '_' || c == '-' || c == '+';
}

inline bool IsStateName(std::string_view name) {
  return !name.empty() && name.size() <= kStateNameBytesMax && IsLetterOrDigit(name[0]) &&
         std::all_of(name.begin(), name.end(), IsNameCharacter);
}

}  // namespace sticky::config

#endif  // STICKY_CONFIG_STATE_NAME_H_
