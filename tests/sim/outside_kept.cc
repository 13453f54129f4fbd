// The keeper, the end of a daemon and the start of the next one.

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "tests/sim/invariants.h"
#include "tests/sim/outside.h"

namespace sticky::daemon::sim {
namespace {

unsigned long long Ull(std::uint64_t value) { return value; }

wire::StatusReply Facts(std::uint64_t nonce, bool has_keeper) {
  wire::StatusReply facts;
  facts.uid = kOurUid;
  facts.nonce = nonce;
  if (has_keeper) facts.keeper = "sim";
  return facts;
}

// One that is built when the daemon starts, one when somebody attaches, one by hand.
std::vector<Installed> Templates() {
  std::vector<Installed> out(kBuildWhenCount);
  for (int i = 0; i < kBuildWhenCount; ++i) {
    Installed& one = out[static_cast<std::size_t>(i)];
    one.name = Format("s%d", i);
    one.build = static_cast<BuildWhen>(i);
    one.access.mode = AccessMode::kNode;
  }
  return out;
}

}  // namespace

// --- keeping ------------------------------------------------------------------------------------

void Outside::Perform(const Publish& action) {
  constexpr std::uint64_t kSealsAFailure = 20;
  const auto found = model_.held.find(action.state);
  if (found == model_.held.end()) {
    return model_.Fail(Invariant::kPublishedOnly, "a state without memory is published");
  }
  Held& held = found->second;
  Memory& memory = model_.memories.at(held.memory);
  if (action.record.content_digest != memory.content) {
    model_.Fail(Invariant::kPublishedOnly, "another digest than the memory has is published");
  }
  if (model_.OneIn(kSealsAFailure)) {
    const Error error{Code::kUnavailable, "sim: seal"};
    return Queue(model_.core->LoaderFailed(action.state, error, model_.now_ns));
  }
  memory.is_sealed = true;
  Kill(action.state);
  held.epoch = action.record.epoch;
  Keep(action);
}

void Outside::Keep(const Publish& action) {
  constexpr std::uint64_t kStatesNotKept = 6;
  Keeping keeping{action.state, action.record};
  // A full keeper takes no more.
  keeping.cancelled = !model_.keeper.is_there || model_.OneIn(kStatesNotKept);
  if (!keeping.cancelled) kept_.insert(action.record.epoch);
  if (model_.OneIn(2)) Arrive(keeping);
  if (!keeping.cancelled && model_.OneIn(3)) return model_.keepings.push_back(keeping);
  Arrive(keeping);
  EndKeeping(keeping);
}

void Outside::Arrive(Keeping& keeping) {
  if (keeping.cancelled || keeping.arrived) return;
  keeping.arrived = true;
  model_.keeper.states[keeping.record.epoch] = {keeping.record,
                                                model_.held.at(keeping.state).memory};
}

void Outside::EndKeeping(const Keeping& keeping) {
  const auto held = model_.held.find(keeping.state);
  if (held != model_.held.end()) held->second.is_published = true;
  bool is_kept = keeping.arrived && model_.keeper.is_there;
  if (!is_kept) kept_.erase(keeping.record.epoch);
  if (!is_kept && saboteur_.Strikes(Fault::kClaimKept)) is_kept = true;
  ++model_.counts.published;
  Queue(model_.core->Published(keeping.state, is_kept, model_.now_ns));
}

void Outside::Perform(const KeepRecord& action) {
  const std::uint64_t epoch = action.record.epoch;
  if (!model_.keeper.is_there || !kept_.contains(epoch)) return;
  for (Keeping& keeping : model_.keepings) {
    if (keeping.record.epoch == epoch) keeping.record = action.record;
  }
  const auto kept = model_.keeper.states.find(epoch);
  if (kept != model_.keeper.states.end()) kept->second.record = action.record;
}

void Outside::Perform(const KeepNode& action) {
  if (model_.keeper.is_there) model_.keeper.node = action.record;
}

// The keeper lets go of a state: of one that ends, or of one that nobody was told of.
void Outside::Forget(std::uint64_t epoch) {
  kept_.erase(epoch);
  leaving_.insert(epoch);
  for (Keeping& keeping : model_.keepings) {
    if (keeping.record.epoch == epoch) keeping.cancelled = true;
  }
  model_.keeper.states.erase(epoch);
}

void Outside::EndForgetting(const Forgetting& forgetting) {
  leaving_.erase(forgetting.epoch);
  Queue(model_.core->Borrowers(forgetting.state, /*any=*/false, model_.now_ns));
}

void Outside::FlushKeeper() {
  if (!model_.keepings.empty()) {
    Keeping keeping = model_.keepings.front();
    model_.keepings.pop_front();
    Event("the keeper gets epoch %llu", Ull(keeping.record.epoch));
    if (model_.held.contains(keeping.state)) Arrive(keeping);
    EndKeeping(keeping);
  } else if (!model_.forgettings.empty()) {
    const Forgetting forgetting = model_.forgettings.front();
    model_.forgettings.pop_front();
    Event("the keeper has let go of epoch %llu", Ull(forgetting.epoch));
    EndForgetting(forgetting);
  }
  Do({});
}

void Outside::LoseKeeper() {
  Event("the keeper is killed");
  model_.keeper.is_there = false;
  model_.keeper.states.clear();
  for (Keeping& keeping : std::exchange(model_.keepings, {})) EndKeeping(keeping);
  for (const Forgetting& one : std::exchange(model_.forgettings, {})) EndForgetting(one);
  Do({});
}

void Outside::TellKeeperLoss() {
  Event("the daemon notices that its keeper is gone");
  model_.keeper_loss_told = true;
  kept_.clear();
  Do(model_.core->KeeperLost(model_.now_ns));
}

// --- the end ------------------------------------------------------------------------------------

void Outside::Perform(const Stop& action) {
  model_.is_stopping = true;
  if (!action.keep_states) {
    model_.drops_states = true;
    kept_.clear();
    model_.keeper.states.clear();
    model_.keeper.node = {};
  }
  Queue(model_.core->ShutDown(model_.now_ns));
}

void Outside::ShutDown() {
  Event("SIGTERM");
  model_.is_stopping = true;
  Do(model_.core->ShutDown(model_.now_ns));
}

void Outside::SuccessorStarts() {
  Event("the daemon exits after its shutdown");
  Restart();
}

void Outside::Crash() {
  Event("kill the daemon");
  Restart();
}

void Outside::CrashWithin(int actions) { crash_after_ = actions; }

// The daemon's children die with it, and connections break. What is mapped stays mapped.
void Outside::ForgetThisLife() {
  todo_.clear();
  crash_after_.reset();
  kept_.clear();
  leaving_.clear();
  model_.clients.clear();
  model_.open.clear();
  model_.held.clear();
  model_.dying.clear();
  model_.loaders.clear();
  model_.requesters.clear();
  model_.failed.clear();
  model_.bundles.clear();
  model_.keepings.clear();
  model_.forgettings.clear();
  model_.is_stopping = model_.drops_states = model_.keeper_loss_told = false;
  for (Mapping& mapping : model_.mappings) mapping.connection = 0;
  std::set<MemoryId> alive;
  if (!model_.keeper.is_there) model_.keeper = {};
  for (const auto& [epoch, kept] : model_.keeper.states) alive.insert(kept.memory);
  std::erase_if(model_.memories, [&](const auto& entry) { return !alive.contains(entry.first); });
}

void Outside::Restart() {
  ForgetThisLife();
  ++model_.counts.restarts;
  TakeOver();
}

void Outside::TakeOver() {
  constexpr std::uint64_t kForeignBytes = 90;
  const std::map<std::uint64_t, Kept> before = model_.keeper.states;
  model_.foreign_bytes = model_.OneIn(5) ? kForeignBytes : 0;
  const wire::StatusReply facts = Facts(1 + model_.counts.restarts, model_.keeper.is_there);
  model_.core = std::make_unique<NodeState>(model_.limits, facts, model_.now_ns, /*wall_ms=*/0);
  std::uint64_t epoch_max = 0;
  for (const auto& [epoch, kept] : before) {
    epoch_max = epoch;
    kept_.insert(epoch);
    if (saboteur_.Strikes(Fault::kLoseKept)) continue;
    wire::StateRecord record = kept.record;
    if (record.ending && saboteur_.Strikes(Fault::kReviveEnding, 1)) record.ending = false;
    if (saboteur_.Strikes(Fault::kWrongDigest)) record.content_digest = Digest{};
    const StateId id = model_.core->Adopt(record, model_.now_ns);
    model_.held[id] = {kept.memory, record.arena_bytes, epoch, /*is_published=*/true};
  }
  CheckTakenOver(model_, before);
  if (model_.violation) return;
  Do(model_.core->Adopted(
      {model_.keeper.node, model_.foreign_bytes > 0, model_.foreign_bytes, epoch_max},
      model_.now_ns));
  CheckTakenOver(model_, before);
  model_.counts.taken_over += before.size();
  if (model_.violation) return;
  Do(model_.core->Install(Templates(), kOurUid, model_.now_ns));
}

}  // namespace sticky::daemon::sim
