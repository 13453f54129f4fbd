// What a template says of a state's life among others, for people and for scripts.
//
// Thread: any thread.
// Source: docs/stickyctl.md, docs/templates.md.

#ifndef STICKY_TOOLS_STICKYCTL_RENDER_POLICY_H_
#define STICKY_TOOLS_STICKYCTL_RENDER_POLICY_H_

#include <string>
#include <vector>

#include "base/policy.h"
#include "tools/stickyctl/render_json.h"
#include "tools/stickyctl/text_table.h"
#include "tools/stickyctl/user_names.h"

namespace sticky::stickyctl {

// Labels are an object: `jq '.policy.labels.team'`.
Json PolicyJson(const Policy& policy);

// Lifetime, priority, access, the most leases when the template has one, and a field a label.
FieldList PolicyFields(const Policy& policy, const UserNames& users);

// What a state that was there already, or under way, has otherwise than was asked for: the keys as
// templates have them ("lifetime.idle").
std::vector<std::string> PolicyDifferences(const Policy& asked, const Policy& kept);

// What people are told of those; empty when there are none.
std::string KeptPolicyText(const std::string& state, const std::vector<std::string>& differences);

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_RENDER_POLICY_H_
