// The requester's half of a build: who may use the state that a command will make, and what the
// recipe is that says whether it is there already.
//
// Thread: any thread.
// Source: docs/builders.md.

#ifndef STICKY_TOOLS_CLIENT_PREPARE_BUILD_H_
#define STICKY_TOOLS_CLIENT_PREPARE_BUILD_H_

#include <optional>
#include <string>
#include <vector>

#include "base/digest.h"
#include "flatbuffers/wire_codec.h"
#include "tools/client/outcome.h"

namespace sticky::client {

struct BuildWish {
  std::optional<std::string> name = {};  // absent: as the template names it
  std::optional<std::string> template_path = {};
  std::optional<std::string> base = {};
  wire::Placement placement = wire::Placement::kJoin;
  std::vector<std::string> command;  // at least one word
};

// A request of them, but for its template_digest, which needs the base's own digest.
// Errors: kUsage: a name that cannot be a state's, no name at all; kTemplate with the codes of
//   LoadBuildTemplate, and kInvalidArgument when it names another state.
Outcome<wire::BuildRequest> PrepareBuild(const BuildWish& wish);

// What makes two builds the same: the state's name, the base and its content, the command's words.
// Not the policy, which says how a state lives, nor the bytes of programs and files.
// base_digest: of the base's content; absent without one.
Digest RecipeDigest(const std::string& state, const BuildWish& wish,
                    const std::optional<Digest>& base_digest);

// The command's words with a blank between; of a long one, its first 1000 bytes. Untrusted text.
std::string CommandText(const std::vector<std::string>& words);

}  // namespace sticky::client

#endif  // STICKY_TOOLS_CLIENT_PREPARE_BUILD_H_
