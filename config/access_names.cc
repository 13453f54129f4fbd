#include "config/access_names.h"

#include <algorithm>
#include <cerrno>
#include <string>

#include <grp.h>
#include <pwd.h>

#include "base/policy.h"
#include "base/text.h"

namespace sticky::config {
namespace {

constexpr std::size_t kEntryBytesMax = 1u << 20;  // a group may have thousands of members
constexpr std::int64_t kIdMax = 0xFFFF'FFFE;      // 2^32 - 1 stands for "no id"

// What getpwnam_r and getgrnam_r have in common: they say ERANGE until the buffer is large enough.
// Returns errno's number; `id` has a value when there is such an entry.
template <typename Entry, typename Id, typename LookUp>
int FindId(const std::string& name, LookUp look_up, Id Entry::*id_of,
           std::optional<std::uint32_t>& id) {
  std::vector<char> buffer(4096);
  for (;;) {
    Entry entry{};
    Entry* found = nullptr;
    const int failure = look_up(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
    if (failure == EINTR) continue;
    if (failure == ERANGE && buffer.size() < kEntryBytesMax) {
      buffer.resize(buffer.size() * 2);
      continue;
    }
    if (found != nullptr) id = entry.*id_of;
    return failure;
  }
}

struct Kind {
  const char* word;  // "user"
  int (*find)(const std::string& name, std::optional<std::uint32_t>& id);
};

int FindUser(const std::string& name, std::optional<std::uint32_t>& id) {
  return FindId(name, ::getpwnam_r, &passwd::pw_uid, id);
}

int FindGroup(const std::string& name, std::optional<std::uint32_t>& id) {
  return FindId(name, ::getgrnam_r, &group::gr_gid, id);
}

// Some libraries say so of a name that is not there, instead of 0.
bool MeansNoSuchName(int failure) {
  return failure == 0 || failure == ENOENT || failure == ESRCH || failure == EBADF ||
         failure == EPERM;
}

Result<std::uint32_t> ReadId(const YamlValue& value, const Kind& kind) {
  STICKY_ASSIGN(const std::string text, value.Text());
  if (!text.empty() && text.find_first_not_of("0123456789") == std::string::npos) {
    STICKY_ASSIGN(const std::int64_t number, value.Number(0, kIdMax));
    return static_cast<std::uint32_t>(number);
  }
  std::optional<std::uint32_t> id;
  const int failure = text.empty() ? 0 : kind.find(text, id);
  if (id) return *id;
  const std::string named = std::string(kind.word) + " '" + Escape(text) + "'";
  if (MeansNoSuchName(failure)) return value.At("this node has no " + named);
  Error error = value.At(ErrnoError("look up " + named, failure).message);
  error.code = Code::kUnavailable;
  error.os_code = failure;
  return error;
}

Result<std::optional<std::vector<std::uint32_t>>> ReadIds(const YamlMapping& mapping,
                                                          std::string_view key, const Kind& kind) {
  const std::optional<YamlValue> list = mapping.Find(key);
  if (!list) return std::optional<std::vector<std::uint32_t>>();
  STICKY_ASSIGN(const std::vector<YamlValue> values, list->List(kAccessIdsMax));
  std::vector<std::uint32_t> ids;
  for (const YamlValue& value : values) {
    STICKY_ASSIGN(const std::uint32_t id, ReadId(value, kind));
    ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return std::optional<std::vector<std::uint32_t>>(std::move(ids));
}

}  // namespace

Result<std::optional<std::vector<std::uint32_t>>> ReadUsers(const YamlMapping& mapping,
                                                            std::string_view key) {
  return ReadIds(mapping, key, {"user", FindUser});
}

Result<std::optional<std::vector<std::uint32_t>>> ReadGroups(const YamlMapping& mapping,
                                                             std::string_view key) {
  return ReadIds(mapping, key, {"group", FindGroup});
}

Result<AccessMode> ReadMode(const YamlMapping& mapping, std::string_view key,
                            AccessMode otherwise) {
  STICKY_ASSIGN(const auto text, mapping.Text(key));
  if (!text) return otherwise;
  for (int i = 0; i < kAccessModeCount; ++i) {
    const auto mode = static_cast<AccessMode>(i);
    if (*text == Name(mode)) return mode;
  }
  return mapping.Find(key)->Wants("owner, group or node");
}

}  // namespace sticky::config
