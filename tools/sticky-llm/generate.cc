#include "tools/sticky-llm/generate.h"

#include <algorithm>

#include "base/text.h"

namespace sticky::llm {
namespace {

// Lets text out, but for what may still become a stop text.
class StopWatch {
 public:
  StopWatch(const std::vector<std::string>& stops, const std::function<void(std::string_view)>& out)
      : stops_(stops), out_(out) {}

  // True when a stop text has come; nothing of it, or after it, is let out.
  bool Add(const std::string& text) {
    pending_ += text;
    std::size_t first = std::string::npos;
    for (const std::string& stop : stops_) first = std::min(first, pending_.find(stop));
    if (first != std::string::npos) {
      pending_.resize(first);
      Flush();
      return true;
    }
    Emit(pending_.size() - PossibleStopBytes());
    return false;
  }
  void Flush() { Emit(pending_.size()); }
  const std::string& text() const { return text_; }

 private:
  // The longest end of what is pending that a stop text begins with.
  std::size_t PossibleStopBytes() const {
    std::size_t most = 0;
    for (const std::string& stop : stops_) {
      for (std::size_t n = std::min(stop.size(), pending_.size()); n > most; --n) {
        if (pending_.ends_with(std::string_view(stop).substr(0, n))) most = n;
      }
    }
    return most;
  }
  void Emit(std::size_t count) {
    if (count == 0) return;
    out_(std::string_view(pending_).substr(0, count));
    text_.append(pending_, 0, count);
    pending_.erase(0, count);
  }

  const std::vector<std::string>& stops_;
  const std::function<void(std::string_view)>& out_;
  std::string pending_;
  std::string text_;
};

}  // namespace

Result<std::vector<std::int32_t>> EncodePrompt(const Session& session,
                                               const GenerateOptions& options) {
  if (!options.chat) {
    STICKY_ASSIGN(std::vector<std::int32_t> ids,
                  session.tokenizer().Encode(options.prompt, engine::Markup::kLiteral));
    const weights::Vocabulary& vocabulary = session.vocabulary();
    if (vocabulary.add_bos()) ids.insert(ids.begin(), static_cast<std::int32_t>(*vocabulary.bos()));
    return ids;
  }
  STICKY_ASSIGN(const engine::ChatTemplate chat, session.Chat());
  std::vector<engine::ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  messages.push_back({"user", options.prompt});
  STICKY_ASSIGN(const std::vector<engine::TextPiece> pieces,
                chat.Render(messages, /*add_generation_prompt=*/true));
  return session.tokenizer().Encode(pieces);
}

Result<Generated> Generate(Session& session, const GenerateOptions& options, Clock& clock,
                           const std::function<void(std::string_view)>& on_text) {
  STICKY_ASSIGN(engine::Sampler sampler, engine::Sampler::Create(options.sampler));
  Generated made;
  STICKY_ASSIGN(made.prompt_ids, EncodePrompt(session, options));
  const int context = session.model().config().context_length;
  const auto prompt_count = static_cast<int>(made.prompt_ids.size());
  if (prompt_count == 0) {
    return Error{Code::kInvalidArgument,
                 "generate: the prompt is empty, and the model has no "
                 "beginning-of-text token to start from"};
  }
  if (prompt_count >= context) {
    return Error{Code::kInvalidArgument,
                 Format("generate: the prompt has %d tokens, the model's context %d; nothing is "
                        "cut unasked",
                        prompt_count, context)};
  }
  const int count_max = std::min(options.token_count_max, context - prompt_count);
  STICKY_ASSIGN(const engine::SequenceId sequence,
                session.model().AddSequence(prompt_count + count_max));

  std::int32_t next = 0;
  const auto pick = [&](std::size_t, std::size_t, std::span<const float> logits) -> Status {
    next = sampler.Next(logits);
    return Ok{};
  };
  engine::Chunk chunk{sequence, made.prompt_ids, made.prompt_ids.size() - 1};
  engine::StreamDecoder decoder(session.vocabulary());
  StopWatch watch(options.stop_texts, on_text);
  made.finish_reason = "length";
  while (static_cast<int>(made.ids.size()) < count_max) {
    if (interrupted_by != 0) {
      made.finish_reason = "interrupted";
      break;
    }
    STICKY_TRY(session.model().Forward(std::span(&chunk, 1), pick));
    clock.FirstToken();
    made.ids.push_back(next);
    if (session.IsStop(next)) {
      made.finish_reason = "stop";
      break;
    }
    if (watch.Add(decoder.Feed(next))) {
      made.finish_reason = "stop";
      break;
    }
    chunk = {sequence, std::span(&made.ids.back(), 1), 0};
  }
  if (made.finish_reason != "stop" || watch.text().empty()) watch.Add(decoder.Finish());
  watch.Flush();
  made.kv_cache_bytes = session.model().kv_cache_bytes();
  session.model().DropSequence(sequence);
  made.text = watch.text();
  return made;
}

}  // namespace sticky::llm
