// The text of a template for a model that was looked at: what `template init` writes.
//
// Thread: any thread.
// Source: docs/templates.md, for the keys and their defaults.

#ifndef STICKY_TOOLS_STICKYCTL_TEMPLATE_TEXT_H_
#define STICKY_TOOLS_STICKYCTL_TEMPLATE_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/digest.h"
#include "base/result.h"
#include "tools/stickyctl/model_look.h"

namespace sticky::stickyctl {

// A state's name made of the last part of `path` that says something: without the ending of a
// weight file, of a hub's cache the repository's name, and other characters than a name may have as
// '-'.
std::string StateNameFor(std::string_view path);

// `text` in double quotes, as YAML reads it back byte for byte.
// Errors: kInvalidArgument for what is not UTF-8, which YAML cannot hold.
Result<std::string> YamlQuoted(std::string_view text);

struct TemplateFacts {
  std::string path;                   // of the model, absolute
  std::uint64_t weights_bytes = 0;    // of all weight files
  std::size_t weights_count = 0;      // files
  std::optional<Sha256> blob_sha256;  // of the only weight file, as the hub's cache names it
  Dtype auto_dtype = Dtype::kF32;     // what `dtype: auto` means here
};

// A template with every key: those that differ from model to model are set, the others are comments
// with their defaults.
// Errors: kInvalidArgument when no template can name the path: it is not UTF-8, or has "${" in it.
Result<std::string> TemplateText(const TemplateFacts& facts, const ModelLook& model);

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_TEMPLATE_TEXT_H_
