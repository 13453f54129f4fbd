// The coordinator's part in builds: arenas for a builder, made present by a child, and the commit.

#include <utility>

#include "base/deadline.h"
#include "base/text.h"
#include "daemon/io/coordinator.h"
#include "flatbuffers/wire_blob.h"

namespace sticky::daemon {
namespace {

// The table that came with a commit, held against the arenas that the builder was given.
// Errors: kCorrupt, kInvalidArgument.
Result<wire::Manifest> CheckDraft(const ForeignFds& fds, const std::string& state,
                                  const std::vector<device::HostArena>& arenas) {
  if (fds.size() != 1) {
    return Error{Code::kInvalidArgument, "it came without its table of tensors and assets"};
  }
  STICKY_ASSIGN(const wire::SealedView view,
                wire::SealedView::Map(fds.get(0), wire::kManifestBytesMax));
  STICKY_ASSIGN(wire::Manifest draft, wire::DecodeManifest(view.bytes()));
  if (draft.state != state) {
    return Error{Code::kInvalidArgument, "its table is of another state, '" + draft.state + "'"};
  }
  bool same = draft.arena_bytes.size() == arenas.size();
  for (std::size_t i = 0; same && i < arenas.size(); ++i) {
    same = draft.arena_bytes[i] == arenas[i].size_bytes();
  }
  if (!same) return Error{Code::kInvalidArgument, "its table has other arenas than it was given"};
  draft.sources.clear();
  draft.notes.clear();
  return draft;
}

}  // namespace

void Coordinator::OnCommit(ConnectionId id, Client& client, const wire::Message& message,
                           const ForeignFds& fds) {
  const auto& request = std::get<wire::BuildCommitRequest>(message.body);
  const std::optional<BuildInfo> build = core_.BuildOf(id);
  std::uint32_t tensor_count = 0;
  if (build) {
    Held& held = held_[build->state];
    Result<wire::Manifest> draft = CheckDraft(fds, build->name, held.arenas);
    if (!draft.ok()) {
      Error error = draft.error();
      error.message = "commit '" + build->name + "': " + error.message;
      return Answer(client, message.request_id, error);
    }
    tensor_count = static_cast<std::uint32_t>(draft.value().tensors.size());
    held.draft = std::move(draft).value();
  }
  Do(core_.CommitAsked(id, message.request_id, request, tensor_count, MonotonicNs()));
}

Result<LoaderProcess*> Coordinator::HelperOf(StateId id) {
  if (const auto found = loaders_.find(id); found != loaders_.end()) return found->second.get();
  STICKY_ASSIGN(loaders_[id], LoaderProcess::StartHelper(loop_, closer_, options_.loader_program,
                                                         CallbacksFor(id)));
  return loaders_[id].get();
}

Status Coordinator::MakeArenaForBuilder(const MakeBuildArena& action) {
  STICKY_ASSIGN(LoaderProcess* const helper, HelperOf(action.state));
  STICKY_ASSIGN(device::HostArena arena,
                device::HostArena::Create("build", action.arena_bytes, /*want_huge=*/false));
  Held& held = held_[action.state];
  held.arenas.push_back(std::move(arena));
  return helper->Prefault(held.arenas.back().fd(), action.arena_bytes);
}

void Coordinator::Perform(MakeBuildArena& action) {
  const Status made = MakeArenaForBuilder(action);
  if (made.ok()) return;
  Queue(core_.LoaderFailed(action.state, made.error(), MonotonicNs()));
  if (const auto none = loaders_.find(action.state); none != loaders_.end() && none->second) return;
  loaders_.erase(action.state);
  Queue(core_.LoaderGone(action.state, MonotonicNs()));
}

Status Coordinator::SealArenas(Held& held) {
  for (device::HostArena& arena : held.arenas) {
    if (!arena.sealed()) STICKY_TRY(arena.Seal());
  }
  return Ok{};
}

Status Coordinator::DigestBuild(StateId id) {
  STICKY_ASSIGN(LoaderProcess* const helper, HelperOf(id));
  std::vector<int> fds;
  wire::DigestRequest request;
  for (const device::HostArena& arena : held_[id].arenas) {
    fds.push_back(arena.fd());
    request.arena_bytes.push_back(arena.size_bytes());
  }
  return helper->Digest(fds, request);
}

void Coordinator::Perform(CommitBuild& action) {
  const Status sealed = SealArenas(held_[action.state]);
  if (!sealed.ok() && sealed.error().code == Code::kUnavailable) {
    return Queue(core_.BuildNotSealed(action.state, sealed.error(), MonotonicNs()));
  }
  const Status asked = sealed.ok() ? DigestBuild(action.state) : sealed;
  if (!asked.ok()) Queue(core_.LoaderFailed(action.state, asked.error(), MonotonicNs()));
}

}  // namespace sticky::daemon
