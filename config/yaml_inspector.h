// What is refused of a YAML text before any tree is built of it, and how a complaint says its
// place. Internal to config/.
//
// Thread: one thread at a time.

#ifndef STICKY_CONFIG_YAML_INSPECTOR_H_
#define STICKY_CONFIG_YAML_INSPECTOR_H_

#include <optional>
#include <string>
#include <string_view>

#include <yaml-cpp/yaml.h>

#include "base/result.h"

namespace sticky::config {

// The tag that yaml-cpp gives to a scalar in quotes.
inline constexpr const char* kQuotedTag = "!";

// "FILE:LINE:COLUMN: what".
Error PlacedError(Code code, const std::string& file, const YAML::Mark& mark,
                  const std::string& what);

// What yaml-cpp says of a text that it cannot parse, in our words where those help.
Error SyntaxError(std::string_view text, const std::string& file, const YAML::Exception& error);

// Reads all of `text`. What it complains of: a key that stands twice, a second document, a tag, an
// alias, a NUL in a value, and more depth or values than the limits of config/yaml_reader.h.
// Throws: YAML::Exception for what is not YAML.
std::optional<Error> Inspect(std::string_view text, const std::string& file);

}  // namespace sticky::config

#endif  // STICKY_CONFIG_YAML_INSPECTOR_H_
