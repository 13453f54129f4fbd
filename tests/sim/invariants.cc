#include "tests/sim/invariants.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "base/text.h"
#include "tests/sim/trace.h"

namespace sticky::daemon::sim {
namespace {

using wire::StatePhase;

unsigned long long Ull(std::uint64_t value) { return value; }
std::string Of(const State& state) {
  return Format("'%s' epoch %llu (#%llu, %s)", state.name.c_str(), Ull(state.epoch),
                Ull(state.id.value), wire::Name(state.phase));
}

void CheckMemory(Model& model) {
  const std::uint64_t used = model.core->used_bytes();
  if (used != model.UsedBytes()) {
    model.Fail(Invariant::kUsedBytes, Format("the core counts %llu bytes, the outside has %llu",
                                             Ull(used), Ull(model.UsedBytes())));
  }
  std::map<std::uint32_t, std::uint64_t> of_user;
  for (const auto& [id, state] : model.core->states()) {
    if (state.uid != kOurUid) of_user[state.uid] += state.arena_bytes;
    if (state.base && !model.core->states().contains(*state.base)) {
      model.Fail(Invariant::kNotInUse, "the base of " + Of(state) + " is gone");
    }
  }
  for (const auto& [uid, bytes] : of_user) {
    if (bytes <= model.limits.user.memory_bytes) continue;
    model.Fail(Invariant::kWithinBudget, Format("user %u has %llu bytes", uid, Ull(bytes)));
  }
}

void CheckLeases(Model& model) {
  const LeaseTable& leases = model.core->leases();
  for (const auto& [id, lease] : leases.leases()) {
    if (!model.clients.contains(lease.connection.value)) {
      model.Fail(Invariant::kDeadPeer, Format("connection %llu has lease %llu",
                                              Ull(lease.connection.value), Ull(id.value)));
    }
    const Held* const held = model.FindHeld(lease.state);
    if (held == nullptr || !held->is_published) {
      model.Fail(Invariant::kPublishedOnly,
                 Format("lease %llu is on what is not published", Ull(id.value)));
    }
    if (lease.uid != kOurUid && leases.CountOf(lease.uid) > model.limits.user.lease_count_max) {
      model.Fail(Invariant::kWithinLimits, Format("user %u has too many leases", lease.uid));
    }
  }
  if (leases.count() > model.limits.lease_count_max) {
    model.Fail(Invariant::kWithinLimits, Format("%u leases", leases.count()));
  }
}

void CheckPeers(Model& model) {
  if (model.core->connection_count() != model.clients.size()) {
    model.Fail(Invariant::kDeadPeer, Format("the core knows %u connections, %zu are there",
                                            model.core->connection_count(), model.clients.size()));
  }
  for (const auto& [id, state] : model.core->states()) {
    for (const ConnectionId holder : state.holders_to_be) {
      if (model.clients.contains(holder.value)) continue;
      model.Fail(Invariant::kDeadPeer, Of(state) + " waits for a hold of one that has gone");
    }
    if (state.builder && state.IsLoading() && !model.clients.contains(state.builder->value)) {
      model.Fail(Invariant::kDeadPeer, Of(state) + " is built by one that has gone");
    }
  }
}

void CheckTables(Model& model) {
  const NodeState& core = *model.core;
  std::uint32_t running = 0;
  for (const auto& [id, state] : core.states()) {
    running += state.IsRunning() ? 1 : 0;
    const std::uint32_t most = state.policy.lease_count_max;
    if (most != 0 && core.leases().CountOn(id) > most) {
      model.Fail(Invariant::kWithinLimits, Of(state) + " has too many leases");
    }
  }
  if (running > model.limits.load_count_max) {
    model.Fail(Invariant::kWithinLimits, Format("%u loads run", running));
  }
  if (core.waiter_count() > model.limits.waiter_count_max) {
    model.Fail(Invariant::kWithinLimits, Format("%u requests wait", core.waiter_count()));
  }
  if (core.state_count() > model.limits.state_count_max + model.limits.failed_count_max) {
    model.Fail(Invariant::kWithinLimits, Format("%u states", core.state_count()));
  }
  if (core.waiter_count() != model.open.size()) {
    model.Fail(Invariant::kOneAnswer, Format("%u requests wait in the core, %zu are not answered",
                                             core.waiter_count(), model.open.size()));
  }
  const std::size_t processes = model.loaders.size() + model.requesters.size();
  if (core.process_count() != processes) {
    model.Fail(Invariant::kNothingLeft, Format("the core knows %u processes, %zu are there",
                                               core.process_count(), processes));
  }
}

// Which fields differ, as far as they can.
std::string DifferenceOf(const wire::StateRecord& a, const wire::StateRecord& b) {
  std::string text;
  if (a.closed != b.closed) text += " closed";
  if (a.ending != b.ending) text += " ending";
  if (a.policy != b.policy) text += " policy";
  if (a.kept_by_holds != b.kept_by_holds) text += " kept_by_holds";
  if (a.ready_ns != b.ready_ns) text += " ready_ns";
  if (a.base_epoch != b.base_epoch) text += " base_epoch";
  if (a.content_digest != b.content_digest) text += " content_digest";
  return text.empty() ? " another" : text;
}

bool IsOnItsWay(const Model& model, std::uint64_t epoch) {
  const auto keeps = [epoch](const Keeping& keeping) { return keeping.record.epoch == epoch; };
  const auto forgets = [epoch](const Forgetting& leaving) { return leaving.epoch == epoch; };
  return std::any_of(model.keepings.begin(), model.keepings.end(), keeps) ||
         std::any_of(model.forgettings.begin(), model.forgettings.end(), forgets);
}

void CheckKept(Model& model) {
  if (!model.keeper.is_there || model.drops_states) return;
  std::set<std::uint64_t> known;
  for (const auto& [id, state] : model.core->states()) {
    // A build that failed while it was handed over is there until nobody maps it.
    if (state.is_kept || state.phase == StatePhase::kClosing) known.insert(state.epoch);
    if (!state.is_kept) continue;
    const auto kept = model.keeper.states.find(state.epoch);
    const bool is_there = kept != model.keeper.states.end();
    wire::StateRecord record = model.core->RecordOf(state);
    // A base that was not kept has not come back; the record still tells its epoch.
    if (is_there && !state.base) record.base_epoch = kept->second.record.base_epoch;
    if (is_there && kept->second.record == record) continue;
    if (!is_there && IsOnItsWay(model, state.epoch)) continue;
    model.Fail(
        Invariant::kKeptRecord,
        "of " + Of(state) + " the keeper has " +
            (is_there ? "another record:" + DifferenceOf(kept->second.record, record) : "none"));
  }
  for (const auto& [id, state] : model.core->states()) {
    const auto kept = model.keeper.states.find(state.epoch);
    if (state.IsLoading() || state.phase == StatePhase::kReady) continue;
    if (kept == model.keeper.states.end() || kept->second.record.ending) continue;
    model.Fail(Invariant::kKeptRecord, Of(state) + " would come back to life");
  }
  for (const auto& [epoch, kept] : model.keeper.states) {
    if (known.contains(epoch) || IsOnItsWay(model, epoch)) continue;
    model.Fail(Invariant::kKeptRecord,
               Format("the keeper has epoch %llu, the core does not keep it", Ull(epoch)));
  }
  if (!(model.keeper.node == model.core->RecordOfNode())) {
    model.Fail(Invariant::kKeptRecord, "the keeper has another record of the node");
  }
}

// What the answer to a change promises.
bool IsPromiseKept(const Model& model, const Request& request) {
  if (const auto* budget = std::get_if<wire::BudgetRequest>(&request.body)) {
    const bool is_default = budget->budget_bytes == model.limits.budget_bytes;
    return model.keeper.node.budget_bytes == (is_default ? 0 : budget->budget_bytes);
  }
  const auto* const drain = std::get_if<wire::DrainRequest>(&request.body);
  if (drain == nullptr) return true;
  if (!drain->state) return model.keeper.node.draining == !drain->resume;
  const auto kept = model.keeper.states.find(request.drained_epoch);
  return kept == model.keeper.states.end() || kept->second.record.closed == !drain->resume;
}

const wire::StateInfo* InfoIn(const wire::Body& body) {
  if (const auto* reply = std::get_if<wire::LoadReply>(&body)) return &reply->state;
  if (const auto* reply = std::get_if<wire::BuildReply>(&body)) return &reply->state;
  if (const auto* reply = std::get_if<wire::ShowReply>(&body)) return &reply->state;
  if (const auto* reply = std::get_if<wire::EvictReply>(&body)) return &reply->state;
  return nullptr;
}

void CheckTakenOver(Model& model, const Kept& kept) {
  const wire::StateRecord& record = kept.record;
  const State* found = nullptr;
  for (const auto& [id, state] : model.core->states()) {
    if (state.epoch == record.epoch) found = &state;
  }
  const std::string what = Format("epoch %llu of '%s'", Ull(record.epoch), record.state.c_str());
  const bool is_ending = found != nullptr && found->phase != StatePhase::kReady;
  if (found == nullptr) {
    if (!record.ending) model.Fail(Invariant::kTakenOver, what + " is not back");
  } else if (is_ending != record.ending) {
    model.Fail(Invariant::kTakenOver, what + " is back, but as " + wire::Name(found->phase));
  } else if (found->name != record.state || found->policy != record.policy ||
             found->uid != record.uid || found->closed != record.closed) {
    model.Fail(Invariant::kTakenOver, what + " is back, but not as it was");
  } else if (found->content_digest != model.memories.at(kept.memory).content) {
    model.Fail(Invariant::kTakenOver, what + " is back with another digest than its memory has");
  }
}

}  // namespace

void CheckNow(Model& model) {
  CheckMemory(model);
  CheckLeases(model);
  CheckPeers(model);
  CheckTables(model);
  CheckKept(model);
}

void CheckInTime(Model& model) {
  for (const auto& [key, request] : model.open) {
    if (request.deadline_ns > model.now_ns) continue;
    model.Fail(Invariant::kInTime, Format("request %llu/%u (%s) is late", Ull(key.first),
                                          key.second, TextOf(request.body).c_str()));
  }
}

void CheckToldIsKept(Model& model, const Send& send, const Request& request) {
  const wire::Body& body = send.message.body;
  if (!model.keeper.is_there || model.is_stopping) return;
  if (std::holds_alternative<wire::Failure>(body)) return;
  const bool at_once = request.event == model.counts.events;
  if (at_once && !IsPromiseKept(model, request)) {
    return model.Fail(Invariant::kToldIsKept, "of " + TextOf(request.body));
  }
  const wire::StateInfo* const info = InfoIn(body);
  if (info == nullptr || !info->kept) return;
  const auto kept = model.keeper.states.find(info->epoch);
  const bool is_there = kept != model.keeper.states.end();
  const auto* const evicted = std::get_if<wire::EvictReply>(&body);
  const bool is_ready = info->phase == StatePhase::kReady && evicted == nullptr;
  if (is_ready && !is_there) model.Fail(Invariant::kToldIsKept, TextOf(Action(send)));
  if (evicted != nullptr && is_there && (evicted->freed || !kept->second.record.ending)) {
    model.Fail(Invariant::kToldIsKept, TextOf(Action(send)));
  }
}

void CheckTakenOver(Model& model, const std::map<std::uint64_t, Kept>& before) {
  for (const auto& [epoch, kept] : before) CheckTakenOver(model, kept);
}

void CheckNothingLeft(Model& model) {
  const NodeState& core = *model.core;
  const std::pair<const char*, std::uint64_t> counts[] = {
      {"states", core.state_count()},
      {"bytes", core.used_bytes() - model.foreign_bytes},
      {"leases", core.leases().count()},
      {"waiting requests", core.waiter_count()},
      {"connections", core.connection_count()},
      {"processes", core.process_count()},
      {"arenas", model.held.size() + model.dying.size()},
      {"bundles of files", model.bundles.size()},
      {"states at the keeper", model.keeper.states.size()},
  };
  for (const auto& [what, count] : counts) {
    if (count != 0) model.Fail(Invariant::kNothingLeft, Format("%llu %s are", Ull(count), what));
  }
}

}  // namespace sticky::daemon::sim
