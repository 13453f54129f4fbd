// The one function of an engine module, by which a program enters it.
//
// Thread: any thread.

#ifndef STICKY_ENGINE_MODULE_ENTRY_H_
#define STICKY_ENGINE_MODULE_ENTRY_H_

#include "engine/ops.h"

namespace sticky::engine {

// Raised whenever Ops changes: program and module must agree on it.
inline constexpr int kModuleVersion = 3;
inline constexpr const char* kModuleEntryName = "sticky_engine_open";

// thread_count: 0 for as many as the process may run on. Returns null for another version; the
// caller owns the result.
using ModuleEntry = Ops* (*)(int version, int thread_count);

}  // namespace sticky::engine

#endif  // STICKY_ENGINE_MODULE_ENTRY_H_
