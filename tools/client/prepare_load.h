// The requester's half of a load: the template read, the model's files found and opened with the
// credentials of whoever asks.
//
// Thread: any thread.
// Source: docs/templates.md.

#ifndef STICKY_TOOLS_CLIENT_PREPARE_LOAD_H_
#define STICKY_TOOLS_CLIENT_PREPARE_LOAD_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "config/template.h"
#include "flatbuffers/wire_codec.h"
#include "tools/client/outcome.h"
#include "weights/files/resolve.h"

namespace sticky::client {

struct FoundSource {
  config::Template made;
  std::string source;                    // the model's path, or text that lists several
  std::vector<weights::OpenFile> files;  // at most wire::kFileCountMax
};

struct PreparedLoad {
  config::Template made;
  wire::LoadRequest request;             // wait_ms and hold are left to the caller
  std::vector<weights::OpenFile> files;  // request.file_count of them
};

// Reads the template, and finds and opens the files that it names.
// Errors: kTemplate, kModel with the codes of LoadTemplate and weights::Resolve; kModel with
//   kInvalidArgument past wire::kFileCountMax files; kTemplate with kInvalidArgument for more
//   source.files than wire::kArenaCountMax.
Outcome<FoundSource> FindSource(const std::string& template_path);

// Makes a request of them. Errors: as FindSource.
Outcome<PreparedLoad> PrepareLoad(const std::string& template_path);

// Lifts this process's soft limit of descriptors to its hard one while it lives: a model may have
// thousands of files.
class WideDescriptorLimit {
 public:
  WideDescriptorLimit();
  ~WideDescriptorLimit();
  WideDescriptorLimit(const WideDescriptorLimit&) = delete;
  WideDescriptorLimit& operator=(const WideDescriptorLimit&) = delete;

 private:
  unsigned long old_soft_ = 0;  // 0: nothing was changed
};

}  // namespace sticky::client

#endif  // STICKY_TOOLS_CLIENT_PREPARE_LOAD_H_
