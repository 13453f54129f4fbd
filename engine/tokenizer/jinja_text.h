// The text of a Jinja template in one spelling, so that templates which write the same thing and
// differ only in layout are recognised as one. Nothing is executed.
//
// Thread: any thread.
// Source: Jinja's template designer documentation, "Whitespace Control", with trim_blocks and
// lstrip_blocks on, as the transformers library renders chat templates.

#ifndef STICKY_ENGINE_TOKENIZER_JINJA_TEXT_H_
#define STICKY_ENGINE_TOKENIZER_JINJA_TEXT_H_

#include <optional>
#include <string>
#include <string_view>

namespace sticky::engine {

// `text` with the white space that Jinja itself drops taken away, comments left out, tags without
// white space at their ends ("{%for x in y%}"), line ends within tags written as \n, members as
// message.role rather than message['role'], and neighbouring literals joined ('a' + 'b' is 'ab').
// Two texts that become equal write the same for every conversation. Cost: linear.
std::string CanonicalJinja(std::string_view text);

// What a string literal's inside stands for: \n, \t, \\, \' and \" taken back.
// Empty for any other escape, or for an inside that a quote ends early.
std::optional<std::string> UnescapeLiteral(std::string_view inside);

}  // namespace sticky::engine

#endif  // STICKY_ENGINE_TOKENIZER_JINJA_TEXT_H_
