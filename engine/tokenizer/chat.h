// Chat: a conversation to the text that a model was tuned on.
//
// The published templates are programs (Jinja); this knows a closed list of them by what they
// write, and refuses any other by name. Markup and people's words stay apart: a piece of content is
// encoded as literal text, so it can never forge a turn.
//
// Thread: any thread.

#ifndef STICKY_ENGINE_TOKENIZER_CHAT_H_
#define STICKY_ENGINE_TOKENIZER_CHAT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/tokenizer/tokenizer.h"

namespace sticky::engine {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};
class ChatTemplate {
 public:
  // ChatML: every turn is <|im_start|>ROLE, a line end, the content, <|im_end|>, a line end.
  // default_system: said when a conversation does not begin with a system turn; empty: nothing is.
  static ChatTemplate ChatMl(std::string default_system);

  // `published`: the Jinja text that the model came with (asset `chat_template`).
  // Errors: kInvalidArgument for an empty or unknown template, naming the known ones.
  static Result<ChatTemplate> Recognise(std::string_view published);

  // add_generation_prompt: end with the opening of the assistant's turn.
  // Errors: kInvalidArgument for a conversation that the template refuses, with the reason.
  Result<std::vector<TextPiece>> Render(const std::vector<ChatMessage>& messages,
                                        bool add_generation_prompt) const;

  std::string_view name() const { return name_; }  // "chatml"

 private:
  ChatTemplate(std::string name, std::string default_system)
      : name_(std::move(name)), default_system_(std::move(default_system)) {}
  std::string name_;
  std::string default_system_;  // said when a conversation has no system turn; empty: nothing is
};

}  // namespace sticky::engine

#endif  // STICKY_ENGINE_TOKENIZER_CHAT_H_
