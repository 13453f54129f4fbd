// `sticky-llm verify`: claims in, a verdict with its scores for each out.
//
// The output grows in OUTPUT.partial, which begins with a line that says what it belongs to, and
// becomes OUTPUT in one rename at the end. A run that was killed goes on where it was: claims in
// the partial file are not done again.
//
// Thread: one thread at a time.

#ifndef STICKY_TOOLS_STICKY_LLM_VERIFY_H_
#define STICKY_TOOLS_STICKY_LLM_VERIFY_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/client/outcome.h"
#include "tools/sticky-llm/claims.h"
#include "tools/sticky-llm/clock.h"
#include "tools/sticky-llm/session.h"

namespace sticky::llm {

inline constexpr int kBatchMax = 256;

struct VerifyOptions {
  std::string input_path;
  std::string output_path;
  int batch = 1;           // claims at a time, 1 to kBatchMax; the output is the same for any
  bool strict = false;     // a bad line ends the run
  std::int64_t limit = 0;  // at most so many claims; 0: all
};

struct VerifySummary {
  std::int64_t claim_count = 0;    // in the output
  std::int64_t resumed_count = 0;  // of those, from an earlier run
  std::int64_t bad_line_count = 0;
  std::int64_t labelled_count = 0;
  std::int64_t correct_count = 0;
  bool interrupted = false;
};

// Scores every label of each claim. The prompt is that of docs/sticky-llm.md.
Result<std::vector<Verdict>> Judge(Session& session, std::span<const Claim> claims, Clock& clock);

// on_bad_line: told of each line that was passed over, with its number from 1.
// on_progress: told how many claims are done, after each batch.
// Errors: kNotFound, kPermissionDenied; kCorrupt for a bad line under `strict`; kInvalidArgument
//   for a partial file that belongs to another input or model; whatever keeps the output from being
//   written.
client::Outcome<VerifySummary> Verify(
    Session& session, const VerifyOptions& options, Clock& clock,
    const std::function<void(std::int64_t, const Error&)>& on_bad_line,
    const std::function<void(const VerifySummary&)>& on_progress);

}  // namespace sticky::llm

#endif  // STICKY_TOOLS_STICKY_LLM_VERIFY_H_
