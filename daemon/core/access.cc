#include "daemon/core/access.h"

#include <algorithm>

#include "base/text.h"

namespace sticky::daemon {
namespace {

bool Contains(const std::vector<std::uint32_t>& ids, std::uint32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

bool IsMember(const Peer& peer, std::uint32_t gid) {
  return peer.gid == gid || Contains(peer.groups, gid);
}

std::string Join(const std::vector<std::uint32_t>& ids) {
  std::string text;
  for (const std::uint32_t id : ids) text += (text.empty() ? "" : ", ") + std::to_string(id);
  return text;
}

}  // namespace

bool IsNodeOwner(const Peer& peer, std::uint32_t daemon_uid) {
  return peer.uid == 0 || peer.uid == daemon_uid;
}

bool IsNamed(const Peer& peer, const Access& access) {
  return Contains(access.users, peer.uid) ||
         std::any_of(access.groups.begin(), access.groups.end(),
                     [&](std::uint32_t gid) { return IsMember(peer, gid); });
}

bool MayUse(const Peer& peer, const Ownership& owned, std::uint32_t daemon_uid) {
  if (MayManage(peer, owned, daemon_uid)) return true;
  if (owned.access.mode == AccessMode::kNode) return true;
  if (owned.access.mode == AccessMode::kGroup && IsMember(peer, owned.gid)) return true;
  return IsNamed(peer, owned.access);
}

bool MayManage(const Peer& peer, const Ownership& owned, std::uint32_t daemon_uid) {
  return IsNodeOwner(peer, daemon_uid) || peer.uid == owned.uid;
}

std::string RuleText(const Ownership& owned) {
  std::string text = Format("user %u had it built, ", owned.uid);
  switch (owned.access.mode) {
    case AccessMode::kOwner:
      text += "for itself alone";
      break;
    case AccessMode::kGroup:
      text += Format("for members of group %u", owned.gid);
      break;
    case AccessMode::kNode:
      text += "for every user of the node";
      break;
  }
  if (!owned.access.users.empty()) text += ", users " + Join(owned.access.users);
  if (!owned.access.groups.empty()) text += ", members of groups " + Join(owned.access.groups);
  return text + " (access of its template)";
}

}  // namespace sticky::daemon
