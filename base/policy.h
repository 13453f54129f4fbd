// Policy: what a template says about a state's life among others, apart from what is in it: who may
// use it, how long it stays, and what goes first when memory is short.
//
// Thread: any thread (plain values).
// Source: docs/templates.md.

#ifndef STICKY_BASE_POLICY_H_
#define STICKY_BASE_POLICY_H_

#include <cstdint>
#include <string>
#include <vector>

namespace sticky {

// Whom a state is for besides its owner (the user who had it built) and the node's owner.
// Mirrors wire AccessMode (tests/layout checks it).
enum class AccessMode : std::int8_t {
  kOwner = 0,  // nobody
  kGroup = 1,  // the members of the owner's primary group
  kNode = 2,   // every user of the node
};
inline constexpr int kAccessModeCount = 3;

// "owner", "group", "node". The text is static.
inline constexpr const char* Name(AccessMode mode) {
  constexpr const char* kNames[kAccessModeCount] = {"owner", "group", "node"};
  return kNames[static_cast<int>(mode)];
}

struct Access {
  AccessMode mode = AccessMode::kOwner;
  std::vector<std::uint32_t> users;   // these too, whatever the mode; at most kAccessIdsMax
  std::vector<std::uint32_t> groups;  // and the members of these; at most kAccessIdsMax
  bool operator==(const Access&) const = default;
};
inline constexpr std::size_t kAccessIdsMax = 64;

// A word for schedulers: the daemon keeps it and tells it, and does nothing else with it.
struct Label {
  std::string key;    // 1 to kLabelKeyBytesMax of the characters of a state's name and '/'
  std::string value;  // at most kLabelValueBytesMax bytes of UTF-8, without control characters
  bool operator==(const Label&) const = default;
};
inline constexpr std::size_t kLabelsMax = 32;
inline constexpr std::size_t kLabelKeyBytesMax = 63;
inline constexpr std::size_t kLabelValueBytesMax = 255;

inline constexpr std::uint64_t kLifetimeMsMax = 365ull * 24 * 3600 * 1000;  // a year
inline constexpr std::int32_t kPriorityMin = -100;
inline constexpr std::int32_t kPriorityMax = 100;

// When an installed template is built. Mirrors wire BuildWhen (tests/layout checks it).
enum class BuildWhen : std::int8_t {
  kManual = 0,    // when somebody asks for a load
  kOnDemand = 1,  // when somebody attaches and it is not there
  kAtStart = 2,   // when the daemon starts
};
inline constexpr int kBuildWhenCount = 3;

// "manual", "on-demand", "at-start". The text is static.
inline constexpr const char* Name(BuildWhen when) {
  constexpr const char* kNames[kBuildWhenCount] = {"manual", "on-demand", "at-start"};
  return kNames[static_cast<int>(when)];
}

struct Policy {
  bool pin = false;           // never evicted for want of memory, and kept when its last hold ends
  std::uint64_t idle_ms = 0;  // evicted when nobody has leased it for so long; 0: never
  std::uint64_t ttl_ms = 0;   // drained so long after it was ready; 0: never
  std::int32_t priority = 0;  // kPriorityMin to kPriorityMax; lower goes first
  Access access;
  std::vector<Label> labels;
  std::uint32_t lease_count_max = 0;  // leases at once; 0: the node's limit alone
  bool operator==(const Policy&) const = default;
};

}  // namespace sticky

#endif  // STICKY_BASE_POLICY_H_
