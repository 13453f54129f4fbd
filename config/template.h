// Template: how to build a state, as its author wrote it in YAML.
//
// Thread: any thread. The only room that sees yaml-cpp; its exceptions end here.
// Source: docs/templates.md.

#ifndef STICKY_CONFIG_TEMPLATE_H_
#define STICKY_CONFIG_TEMPLATE_H_

#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/result.h"

namespace sticky::config {

struct Template {
  std::string name;         // the state's name
  std::string source_path;  // absolute, ~ and ${VAR} expanded, relative to the template's folder
  std::string device = "host";
  DtypeChoice dtype = DtypeChoice::kAuto;
  bool pin = false;         // lifetime.pin
  bool huge_pages = false;  // memory.huge_pages: ask for MFD_HUGETLB
  std::string canonical;    // one text for all spellings of the same template; digest this
};

// `text`: YAML. `directory`: what relative paths are relative to. `file_name`: for messages.
// Errors: kInvalidArgument, "FILE:LINE:COLUMN: ..." with a "did you mean" where one is near, for
//   unknown keys, wrong types, duplicates and missing keys; kCorrupt for text that is not YAML.
Result<Template> ParseTemplate(std::string_view text, const std::string& directory,
                               const std::string& file_name);

// Reads the file at `path` (at most 1 MiB) and parses it. Errors: also kNotFound,
// kPermissionDenied.
Result<Template> LoadTemplate(const std::string& path);

}  // namespace sticky::config

#endif  // STICKY_CONFIG_TEMPLATE_H_
