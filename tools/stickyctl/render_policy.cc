#include "tools/stickyctl/render_policy.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace sticky::stickyctl {
namespace {

std::string AccessText(const Access& access, const UserNames& users) {
  std::string user_list;
  for (const std::uint32_t uid : access.users) {
    user_list += (user_list.empty() ? "; users " : ", ") + users(uid);
  }
  std::string group_list;
  for (const std::uint32_t gid : access.groups) {
    group_list += (group_list.empty() ? "; groups " : ", ") + Number(gid);
  }
  return Name(access.mode) + user_list + group_list;
}

std::string LifetimeText(const Policy& policy) {
  std::string text = policy.pin ? "pinned" : "not pinned";
  if (policy.idle_ms > 0) text += ", idle " + Duration(policy.idle_ms);
  if (policy.ttl_ms > 0) text += ", ttl " + Duration(policy.ttl_ms);
  return text;
}

// What means the same, whatever the order that it was written in.
Access Sorted(Access access) {
  std::ranges::sort(access.users);
  std::ranges::sort(access.groups);
  return access;
}

std::vector<Label> Sorted(std::vector<Label> labels) {
  std::ranges::sort(labels, {}, &Label::key);
  return labels;
}

}  // namespace

Json PolicyJson(const Policy& policy) {
  Json labels = Json::object();
  for (const Label& label : policy.labels) labels[label.key] = label.value;
  return Json{{"pin", policy.pin},
              {"idle_ms", policy.idle_ms},
              {"ttl_ms", policy.ttl_ms},
              {"priority", policy.priority},
              {"access", Json{{"mode", Name(policy.access.mode)},
                              {"users", policy.access.users},
                              {"groups", policy.access.groups}}},
              {"labels", std::move(labels)},
              {"lease_count_max", policy.lease_count_max}};
}

std::vector<std::string> PolicyDifferences(const Policy& asked, const Policy& kept) {
  std::vector<std::string> names;
  const auto compare = [&names](bool is_same, const char* name) {
    if (!is_same) names.emplace_back(name);
  };
  compare(asked.pin == kept.pin, "lifetime.pin");
  compare(asked.idle_ms == kept.idle_ms, "lifetime.idle");
  compare(asked.ttl_ms == kept.ttl_ms, "lifetime.ttl");
  compare(asked.priority == kept.priority, "priority");
  compare(Sorted(asked.access) == Sorted(kept.access), "access");
  compare(Sorted(asked.labels) == Sorted(kept.labels), "labels");
  compare(asked.lease_count_max == kept.lease_count_max, "max_leases");
  return names;
}

std::string KeptPolicyText(const std::string& state, const std::vector<std::string>& differences) {
  if (differences.empty()) return "";
  std::string names;
  for (const std::string& name : differences) names += (names.empty() ? "" : ", ") + name;
  return "state '" + state + "' keeps its own " + names +
         ": the template says otherwise, but the state was asked for before; --replace builds it "
         "anew with what the template says";
}

FieldList PolicyFields(const Policy& policy, const UserNames& users) {
  FieldList fields = {{"lifetime", LifetimeText(policy)},
                      {"priority", Format("%d", policy.priority)},
                      {"access", AccessText(policy.access, users)}};
  if (policy.lease_count_max > 0) fields.emplace_back("max leases", Number(policy.lease_count_max));
  for (const Label& label : policy.labels) {
    fields.emplace_back("label", Printable(label.key) + ": " + Printable(label.value));
  }
  return fields;
}

}  // namespace sticky::stickyctl
