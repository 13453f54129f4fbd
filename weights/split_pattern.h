// The patterns by which tokenizer.json cuts a text into words: from Oniguruma's syntax, in which
// its authors wrote and tested them, to PCRE2's, with which engine/tokenizer matches them.
//
// Thread: any thread.
// Source: Oniguruma's doc/RE and PCRE2's pcre2pattern(3); docs/tokenizer.md lists what is read.

#ifndef STICKY_WEIGHTS_SPLIT_PATTERN_H_
#define STICKY_WEIGHTS_SPLIT_PATTERN_H_

#include <string>
#include <string_view>

#include "base/result.h"

namespace sticky::weights {

// The PCRE2 pattern (for PCRE2_UTF | PCRE2_UCP) that matches exactly what `oniguruma`, valid UTF-8,
// matches.
// Errors: kInvalidArgument for every construct that is not known to mean the same in both, naming
//   it and where it stands.
Result<std::string> SplitPattern(std::string_view oniguruma);

// The pattern that matches `text` itself.
std::string LiteralPattern(std::string_view text);

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_SPLIT_PATTERN_H_
