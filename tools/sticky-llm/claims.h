// Claims and verdicts as lines of JSON, in the fields of FEVER's files. Pure: text in, values out.
//
// Thread: any thread.
// Source: Thorne et al. 2018, "FEVER: a Large-scale Dataset for Fact Extraction and VERification".

#ifndef STICKY_TOOLS_STICKY_LLM_CLAIMS_H_
#define STICKY_TOOLS_STICKY_LLM_CLAIMS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sticky::llm {

inline constexpr std::array<std::string_view, 3> kLabels = {"SUPPORTS", "REFUTES",
                                                            "NOT ENOUGH INFO"};

struct Claim {
  std::int64_t id = 0;
  std::string text;
  std::optional<std::size_t> label;  // an index into kLabels, when the file says
};

// Errors: kCorrupt for a line that is not a JSON object with `id` (a whole number) and `claim`
//   (text that is not empty), or whose `label` is none of kLabels, saying which.
Result<Claim> ParseClaim(std::string_view line);

struct Verdict {
  std::int64_t id = 0;
  std::string claim;
  std::optional<std::size_t> label;
  std::array<double, kLabels.size()> scores{};  // natural log-probabilities of the label texts

  std::size_t best() const;  // the index of the best score as it is written; the first of equals
};

// One line without its end: {"id", "claim", "label"?, "verdict", "scores"}; scores have five digits
// after the point.
std::string FormatVerdict(const Verdict& verdict);

// Errors: kCorrupt unless it is a line that FormatVerdict made.
Result<Verdict> ParseVerdict(std::string_view line);

}  // namespace sticky::llm

#endif  // STICKY_TOOLS_STICKY_LLM_CLAIMS_H_
