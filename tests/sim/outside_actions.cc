// What the core asks for, done on the model.

#include <utility>
#include <variant>

#include "base/text.h"
#include "tests/sim/invariants.h"
#include "tests/sim/outside.h"
#include "tests/sim/trace.h"

namespace sticky::daemon::sim {
namespace {

unsigned long long Ull(std::uint64_t value) { return value; }

Error Refusal(const char* why) { return Error{Code::kUnavailable, why}; }

}  // namespace

// --- answers ------------------------------------------------------------------------------------

bool Outside::MayHandOut(const Send& action) {
  if (action.attachment == Attachment::kNone) return true;
  const Held* const held = model_.FindHeld(action.state);
  if (held == nullptr) return false;
  if (action.attachment != Attachment::kBuildArena) return held->is_published;
  return !model_.memories.at(held->memory).is_sealed;
}

void Outside::Perform(const Send& action) {
  if (!MayHandOut(action)) {
    return model_.Fail(Invariant::kPublishedOnly, TextOf(Action(action)));
  }
  if (!model_.clients.contains(action.to.value)) {
    return model_.Fail(Invariant::kDeadPeer, TextOf(Action(action)));
  }
  const auto found = model_.open.find({action.to.value, action.message.request_id});
  if (found == model_.open.end()) {
    return model_.Fail(Invariant::kOneAnswer,
                       "an answer to nothing, or another one: " + TextOf(Action(action)));
  }
  if (std::holds_alternative<wire::LoadProgress>(action.message.body)) return;
  CheckToldIsKept(model_, action, found->second);
  model_.open.erase(found);
  HandOut(action);
}

void Outside::HandOut(const Send& action) {
  constexpr std::uint64_t kLendsAFailure = 30;
  const Held* const held = model_.FindHeld(action.state);
  if (action.attachment == Attachment::kBuildArena) {
    model_.mappings.push_back({held->memory, action.to.value, /*is_writable=*/true});
  }
  if (action.attachment != Attachment::kState) return;
  const State& state = model_.core->states().at(action.state);
  const Peer& peer = model_.clients.at(action.to.value).peer;
  if (!MayUse(peer, state.ownership(), kOurUid)) {
    model_.Fail(Invariant::kMayUse, Format("user %u gets '%s'", peer.uid, state.name.c_str()));
  }
  if (std::get<wire::AttachReply>(action.message.body).epoch != held->epoch) {
    model_.Fail(Invariant::kPublishedOnly, "another epoch than was told");
  }
  if (model_.OneIn(kLendsAFailure)) {
    return Queue(model_.core->LendFailed(action.lease, model_.now_ns));
  }
  ++model_.counts.attached;
  model_.mappings.push_back({held->memory, action.to.value, /*is_writable=*/false});
}

// --- loads --------------------------------------------------------------------------------------

void Outside::Perform(const DropBundle& action) {
  if (model_.bundles.erase(action.bundle) == 1) return;
  model_.Fail(Invariant::kOneAnswer, "files are closed twice");
}

void Outside::Perform(const StartRequester& action) {
  model_.requesters[action.state] = {model_.core->states().at(action.state).name, {}};
}

void Outside::Perform(const StartLoader& action) {
  constexpr std::uint64_t kStartsAFailure = 50;
  model_.bundles.erase(action.bundle);
  if (model_.OneIn(kStartsAFailure)) {
    Queue(model_.core->LoaderFailed(action.state, Refusal("sim: no process"), model_.now_ns));
    return Queue(model_.core->LoaderGone(action.state, model_.now_ns));
  }
  model_.loaders[action.state] = {};
}

Held& Outside::Allocate(StateId id, std::uint64_t bytes) {
  Held& held = model_.held[id];
  if (held.memory == 0) {
    held.memory = model_.next_memory++;
    model_.memories[held.memory] = {};
  }
  held.bytes += bytes;
  if (model_.UsedBytes() > model_.core->budget_bytes()) {
    model_.Fail(Invariant::kWithinBudget,
                Format("%llu of %llu bytes are used when %llu are allocated for #%llu",
                       Ull(model_.UsedBytes()), Ull(model_.core->budget_bytes()), Ull(bytes),
                       Ull(id.value)));
  }
  return held;
}

void Outside::Perform(const AllocateArena& action) {
  constexpr std::uint64_t kAllocationsAFailure = 50;
  Allocate(action.state, action.arena_bytes);
  const auto loader = model_.loaders.find(action.state);
  const bool is_there = loader != model_.loaders.end();
  if (!is_there || model_.OneIn(kAllocationsAFailure)) {
    const Error error = Refusal(is_there ? "sim: no memory" : "sim: the loader is gone");
    return Queue(model_.core->LoaderFailed(action.state, error, model_.now_ns));
  }
  if (loader->second.step == Loader::Step::kPlanned) loader->second.step = Loader::Step::kFilling;
  Queue(model_.core->ArenaAllocated(action.state, "none", model_.now_ns));
}

void Outside::Perform(const MakeBuildArena& action) {
  constexpr std::uint64_t kArenasAFailure = 50;
  Allocate(action.state, action.arena_bytes);
  if (model_.OneIn(kArenasAFailure)) {
    Queue(model_.core->LoaderFailed(action.state, Refusal("sim: no memory"), model_.now_ns));
    if (model_.loaders.contains(action.state)) return;
    return Queue(model_.core->LoaderGone(action.state, model_.now_ns));
  }
  Loader& helper = model_.loaders[action.state];
  helper.step = Loader::Step::kPrefaulting;
}

void Outside::Perform(const CommitBuild& action) {
  const auto held = model_.held.find(action.state);
  if (held == model_.held.end()) {
    return model_.Fail(Invariant::kPublishedOnly, "a build without memory is committed");
  }
  if (model_.IsMapped(held->second.memory, /*writable_only=*/true)) {
    const Error error = Refusal("sim: somebody maps it writable");
    return Queue(model_.core->BuildNotSealed(action.state, error, model_.now_ns));
  }
  model_.memories.at(held->second.memory).is_sealed = true;
  const auto helper = model_.loaders.find(action.state);
  if (helper == model_.loaders.end()) {
    return Queue(model_.core->LoaderFailed(action.state, Refusal("sim: no helper"), model_.now_ns));
  }
  helper->second.step = Loader::Step::kFilling;
}

void Outside::Perform(const KillLoader& action) {
  Kill(action.state);
  if (model_.failed.insert(action.state).second) return;
  model_.Fail(Invariant::kOneAnswer, Format("load #%llu fails again", Ull(action.state.value)));
}

void Outside::Kill(StateId id) {
  if (const auto loader = model_.loaders.find(id); loader != model_.loaders.end()) {
    loader->second.is_killed = true;
    loader->second.step = Loader::Step::kEnded;  // its last words are not listened to
  }
  const auto requester = model_.requesters.find(id);
  if (requester != model_.requesters.end()) requester->second.is_killed = true;
}

// --- the end of a state -------------------------------------------------------------------------

void Outside::Perform(const AskBorrowers& action) {
  const StateId id = action.state;
  const Held* const held = model_.FindHeld(id);
  if (held == nullptr) return Queue(model_.core->Borrowers(id, /*any=*/false, model_.now_ns));
  bool is_borrowed = model_.IsMapped(held->memory);
  if (!is_borrowed && kept_.contains(held->epoch)) {
    Forget(held->epoch);
    const Forgetting forgetting{id, held->epoch};
    model_.forgettings.push_back(forgetting);
    if (model_.OneIn(2)) return;  // it takes the keeper a while
    model_.forgettings.pop_back();
    return EndForgetting(forgetting);
  }
  if (!is_borrowed && leaving_.contains(held->epoch)) return;  // told when it is gone
  if (is_borrowed && saboteur_.Strikes(Fault::kDenyBorrowers)) is_borrowed = false;
  Queue(model_.core->Borrowers(id, is_borrowed, model_.now_ns));
}

void Outside::Perform(const FreeArena& action) {
  const StateId id = action.state;
  const auto found = model_.held.find(id);
  if (found == model_.held.end()) return;
  const Held held = found->second;
  const std::uint32_t leases = model_.core->leases().CountOn(id);
  if (leases > 0 || model_.IsMapped(held.memory)) {
    return model_.Fail(Invariant::kNotInUse,
                       Format("#%llu is freed, with %u leases%s", Ull(id.value), leases,
                              leases > 0 ? "" : " and mapped"));
  }
  if (kept_.contains(held.epoch)) {
    Forget(held.epoch);
    leaving_.erase(held.epoch);
  }
  const bool may_be_filled = model_.loaders.contains(id) && !held.is_published;
  if (may_be_filled) model_.dying[id] = held.bytes;
  model_.held.erase(found);
  ++model_.counts.freed;
}

}  // namespace sticky::daemon::sim
