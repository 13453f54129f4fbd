#include "daemon/io/inherited.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <fcntl.h>

#include "base/text.h"
#include "daemon/io/notify.h"

namespace sticky::daemon {
namespace {

constexpr int kListenFdsStart = 3;

int Count() {
  const char* const count = std::getenv("LISTEN_FDS");
  if (count == nullptr || std::getenv("LISTEN_PID") == nullptr || !IsForUs("LISTEN_PID")) return 0;
  return static_cast<int>(std::clamp(std::strtol(count, nullptr, 10), 0L, long{kInheritedMax}));
}

// The names of `count` descriptors; empty ones for those that have none.
std::vector<std::string> Names(int count) {
  const char* const joined = std::getenv("LISTEN_FDNAMES");
  std::vector<std::string> names;
  std::string_view rest = joined == nullptr ? "" : joined;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    names.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  names.resize(static_cast<std::size_t>(count));
  return names;
}

}  // namespace

Inherited TakeInherited() {
  Inherited out;
  const int count = Count();
  const std::vector<std::string> names = Names(count);
  for (int i = 0; i < count; ++i) {
    UniqueFd fd(kListenFdsStart + i);
    if (::fcntl(fd.get(), F_SETFD, FD_CLOEXEC) != 0) {  // it is not open
      static_cast<void>(fd.Release());
      continue;
    }
    const std::string& name = names[static_cast<std::size_t>(i)];
    if (name.starts_with(kKeptPrefix)) {
      out.kept[name].push_back(std::move(fd));
    } else if (!out.socket.valid()) {
      out.socket = std::move(fd);
    }
  }
  for (const char* const variable : {"LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID"}) {
    ::unsetenv(variable);  // NOLINT(concurrency-mt-unsafe): there is no second thread yet
  }
  return out;
}

}  // namespace sticky::daemon
