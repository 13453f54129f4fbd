#include "tools/stickyctl/user_names.h"

#include <array>
#include <map>

#include <pwd.h>

#include "tools/stickyctl/text_table.h"

namespace sticky::stickyctl {
namespace {

constexpr std::size_t kNameColumnsMax = 32;

std::string LookUp(std::uint32_t uid) {
  std::array<char, 16384> text{};
  passwd entry{};
  passwd* found = nullptr;
  const int failure = ::getpwuid_r(uid, &entry, text.data(), text.size(), &found);
  if (failure != 0 || found == nullptr || *found->pw_name == '\0') return Number(uid);
  return Cell(found->pw_name, kNameColumnsMax);
}

}  // namespace

UserNames UsersOfThisNode() {
  return [known = std::map<std::uint32_t, std::string>()](std::uint32_t uid) mutable {
    const auto found = known.find(uid);
    if (found != known.end()) return found->second;
    return known.emplace(uid, LookUp(uid)).first->second;
  };
}

}  // namespace sticky::stickyctl
