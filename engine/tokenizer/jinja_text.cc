#include "engine/tokenizer/jinja_text.h"

#include <algorithm>

namespace sticky::engine {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";

bool IsSpace(char c) { return kSpaces.find(c) != std::string_view::npos; }

std::string_view Trim(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

void ReplaceAll(std::string& text, std::string_view what, std::string_view by) {
  std::string out;
  std::size_t from = 0;
  for (std::size_t at; (at = text.find(what, from)) != std::string::npos;) {
    out.append(text, from, at - from).append(by);
    from = at + what.size();
  }
  text = out.append(text, from);
}

// Where the tag that begins at `begin` is closed by `close`; literals may hold anything.
std::size_t FindClose(std::string_view text, std::size_t begin, std::string_view close,
                      bool literals) {
  char quote = 0;
  for (std::size_t i = begin; i < text.size(); ++i) {
    if (quote != 0) {
      if (text[i] == '\\') {
        ++i;
      } else if (text[i] == quote) {
        quote = 0;
      }
    } else if (text.substr(i, close.size()) == close) {
      return i;
    } else if (literals && (text[i] == '\'' || text[i] == '"')) {
      quote = text[i];
    }
  }
  return std::string_view::npos;
}

class Canonicalizer {
 public:
  explicit Canonicalizer(std::string_view text) : text_(text) {}

  std::string Run() {
    if (!text_.empty() && text_.back() == '\n') text_.remove_suffix(1);  // as Jinja does
    while (at_ < text_.size()) {
      const std::string_view next = text_.substr(at_, 2);
      const bool opens = next == "{%" || next == "{{" || next == "{#";
      if (!opens) {
        plain_ += text_[at_++];
      } else if (!TakeTag(next[1])) {
        break;
      }
    }
    return out_ + plain_ + std::string(text_.substr(at_));
  }

 private:
  // False, with nothing taken, for a tag that is never closed, which Jinja refuses: all that is
  // left stays as text, and so matches no known template.
  bool TakeTag(char kind) {
    const bool comment = kind == '#';
    const char closing[] = {kind == '{' ? '}' : kind, '}', '\0'};
    const std::size_t end = FindClose(text_, at_ + 2, closing, /*literals=*/!comment);
    if (end == std::string_view::npos) return false;
    std::string_view inside = text_.substr(at_ + 2, end - at_ - 2);
    DropBefore(/*all=*/inside.starts_with('-'),
               /*lstrip_blocks=*/kind != '{' && !inside.starts_with('+'));
    if (inside.starts_with('-') || inside.starts_with('+')) inside.remove_prefix(1);
    const bool trims = inside.ends_with('-');
    if (trims) inside.remove_suffix(1);
    if (!comment) Append(kind, Trim(inside));
    at_ = end + 2;
    if (trims) {
      while (at_ < text_.size() && IsSpace(text_[at_])) ++at_;
    } else if (kind != '{' && text_.substr(at_, 1) == "\n") {
      ++at_;  // trim_blocks
    }
    return true;
  }

  // Drops the white space before a tag that Jinja drops.
  void DropBefore(bool all, bool lstrip_blocks) {
    const std::size_t last = plain_.find_last_not_of(all ? kSpaces : " \t");
    const std::size_t keep = last == std::string::npos ? 0 : last + 1;
    const std::size_t source = at_ - (plain_.size() - keep);
    const bool line_start = source == 0 || text_[source - 1] == '\n';
    if (all || (lstrip_blocks && line_start)) plain_.resize(keep);
    out_ += plain_;
    plain_.clear();
  }

  void Append(char kind, std::string_view inside) {
    std::string tag(inside);
    ReplaceAll(tag, "\n", "\\n");
    ReplaceAll(tag, "message['role']", "message.role");
    ReplaceAll(tag, "message['content']", "message.content");
    ReplaceAll(tag, "messages[0]['role']", "messages[0].role");
    ReplaceAll(tag, "messages[0]['content']", "messages[0].content");
    ReplaceAll(tag, "' + '", "");
    out_ += std::string("{") + kind + tag + (kind == '{' ? '}' : kind) + "}";
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string out_;
  std::string plain_;  // text since the last tag
};

}  // namespace

std::string CanonicalJinja(std::string_view text) { return Canonicalizer(text).Run(); }

std::optional<std::string> UnescapeLiteral(std::string_view inside) {
  std::string out;
  for (std::size_t i = 0; i < inside.size(); ++i) {
    if (inside[i] == '\'') return std::nullopt;
    if (inside[i] != '\\') {
      out += inside[i];
      continue;
    }
    if (++i == inside.size()) return std::nullopt;
    static constexpr std::string_view kEscapes = "nt\\'\"";
    static constexpr std::string_view kStandFor = "\n\t\\'\"";
    const std::size_t which = kEscapes.find(inside[i]);
    if (which == std::string_view::npos) return std::nullopt;
    out += kStandFor[which];
  }
  return out;
}

}  // namespace sticky::engine
