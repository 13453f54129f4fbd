// `sticky-llm generate`: a prompt in, the model's continuation out.
//
// Thread: one thread at a time.

#ifndef STICKY_TOOLS_STICKY_LLM_GENERATE_H_
#define STICKY_TOOLS_STICKY_LLM_GENERATE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/sampler.h"
#include "tools/sticky-llm/clock.h"
#include "tools/sticky-llm/session.h"

namespace sticky::llm {

struct GenerateOptions {
  std::string prompt;  // any bytes
  bool chat = false;   // the prompt is a user's turn
  std::string system;  // with chat: a system turn before it
  int token_count_max = 128;
  engine::SamplerOptions sampler;
  std::vector<std::string> stop_texts;  // the text ends before the first of them
};

struct Generated {
  std::string text;  // whole UTF-8
  std::vector<std::int32_t> prompt_ids;
  std::vector<std::int32_t> ids;
  std::string finish_reason;  // "stop", "length", "interrupted"
  std::uint64_t kv_cache_bytes = 0;
};

// The ids that a prompt becomes: with the model's BOS when it wants one, never twice.
Result<std::vector<std::int32_t>> EncodePrompt(const Session& session,
                                               const GenerateOptions& options);

// on_text: receives the text as it grows, whole characters only.
// Errors: kInvalidArgument when the prompt does not fit into the model's context, with both
//   numbers; those of the engine.
Result<Generated> Generate(Session& session, const GenerateOptions& options, Clock& clock,
                           const std::function<void(std::string_view)>& on_text);

}  // namespace sticky::llm

#endif  // STICKY_TOOLS_STICKY_LLM_GENERATE_H_
