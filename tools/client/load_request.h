// From a template to the request that makes the daemon build it: the requester's half of a load.
//
// Thread: any thread.

#ifndef STICKY_TOOLS_CLIENT_LOAD_REQUEST_H_
#define STICKY_TOOLS_CLIENT_LOAD_REQUEST_H_

#include <string>
#include <vector>

#include "base/digest.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "config/template.h"
#include "flatbuffers/wire_codec.h"

namespace sticky::tools {

struct PreparedLoad {
  wire::LoadRequest request;  // wait_ms and hold are the caller's to set
  std::vector<wire::SourceFile> files;
  std::vector<UniqueFd> fds;  // one a file, in order
};

// Reads the template, finds and opens the model's files as this user.
// Errors: as config::LoadTemplate and weights::ResolveModel; kInvalidArgument for a state name that
//   is none.
Result<PreparedLoad> PrepareLoad(const std::string& template_path);

// xxh3-128 of the template's canonical text.
Digest DigestOf(const config::Template& made);

}  // namespace sticky::tools

#endif  // STICKY_TOOLS_CLIENT_LOAD_REQUEST_H_
