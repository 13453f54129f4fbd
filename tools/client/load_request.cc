#include "tools/client/load_request.h"

#define XXH_INLINE_ALL
#include <cstring>
#include <utility>

#include <xxhash.h>

#include "base/text.h"
#include "weights/files/resolve.h"

namespace sticky::tools {

Digest DigestOf(const config::Template& made) {
  const XXH128_hash_t hash = XXH3_128bits(made.canonical.data(), made.canonical.size());
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  Digest digest;
  static_assert(sizeof canonical.digest == sizeof digest.bytes);
  std::memcpy(digest.bytes.data(), canonical.digest, sizeof canonical.digest);
  return digest;
}

Result<PreparedLoad> PrepareLoad(const std::string& template_path) {
  STICKY_ASSIGN(const config::Template made, config::LoadTemplate(template_path));
  if (const Status named = wire::CheckStateName(made.name); !named.ok()) {
    return Error{Code::kInvalidArgument, Escape(template_path) + ": " + named.error().message};
  }
  STICKY_ASSIGN(std::vector<weights::OpenFile> found, weights::ResolveModel(made.source_path));
  PreparedLoad prepared;
  prepared.request.state = made.name;
  prepared.request.template_digest = DigestOf(made);
  prepared.request.source = made.source_path;
  prepared.request.dtype = made.dtype;
  prepared.request.pin = made.pin;
  prepared.request.huge_pages = made.huge_pages;
  prepared.request.file_count = static_cast<std::uint32_t>(found.size());
  for (weights::OpenFile& file : found) {
    const auto role = file.is_weights ? wire::FileRole::kWeights : wire::FileRole::kAsset;
    prepared.files.push_back({file.name, role, file.size_bytes});
    prepared.fds.push_back(std::move(file.fd));
  }
  return prepared;
}

}  // namespace sticky::tools
