// ModelLook: what a model's files are and what a load would make of them, from their headers alone:
// nothing is loaded, and no daemon asked.
//
// Thread: one thread at a time.

#ifndef STICKY_TOOLS_STICKYCTL_MODEL_LOOK_H_
#define STICKY_TOOLS_STICKYCTL_MODEL_LOOK_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/load/fd_byte_source.h"
#include "daemon/load/load_model.h"
#include "weights/byte_source.h"
#include "weights/files/open_file.h"
#include "weights/load_plan.h"

namespace sticky::stickyctl {

// Opened files, as weights/ reads them. Owns their descriptors.
class ReadableFiles {
 public:
  explicit ReadableFiles(std::vector<weights::OpenFile> files);
  std::span<const weights::SourceFile> files() const { return files_; }

 private:
  std::vector<std::unique_ptr<load::FdByteSource>> sources_;
  std::vector<weights::SourceFile> files_;  // in the order given
};

struct DtypeShare {
  std::string dtype;  // "bf16", "q4_1"
  std::uint32_t tensor_count = 0;
  std::uint64_t size_bytes = 0;
};

struct ModelLook {
  std::string format;              // "GGUF", "safetensors"
  std::string architecture;        // "llama"; empty: no language model, tensors as they are
  int context_length = 0;          // positions; of a language model
  std::uint32_t tensor_count = 0;  // of the state; tied ones count, and take no bytes
  std::vector<DtypeShare> stored;  // in the files, largest first
  std::vector<DtypeShare> arena;   // in the state, largest first
  std::uint64_t arena_bytes = 0;
  std::vector<std::string> notes;  // untrusted text
};

// Reads and checks every header of the model that `files` are.
// Errors: as weights::PlanLoad. Blocking: for as long as the file system takes.
Result<ModelLook> LookAtModel(std::span<const weights::SourceFile> files,
                              const weights::PlanOptions& options);

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_MODEL_LOOK_H_
