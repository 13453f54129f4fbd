#include "shim/state.h"

#include <utility>

#include <poll.h>
#include <unistd.h>

#include "base/text.h"

namespace sticky::shim {
namespace {

using LongUnsigned = unsigned long long;

Error Mismatch(const char* field, std::uint64_t manifest, std::uint64_t reply) {
  return Error{
      Code::kCorrupt,
      Format("check identity: %s is %llu in the manifest and %llu in the daemon's reply", field,
             static_cast<LongUnsigned>(manifest), static_cast<LongUnsigned>(reply))};
}

Status CheckIdentity(std::string_view name, const wire::ManifestView& manifest,
                     const State::Lease& lease) {
  if (manifest.state() != name) {
    return Error{Code::kCorrupt,
                 "check identity: the manifest is of state '" + Escape(manifest.state()) + "'"};
  }
  if (manifest.device() != "host") {
    return Error{Code::kUnavailable, "check device: the state is on '" + Escape(manifest.device()) +
                                         "', and this libstickyinvoc knows 'host' only; use a "
                                         "newer one"};
  }
  if (!manifest.content_digest().has_value()) {
    return Error{Code::kCorrupt, "check identity: the manifest has no content digest"};
  }
  if (lease.epoch.has_value() && *lease.epoch != manifest.epoch()) {
    return Mismatch("the epoch", manifest.epoch(), *lease.epoch);
  }
  if (manifest.arena_count() != lease.arenas.size()) {
    return Error{Code::kCorrupt, Format("check identity: %zu arenas came, the manifest has %u",
                                        lease.arenas.size(), manifest.arena_count())};
  }
  for (std::uint32_t i = 0; i < lease.arena_bytes.size(); ++i) {
    if (lease.arena_bytes[i] != manifest.arena_bytes(i)) {
      return Mismatch("the size of an arena", manifest.arena_bytes(i), lease.arena_bytes[i]);
    }
  }
  return Ok{};
}

Status CheckDigest(const Digest& found, const std::optional<Digest>& wanted) {
  if (!wanted.has_value() || *wanted == found) return Ok{};
  return Error{Code::kCorrupt, "check digest: the state's content is " + ToHex(found) +
                                   ", asked for was " + ToHex(*wanted)};
}

}  // namespace

Result<State> State::Open(std::string_view name, const std::optional<Digest>& digest, Lease lease) {
  STICKY_ASSIGN(wire::SealedView bytes,
                wire::SealedView::Map(lease.manifest.get(), wire::kManifestBytesMax));
  STICKY_ASSIGN(const wire::ManifestView manifest, wire::ManifestView::Open(bytes.bytes()));
  STICKY_TRY(CheckIdentity(name, manifest, lease));
  STICKY_TRY(CheckDigest(*manifest.content_digest(), digest));

  State state(std::move(bytes), manifest);
  state.arenas_.reserve(lease.arenas.size());
  for (std::uint32_t i = 0; i < lease.arenas.size(); ++i) {
    // All of the file, which is larger than the arena when it is made of huge pages.
    STICKY_ASSIGN(wire::SealedView arena,
                  wire::SealedView::Map(lease.arenas[i].get(), wire::kArenaBytesMax));
    if (arena.bytes().size() < manifest.arena_bytes(i)) {
      return Error{Code::kCorrupt, Format("map arena %u: it has %zu bytes, the manifest says %llu",
                                          i, arena.bytes().size(),
                                          static_cast<LongUnsigned>(manifest.arena_bytes(i)))};
    }
    state.arenas_.push_back(std::move(arena));
  }
  state.connection_ = std::move(lease.connection);
  state.pid_ = ::getpid();
  state.lease_id_ = lease.lease_id;
  state.adopted_ = lease.adopted;
  return state;
}

bool State::connected() const {
  pollfd connection{connection_.get(), POLLRDHUP, 0};
  return ::poll(&connection, 1, /*timeout=*/0) == 0;
}

std::uint64_t State::arena_bytes() const {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < manifest_.arena_count(); ++i) sum += manifest_.arena_bytes(i);
  return sum;
}

}  // namespace sticky::shim
