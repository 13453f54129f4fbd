// How findings are printed: a page for people, problems first, and a list for scripts.
//
// Thread: any thread.

#ifndef STICKY_TOOLS_STICKYCTL_DOCTOR_RENDER_FINDINGS_H_
#define STICKY_TOOLS_STICKYCTL_DOCTOR_RENDER_FINDINGS_H_

#include <string>
#include <vector>

#include "tools/stickyctl/doctor/findings.h"
#include "tools/stickyctl/render_json.h"

namespace sticky::stickyctl {

// Lines of at most 80 columns, but for words that are longer.
std::string FindingsText(const std::vector<Finding>& findings);

// In their order: level, what, found, do (null: nothing needs doing).
Json FindingsJson(const std::vector<Finding>& findings);

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_DOCTOR_RENDER_FINDINGS_H_
