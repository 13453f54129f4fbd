// JSON text that nobody vouches for, as a tree: bounded in depth, duplicate keys refused.
//
// Only .cc files of weights/ include this: the JSON library stays inside the room.
//
// Thread: any thread.

#ifndef STICKY_WEIGHTS_JSON_TEXT_H_
#define STICKY_WEIGHTS_JSON_TEXT_H_

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace sticky::weights {

inline constexpr std::size_t kJsonDepthMax = 64;

// Why a text cannot be JSON although the library would take it: it passes over a byte order mark,
// and ends at a NUL byte without a look at what follows. Empty when there is neither.
std::string NotJsonReason(std::string_view text);

// `what`: the file's name, for messages.
// Errors: kCorrupt for text that is not JSON (with the byte where it stops being so), for a key
//   that an object has twice, and past kJsonDepthMax.
Result<nlohmann::json> ParseJson(std::string_view text, const std::string& what);

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_JSON_TEXT_H_
