// Staleness: whether the files that a state was loaded from are still those that are there now. A
// state is a copy and stays what it was; a load of today would give another one.
//
// Thread: any thread.
// Source: docs/stickyctl.md.

#ifndef STICKY_TOOLS_STICKYCTL_STALENESS_H_
#define STICKY_TOOLS_STICKYCTL_STALENESS_H_

#include <cstdint>
#include <span>
#include <string>

#include "flatbuffers/wire_manifest.h"
#include "weights/files/resolve.h"

namespace sticky::stickyctl {

struct Staleness {
  enum class Verdict : std::int8_t { kUnknown = 0, kFresh, kStale };
  Verdict verdict = Verdict::kUnknown;
  std::string reason;  // untrusted text; empty when fresh, or when there is no manifest yet
};

// "yes", "no", "unknown". The text is static.
const char* Name(Staleness::Verdict verdict);

// Compares names, sizes and times of change, as make does: a file that was replaced by one of the
// same size and time is not noticed. `files`: what a load would open now.
Staleness CompareSources(const wire::ManifestView& manifest,
                         std::span<const weights::OpenFile> files);

// Finds the model's files at `source`, the path that the load named, with the rights of whoever
// asks, and compares them. Files that are gone make a state stale; those that cannot be looked at
// leave it unknown.
// Blocking: for as long as the file system takes to open the model's files and read its index.
Staleness CheckSources(const wire::ManifestView& manifest, const std::string& source);

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_STALENESS_H_
