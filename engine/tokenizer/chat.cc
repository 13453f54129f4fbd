#include "engine/tokenizer/chat.h"

#include <utility>

#include "base/text.h"

namespace sticky::engine {
namespace {

// SmolLM2's and the plain ChatML template, as published, with line ends as characters. `kDefault`
// marks the place of the default system turn's words.
constexpr std::string_view kSmolLm2Before =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\n";
constexpr std::string_view kSmolLm2After = "<|im_end|>\n' }}{% endif %}";
constexpr std::string_view kChatMlFor = "{% for message in messages %}";
constexpr std::string_view kChatMlTurns =
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

constexpr std::string_view kKnown =
    "ChatML without a system turn of its own, and ChatML with a default one (SmolLM2)";

// Jinja's \n in a string literal is the line end that it stands for.
std::string WithLineEnds(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 2) == "\\n") {
      out += '\n';
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

ChatTemplate ChatTemplate::ChatMl(std::string default_system) {
  return ChatTemplate("chatml", std::move(default_system));
}

Result<ChatTemplate> ChatTemplate::Recognise(std::string_view published) {
  if (published.empty()) {
    return Error{Code::kInvalidArgument,
                 "use the model's chat template: it has none; give a plain prompt instead"};
  }
  const std::string text = WithLineEnds(published);
  if (text == std::string(kChatMlFor) + std::string(kChatMlTurns)) return ChatMl("");
  const std::string end = std::string(kSmolLm2After) + std::string(kChatMlTurns);
  if (text.starts_with(kSmolLm2Before) && text.ends_with(end)) {
    const std::string words =
        text.substr(kSmolLm2Before.size(), text.size() - kSmolLm2Before.size() - end.size());
    if (words.find('\'') == std::string::npos) return ChatMl(words);
  }
  return Error{
      Code::kInvalidArgument,
      "use the model's chat template: it is not one of those known: " + std::string(kKnown) +
          "; give a plain prompt instead. It begins '" + Escape(published.substr(0, 60)) + "'"};
}

Result<std::vector<TextPiece>> ChatTemplate::Render(const std::vector<ChatMessage>& messages,
                                                    bool add_generation_prompt) const {
  std::vector<TextPiece> pieces;
  const auto turn = [&](const std::string& role, const std::string& content) {
    pieces.push_back({"<|im_start|>" + role + "\n", Markup::kSpecial});
    pieces.push_back({content, Markup::kLiteral});
    pieces.push_back({"<|im_end|>\n", Markup::kSpecial});
  };
  const bool has_system = !messages.empty() && messages[0].role == "system";
  if (!default_system_.empty() && !messages.empty() && !has_system) {
    turn("system", default_system_);
  }
  for (const ChatMessage& message : messages) {
    const bool known =
        message.role == "system" || message.role == "user" || message.role == "assistant";
    if (!known) {
      return Error{Code::kInvalidArgument, "render a conversation: role '" + Escape(message.role) +
                                               "' is not system, user or assistant"};
    }
    turn(message.role, message.content);
  }
  if (add_generation_prompt) pieces.push_back({"<|im_start|>assistant\n", Markup::kSpecial});
  return pieces;
}

}  // namespace sticky::engine
