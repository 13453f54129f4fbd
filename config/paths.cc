#include "config/paths.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include <pwd.h>
#include <unistd.h>

#include "base/text.h"

namespace sticky::config {
namespace {

std::optional<std::string> HomeFolder() {
  if (const char* const home = std::getenv("HOME"); home != nullptr && home[0] == '/') return home;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): whoever reads a template has one thread.
  const passwd* const entry = ::getpwuid(::geteuid());
  if (entry == nullptr || entry->pw_dir == nullptr) return std::nullopt;
  return entry->pw_dir;
}

// Expands a leading ~/ and every ${NAME}. Errors: the text that could not be expanded.
Result<std::string> ExpandPath(const std::string& text) {
  std::string out;
  std::size_t at = 0;
  if (text.starts_with('~') && text.size() > 1 && text[1] != '/') {
    return Error{Code::kInvalidArgument,
                 "'" + Escape(text) +
                     "': of home folders only your own (~/) is known; write the "
                     "whole path, or ./~ for a name that begins so"};
  }
  if (text.starts_with('~')) {
    const std::optional<std::string> home = HomeFolder();
    if (!home) return Error{Code::kInvalidArgument, "'~': there is no home folder"};
    out = *home;
    at = 1;
  }
  while (at < text.size()) {
    if (text.compare(at, 2, "${") != 0) {
      out += text[at++];
      continue;
    }
    const std::size_t end = text.find('}', at);
    if (end == std::string::npos) {
      return Error{Code::kInvalidArgument, "'" + Escape(text) + "': '${' without '}'"};
    }
    const std::string name = text.substr(at + 2, end - at - 2);
    const char* const value = std::getenv(name.c_str());
    if (name.empty() || value == nullptr) {
      return Error{Code::kInvalidArgument,
                   "'" + Escape(text) + "': variable '" + Escape(name) + "' is not set"};
    }
    out += value;
    at = end + 1;
  }
  return out;
}

// Without the parts of a path that change nothing: "./" and doubled slashes. Links keep "a/.." from
// being one of them.
std::string Tidy(const std::string& path) {
  std::string out;
  std::size_t at = 0;
  while (at < path.size()) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string part = path.substr(at, end - at);
    if (!part.empty() && part != ".") out += "/" + part;
    at = end + 1;
  }
  return out.empty() ? "/" : out;
}

}  // namespace

Result<std::string> AbsolutePath(const std::string& text, const std::string& directory) {
  STICKY_ASSIGN(const std::string path, ExpandPath(text));
  return Tidy(path.starts_with('/') ? path : directory + "/" + path);
}

}  // namespace sticky::config
