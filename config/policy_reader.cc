#include "config/policy_reader.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/text.h"
#include "config/access_names.h"
#include "config/state_name.h"

namespace sticky::config {
namespace {

Status ReadLifetime(const YamlMapping& top, Policy& policy) {
  STICKY_ASSIGN(const YamlMapping lifetime, top.Mapping("lifetime"));
  STICKY_TRY(lifetime.OnlyKeys({"pin", "idle", "ttl"}));
  STICKY_ASSIGN(const auto pin, lifetime.Bool("pin"));
  STICKY_ASSIGN(const auto idle_ms, lifetime.DurationMs("idle", kLifetimeMsMax));
  STICKY_ASSIGN(const auto ttl_ms, lifetime.DurationMs("ttl", kLifetimeMsMax));
  policy.pin = pin.value_or(false);
  policy.idle_ms = idle_ms.value_or(0);
  policy.ttl_ms = ttl_ms.value_or(0);
  return Ok{};
}

Result<Access> ReadAccess(const YamlMapping& top) {
  STICKY_ASSIGN(const YamlMapping mapping, top.Mapping("access"));
  STICKY_TRY(mapping.OnlyKeys({"mode", "users", "groups"}));
  Access access;
  STICKY_ASSIGN(access.mode, ReadMode(mapping, "mode", AccessMode::kOwner));
  STICKY_ASSIGN(auto users, ReadUsers(mapping, "users"));
  STICKY_ASSIGN(auto groups, ReadGroups(mapping, "groups"));
  if (users) access.users = std::move(*users);
  if (groups) access.groups = std::move(*groups);
  return access;
}

bool HasControlCharacters(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_c1 = byte == 0xC2 && i + 1 < text.size() &&
                       static_cast<unsigned char>(text[i + 1]) < 0xA0;  // U+0080 to U+009F
    if (byte < 0x20 || byte == 0x7F || is_c1) return true;
  }
  return false;
}

bool IsLabelKey(std::string_view key) {
  return !key.empty() && key.size() <= kLabelKeyBytesMax &&
         std::all_of(key.begin(), key.end(), [](char c) { return IsNameCharacter(c) || c == '/'; });
}

Result<Label> ReadLabel(const YamlMapping& labels, const std::string& key) {
  if (!IsLabelKey(key)) {
    return labels.AtKey(key, Format("a label's key wants 1 to %zu of A-Z a-z 0-9 . _ - + /, found ",
                                    kLabelKeyBytesMax) +
                                 "'" + Escape(key) + "'");
  }
  STICKY_ASSIGN(auto value, labels.Text(key));
  Label label{key, std::move(value).value_or("")};
  if (label.value.size() > kLabelValueBytesMax || !IsUtf8(label.value) ||
      HasControlCharacters(label.value)) {
    return labels.Find(key)->Wants(
        Format("at most %zu bytes of UTF-8 without control characters", kLabelValueBytesMax));
  }
  return label;
}

Result<std::vector<Label>> ReadLabels(const YamlMapping& top) {
  STICKY_ASSIGN(const YamlMapping mapping, top.Mapping("labels"));
  STICKY_ASSIGN(const std::vector<std::string> keys, mapping.Keys());
  if (keys.size() > kLabelsMax) {
    return top.At("labels", Format("'labels' has %zu entries, at most %zu are taken", keys.size(),
                                   kLabelsMax));
  }
  std::vector<Label> labels;
  for (const std::string& key : keys) {
    STICKY_ASSIGN(Label label, ReadLabel(mapping, key));
    labels.push_back(std::move(label));
  }
  std::sort(labels.begin(), labels.end(),
            [](const Label& a, const Label& b) { return a.key < b.key; });
  return labels;
}

Result<std::int32_t> ReadPriority(const YamlMapping& top) {
  const std::optional<YamlValue> value = top.Find("priority");
  if (!value) return Policy().priority;
  STICKY_ASSIGN(const std::int64_t priority, value->Number(kPriorityMin, kPriorityMax));
  return static_cast<std::int32_t>(priority);
}

}  // namespace

Result<Policy> ReadPolicy(const YamlMapping& top) {
  Policy policy;
  STICKY_TRY(ReadLifetime(top, policy));
  STICKY_ASSIGN(policy.priority, ReadPriority(top));
  STICKY_ASSIGN(policy.access, ReadAccess(top));
  STICKY_ASSIGN(policy.labels, ReadLabels(top));
  STICKY_ASSIGN(const auto lease_count_max, top.Number("max_leases", /*least=*/1, kMaxLeasesMost));
  policy.lease_count_max = lease_count_max.value_or(0);
  return policy;
}

}  // namespace sticky::config
