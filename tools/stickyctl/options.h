// Reads a command's options: long names only, `--name`, `--name=value` or `--name value`.
//
// Thread: any thread.

#ifndef STICKY_TOOLS_STICKYCTL_OPTIONS_H_
#define STICKY_TOOLS_STICKYCTL_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sticky::stickyctl {

enum class ValueKind {
  kNone,      // --json
  kRequired,  // --state NAME or --state=NAME
  kOptional,  // --wait or --wait=SECONDS: never the next word, which may be an operand
  kRepeated,  // as kRequired, any number of times: --as-file a=S/x --as-file b=S/y
};

struct OptionSpec {
  std::string_view name;  // without its dashes; static
  ValueKind kind;
};

// What the words after a command's name may be.
struct Grammar {
  std::span<const OptionSpec> options;
  std::size_t operand_count = 0;   // exactly so many, unless the last may be missing
  std::string_view operand_names;  // "NAME", for messages
  // Everything from "--", or from the first word that is no option, is a command; it may be missing
  // when operand_names is empty.
  bool command_follows = false;
  bool last_is_optional = false;  // of the operands
};

class Options {
 public:
  // Errors: kInvalidArgument, naming the word and what may stand there.
  static Result<Options> Parse(std::span<const std::string> words, const Grammar& grammar);

  bool Has(std::string_view name) const { return values_.find(name) != values_.end(); }
  // Nothing when it was not given, or given without a value.
  std::optional<std::string> Value(std::string_view name) const;
  // Of a kRepeated one, every value in the order given; none when it was not given.
  std::vector<std::string> Values(std::string_view name) const;
  const std::vector<std::string>& operands() const { return operands_; }
  const std::vector<std::string>& command() const { return command_; }

  // Milliseconds of `--wait[=SECONDS]`: 0 when it was not given, `otherwise_ms` without a value.
  // Errors: kInvalidArgument unless SECONDS is a number from 0 to a day.
  Result<std::uint32_t> WaitMs(std::uint32_t otherwise_ms) const;

  // Milliseconds of `--name SECONDS`; `otherwise_ms` when it has no value.
  // Errors: kInvalidArgument unless SECONDS is a number from 0.001 to a day.
  Result<std::uint32_t> Ms(std::string_view name, std::uint32_t otherwise_ms) const;

  // The whole number of `--name N`; 0 when it was not given.
  // Errors: kInvalidArgument unless N has 1 to 18 digits and nothing else.
  Result<std::uint64_t> Number(std::string_view name) const;

 private:
  std::multimap<std::string, std::optional<std::string>, std::less<>> values_;
  std::vector<std::string> operands_;
  std::vector<std::string> command_;
};

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_OPTIONS_H_
