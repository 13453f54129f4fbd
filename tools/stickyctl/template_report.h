// TemplateReport: what `template check` found, and how it is told.
//
// Thread: any thread.
// Source: docs/stickyctl.md.

#ifndef STICKY_TOOLS_STICKYCTL_TEMPLATE_REPORT_H_
#define STICKY_TOOLS_STICKYCTL_TEMPLATE_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/digest.h"
#include "config/template.h"
#include "tools/stickyctl/model_look.h"
#include "tools/stickyctl/render_json.h"
#include "tools/stickyctl/user_names.h"

namespace sticky::stickyctl {

struct CheckedFile {
  std::string name;
  const char* role = "";  // "weights", "small", "whole"; static
  std::uint64_t size_bytes = 0;
  std::optional<Sha256> expected_sha256;
  std::optional<Sha256> sha256;  // found; equal to expected_sha256 where both are there
  bool sha256_was_read = false;  // else it is what the hub's cache calls the file
};

// The daemon's memory, when one answered.
struct Budget {
  std::uint64_t budget_bytes = 0;
  std::uint64_t used_bytes = 0;
};

struct TemplateReport {
  std::string path;  // of the template
  config::Template made;
  Digest template_digest;
  std::string source;  // the model's path, or text that lists several
  std::vector<CheckedFile> files;
  std::optional<ModelLook> model;   // none when the files are kept whole
  std::optional<Dtype> auto_dtype;  // what `dtype: auto` means, when the template has it
  std::uint64_t needed_bytes = 0;   // of memory, for the state
  std::optional<Budget> budget;
  std::string no_budget;         // why not
  std::optional<Error> refusal;  // why the daemon would not take the load of this user
  bool is_for_builder = false;   // no source: of all this, path, name and policy alone are there

  // Whether the state could be on this node at all; nothing when no daemon answered.
  std::optional<bool> Fits() const;
};

Json ReportJson(const TemplateReport& report);
std::string ReportText(const TemplateReport& report, const UserNames& users);

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_TEMPLATE_REPORT_H_
