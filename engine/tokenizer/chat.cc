#include "engine/tokenizer/chat.h"

#include <optional>
#include <utility>

#include "base/text.h"
#include "engine/tokenizer/jinja_text.h"

namespace sticky::engine {
namespace {

// The published templates that are known, as they are spelled on the hubs; they are compared in the
// spelling of CanonicalJinja. A default system turn's words stand between a `Before` and its
// `After`.
constexpr std::size_t kTemplateBytesMax = 1u << 20;
constexpr std::string_view kSetPrompt =
    "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}"
    "{% endif %}";
constexpr std::string_view kFor = "{% for message in messages %}";
constexpr std::string_view kTurns =
    R"({{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }})"
    R"({% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})";

// SmolLM2 and Qwen2: the default is said before the first turn.
constexpr std::string_view kInLoopBefore =
    "{% for message in messages %}{% if loop.first and messages[0].role != 'system' %}"
    R"({{ '<|im_start|>system\n)";
constexpr std::string_view kInLoopAfter = R"(<|im_end|>\n' }}{% endif %})";

// Qwen2.5, with the parts that run only for tools and for turns that hold tool calls left open:
// no conversation of ours has either.
constexpr std::string_view kToolsIf = "{% if tools %}";
constexpr std::string_view kAheadBefore =
    "{% else %}{% if messages[0].role == 'system' %}"
    R"({{ '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{% else %})"
    R"({{ '<|im_start|>system\n)";
constexpr std::string_view kAheadAfter =
    R"(<|im_end|>\n' }}{% endif %}{% endif %}{% for message in messages %})"
    R"({% if (message.role == "user") or (message.role == "system" and not loop.first) or )"
    R"((message.role == "assistant" and not message.tool_calls) %})"
    R"({{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }})"
    R"({% elif message.role == "assistant" %})";
constexpr std::string_view kToolsEnd =
    R"({% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }})"
    "{% endif %}";

constexpr std::string_view kKnown =
    "ChatML without a system turn of its own, and ChatML with a default one (as SmolLM2, Qwen2 "
    "and Qwen2.5 publish it)";

// A part of a template as CanonicalJinja spells it; a part may end within a tag, which stays as
// it is.
std::string Spelled(std::string_view part) {
  const std::size_t cut = part.rfind("{{");
  const bool open = cut != std::string_view::npos && part.find("}}", cut) == part.npos;
  if (!open) return CanonicalJinja(part);
  std::string_view rest = part.substr(cut + 2);
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  return CanonicalJinja(part.substr(0, cut)) + "{{" + std::string(rest);
}

// The same for a part that begins within a tag.
std::string SpelledEnd(std::string_view part) {
  const std::size_t close = part.find(" }}");
  return std::string(part.substr(0, close)) + "}}" + CanonicalJinja(part.substr(close + 3));
}

// The words between `before` and `after` when that is all that `text` is.
std::optional<std::string> WordsBetween(std::string_view text, std::string_view before,
                                        std::string_view after) {
  if (text.size() < before.size() + after.size() || !text.starts_with(before) ||
      !text.ends_with(after)) {
    return std::nullopt;
  }
  text.remove_prefix(before.size());
  text.remove_suffix(after.size());
  return UnescapeLiteral(text);
}

// Whether a part that is left open is whole statements: every if and for is closed in it, and the
// statement around it gets no further branch but, perhaps, `branch`.
bool IsClosedPart(std::string_view part, std::string_view branch) {
  int depth = 0;
  for (std::size_t at = part.find("{%"); at != part.npos; at = part.find("{%", at + 2)) {
    const std::string_view tag = part.substr(at);
    if (tag.starts_with("{%if ") || tag.starts_with("{%for ")) ++depth;
    if (tag.starts_with("{%endif%}") || tag.starts_with("{%endfor%}")) --depth;
    const bool branches = tag.starts_with("{%el");
    if (depth < 0) return false;
    if (depth == 0 && branches && (branch.empty() || !tag.starts_with(branch))) return false;
  }
  return depth == 0;
}

// Qwen2.5's: what tools get, the known middle, what tool calls get, the known end.
std::optional<std::string> WordsOfToolTemplate(std::string_view text) {
  const std::string tools_if = CanonicalJinja(kToolsIf);
  const std::string before = Spelled(kAheadBefore);
  const std::string after = SpelledEnd(kAheadAfter);
  const std::string end = CanonicalJinja(kToolsEnd);
  if (!text.starts_with(tools_if) || !text.ends_with(end)) return std::nullopt;
  text.remove_prefix(tools_if.size());
  text.remove_suffix(end.size());
  const std::size_t from = text.find(before);
  const std::size_t to = from == text.npos ? from : text.find(after, from + before.size());
  if (to == text.npos || !IsClosedPart(text.substr(0, from), "") ||
      !IsClosedPart(text.substr(to + after.size()), R"({%elif message.role == "tool"%})")) {
    return std::nullopt;
  }
  return UnescapeLiteral(text.substr(from + before.size(), to - from - before.size()));
}

// The default system turn's words (empty: it has none) of a template that is known.
std::optional<std::string> DefaultSystemOf(std::string_view published) {
  const std::string canonical = CanonicalJinja(published);
  std::string_view text(canonical);
  const std::string set_prompt = CanonicalJinja(kSetPrompt);
  if (text.starts_with(set_prompt)) text.remove_prefix(set_prompt.size());
  const std::string turns = CanonicalJinja(kTurns);
  if (text == CanonicalJinja(kFor) + turns) return "";
  if (auto words = WordsBetween(text, Spelled(kInLoopBefore), SpelledEnd(kInLoopAfter) + turns)) {
    return words;
  }
  return WordsOfToolTemplate(text);
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
  if (published.size() > kTemplateBytesMax) {
    return Error{Code::kInvalidArgument,
                 Format("use the model's chat template: it has %zu bytes; at most %zu",
                        published.size(), kTemplateBytesMax)};
  }
  if (auto words = DefaultSystemOf(published)) return ChatMl(std::move(*words));
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
