// Opens an engine module (engine/cpu, later engine/cuda) at run time, so that a process pays for
// the one it uses, and OpenMP's settings are made before its library loads.
//
// Thread: OpenModule before any other thread is started: it may set environment variables.

#ifndef STICKY_ENGINE_MODULE_H_
#define STICKY_ENGINE_MODULE_H_

#include <memory>
#include <string>

#include "base/result.h"
#include "engine/ops.h"

namespace sticky::engine {

struct ModuleOptions {
  int thread_count = 0;   // 0: as many as the process may run on
  std::string directory;  // where modules are; empty: ../lib/stickyinvoc beside the program
};

// Loads the module "cpu" and makes its Ops. The module stays loaded until the process ends.
// Errors: kNotFound when there is no such module, with the path tried; kInvalidArgument when it was
//   built for another version.
Result<std::unique_ptr<Ops>> OpenModule(const std::string& name, const ModuleOptions& options);

}  // namespace sticky::engine

#endif  // STICKY_ENGINE_MODULE_H_
