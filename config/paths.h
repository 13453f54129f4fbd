// What a path that somebody wrote in YAML means. Internal to config/.
//
// Thread: one thread at a time (it reads the environment).

#ifndef STICKY_CONFIG_PATHS_H_
#define STICKY_CONFIG_PATHS_H_

#include <string>

#include "base/result.h"

namespace sticky::config {

// The absolute path of `text`: a leading ~/ and every ${NAME} are expanded, what is relative then
// is so to `directory`, and "./" and doubled slashes are left out. Errors: kInvalidArgument quoting
// `text`: another user's home, a variable that is not set.
Result<std::string> AbsolutePath(const std::string& text, const std::string& directory);

}  // namespace sticky::config

#endif  // STICKY_CONFIG_PATHS_H_
