// Session: a model that is ready to be used: weights, tokenizer, chat template, engine.
//
// Thread: one thread at a time.

#ifndef STICKY_TOOLS_STICKY_LLM_SESSION_H_
#define STICKY_TOOLS_STICKY_LLM_SESSION_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/model.h"
#include "engine/tokenizer/chat.h"
#include "engine/tokenizer/tokenizer.h"
#include "tools/sticky-llm/clock.h"
#include "tools/sticky-llm/model_source.h"
#include "weights/vocabulary.h"

namespace sticky::llm {

struct SessionOptions {
  // One of the two; never both, and never one for want of the other.
  std::optional<AttachOptions> attach;
  std::optional<PrivateLoadOptions> load;
  int thread_count = 0;  // 0: as many as this process may run on
};

class Session {
 public:
  // Errors: of the parts, each saying what it was about.
  static Result<Session> Open(const SessionOptions& options, Clock& clock);

  engine::Model& model() { return *model_; }
  const engine::Tokenizer& tokenizer() const { return *tokenizer_; }
  const weights::Vocabulary& vocabulary() const { return tokenizer_->vocabulary(); }
  const ModelSource& source() const { return *source_; }

  // Errors: kInvalidArgument when the model has no chat template that is known.
  Result<engine::ChatTemplate> Chat() const;

  bool IsStop(std::int32_t token) const;

 private:
  Session() = default;
  std::unique_ptr<ModelSource> source_;
  std::unique_ptr<engine::Ops> ops_;
  std::optional<engine::Tokenizer> tokenizer_;
  std::optional<engine::Model> model_;
};

// Set by SIGINT and SIGTERM to the signal's number; long work looks at it at every step.
extern volatile int interrupted_by;
void WatchForInterrupts();

}  // namespace sticky::llm

#endif  // STICKY_TOOLS_STICKY_LLM_SESSION_H_
