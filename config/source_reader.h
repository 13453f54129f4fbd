// Reads where a template says that a state's bytes come from. Internal to config/.
//
// Thread: one thread at a time (it reads the environment).
// Source: docs/templates.md.

#ifndef STICKY_CONFIG_SOURCE_READER_H_
#define STICKY_CONFIG_SOURCE_READER_H_

#include <string>

#include "base/result.h"
#include "base/source.h"
#include "config/yaml_reader.h"

namespace sticky::config {

// `top`: the whole template. `directory`: what relative paths are relative to.
// Errors: kInvalidArgument at the place of the mistake.
Result<Source> ReadSource(const YamlMapping& top, const std::string& directory);

// One line a fact, whatever the spelling was: two sources that mean the same have one text.
std::string CanonicalSource(const Source& source);

}  // namespace sticky::config

#endif  // STICKY_CONFIG_SOURCE_READER_H_
