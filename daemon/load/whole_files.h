// Files that are kept as they are, each in an arena of its own: the body of a file state.
//
// Thread: FillWholeFiles uses worker threads of its own and returns when they have ended.
// Source: docs/file-states.md.

#ifndef STICKY_DAEMON_LOAD_WHOLE_FILES_H_
#define STICKY_DAEMON_LOAD_WHOLE_FILES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/digest.h"
#include "base/result.h"
#include "daemon/load/load_model.h"
#include "weights/byte_source.h"

namespace sticky::load {

// Sizes of the arenas for `files`, bytes: of each that is not empty, in order. Where all are empty,
// one small arena: no state is without.
std::vector<std::uint64_t> WholeFileArenas(std::span<const weights::SourceFile> files);

// Copies every file into its arena. arenas: memory of the sizes that WholeFileArenas says. The
// content digest is that of WholeFilesDigest. Proves what FillArena does, of each file.
// Errors: as FillArena; `arenas` are then half-written.
Result<FillResult> FillWholeFiles(std::span<const weights::SourceFile> files,
                                  std::span<const std::span<std::uint8_t>> arenas,
                                  const FillOptions& options);

// xxh3-128 over, for each file in order: the length of its name and the name, its size, and the
// digest of its bytes as DigestArena takes it; numbers as 8 bytes, lowest first.
// contents: one for each file.
Digest WholeFilesDigest(std::span<const weights::SourceFile> files,
                        std::span<const Digest> contents);

}  // namespace sticky::load

#endif  // STICKY_DAEMON_LOAD_WHOLE_FILES_H_
