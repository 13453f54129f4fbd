#include "engine/module.h"

#include <cstdlib>

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include "base/text.h"
#include "engine/module_entry.h"

namespace sticky::engine {
namespace {

std::string DefaultDirectory() {
  if (const char* const named = std::getenv("STICKYINVOC_ENGINE_DIR"); named != nullptr) {
    return named;
  }
  std::string path(4096, '\0');
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  path.resize(static_cast<std::size_t>(length > 0 ? length : 0));
  return path.substr(0, path.rfind('/')) + "/../lib/stickyinvoc";
}

}  // namespace

Result<std::unique_ptr<Ops>> OpenModule(const std::string& name, const ModuleOptions& options) {
  // libgomp reads these once, when it is loaded. Without them its threads spin between two tokens
  // and take the CPU from the node's other tasks. What the user has set stays.
  // NOLINTBEGIN(concurrency-mt-unsafe): programs open modules before they have threads.
  ::setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/0);
  ::setenv("GOMP_SPINCOUNT", "0", /*overwrite=*/0);
  // NOLINTEND(concurrency-mt-unsafe)
  const std::string directory = options.directory.empty() ? DefaultDirectory() : options.directory;
  const std::string path = directory + "/engine_" + name + ".so";
  void* const module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    return Error{Code::kNotFound, "open engine module '" + Escape(path) +
                                      "': " + Printable(::dlerror()) +
                                      "; STICKYINVOC_ENGINE_DIR names another folder"};
  }
  const auto entry = reinterpret_cast<ModuleEntry>(::dlsym(module, kModuleEntryName));
  Ops* const ops = entry == nullptr ? nullptr : entry(kModuleVersion, options.thread_count);
  if (ops == nullptr) {
    return Error{Code::kInvalidArgument,
                 "open engine module '" + Escape(path) + "': it was built for another version"};
  }
  return std::unique_ptr<Ops>(ops);
}

}  // namespace sticky::engine
