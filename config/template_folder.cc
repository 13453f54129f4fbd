#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include <dirent.h>

#include "base/text.h"
#include "config/template.h"

namespace sticky::config {
namespace {

constexpr std::string_view kEnding = ".yaml";

// The paths of the folder's *.yaml files, sorted.
Result<std::vector<std::string>> ListTemplates(const std::string& folder) {
  const std::string doing = "list the templates of '" + Escape(folder) + "'";
  DIR* const directory = ::opendir(folder.c_str());
  if (directory == nullptr) {
    Error error = ErrnoError(doing, errno);
    if (error.os_code == ENOTDIR) error.code = Code::kInvalidArgument;
    return error;
  }
  std::vector<std::string> paths;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread has this directory.
  while (const dirent* const entry = ::readdir(directory)) {
    const std::string_view name = entry->d_name;
    if (!name.ends_with(kEnding) || name.starts_with('.')) continue;
    paths.push_back(folder + "/" + std::string(name));
    if (paths.size() > kInstalledTemplatesMax) break;
  }
  ::closedir(directory);
  if (paths.size() > kInstalledTemplatesMax) {
    return Error{Code::kInvalidArgument,
                 Format("%s: more than %zu *.yaml files are there; take some away", doing.c_str(),
                        kInstalledTemplatesMax)};
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

Result<std::vector<InstalledTemplate>> LoadTemplateFolder(const std::string& folder) {
  STICKY_ASSIGN(const std::vector<std::string> paths, ListTemplates(folder));
  std::vector<InstalledTemplate> templates;
  std::map<std::string, std::string> path_of;  // by the state's name
  for (const std::string& path : paths) {
    Result<Template> made = LoadTemplate(path);
    if (made.ok()) {
      const auto [taken, is_first] = path_of.emplace(made.value().name, path);
      if (!is_first) {
        made = Error{Code::kInvalidArgument, Escape(path) + ": state '" + made.value().name +
                                                 "' is what '" + Escape(taken->second) +
                                                 "' describes already; give it another name"};
      }
    }
    templates.push_back({path, std::move(made)});
  }
  return templates;
}

}  // namespace sticky::config
