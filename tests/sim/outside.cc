// Events, and the loop that does what they lead to. What is done is in outside_actions.cc, the
// keeper and the end of a daemon in outside_kept.cc.

#include "tests/sim/outside.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <utility>
#include <variant>

#include "base/text.h"
#include "tests/sim/invariants.h"
#include "tests/sim/trace.h"

namespace sticky::daemon::sim {
namespace {

unsigned long long Ull(std::uint64_t value) { return value; }
std::int64_t MsToNs(std::uint64_t ms) { return static_cast<std::int64_t>(ms) * kMs; }

// How long the core may take to answer; 0: it answers at once.
std::int64_t PatienceOf(const wire::Body& body, const Limits& limits) {
  if (const auto* one = std::get_if<wire::AttachRequest>(&body)) return MsToNs(one->wait_ms);
  if (const auto* one = std::get_if<wire::LoadRequest>(&body)) return MsToNs(one->wait_ms);
  if (const auto* one = std::get_if<wire::EvictRequest>(&body)) return MsToNs(one->wait_ms);
  if (const auto* one = std::get_if<wire::EventsRequest>(&body)) return MsToNs(one->wait_ms);
  if (const auto* one = std::get_if<wire::DrainRequest>(&body)) {
    return one->resume ? 0 : MsToNs(one->wait_ms);
  }
  // Memory on its way, and a digest that moves, are waited for in any case.
  if (const auto* one = std::get_if<wire::BuildArenaRequest>(&body)) {
    return std::max(MsToNs(one->wait_ms), limits.room_ns);
  }
  if (std::holds_alternative<wire::BuildCommitRequest>(body)) return limits.build_ns;
  return 0;
}

// The epoch of the one state of a name, when a keeper has it; else 0.
std::uint64_t OnlyKept(const NodeState& core, const wire::Body& body) {
  const auto* const drain = std::get_if<wire::DrainRequest>(&body);
  if (drain == nullptr || !drain->state) return 0;
  const State* only = nullptr;
  for (const auto& [id, state] : core.states()) {
    if (state.name != *drain->state) continue;
    if (only != nullptr) return 0;
    only = &state;
  }
  return only != nullptr && only->is_kept ? only->epoch : 0;
}

}  // namespace

Outside::Outside(Model& model, Saboteur& saboteur, bool verbose)
    : model_(model), saboteur_(saboteur), verbose_(verbose) {
  TakeOver();
}

void Outside::Event(const char* format, ...) {
  ++model_.counts.events;
  if (!verbose_) return;
  std::printf("%llu @%lld ms: ", Ull(model_.counts.events),
              static_cast<long long>(model_.now_ns / kMs));
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::printf("\n");
}

void Outside::Queue(NodeState::Actions actions) {
  saboteur_.OnActions(actions);
  for (Action& action : actions) todo_.push_back(std::move(action));
}

void Outside::Do(NodeState::Actions actions) {
  Queue(std::move(actions));
  while (!todo_.empty() && !model_.violation) {
    if (crash_after_ && (*crash_after_)-- == 0) {
      Event("kill the daemon with %zu actions not performed", todo_.size());
      return Restart();
    }
    const Action action = std::move(todo_.front());
    todo_.pop_front();
    if (verbose_) std::printf("    %s\n", TextOf(action).c_str());
    std::visit([this](const auto& what) { Perform(what); }, action);
  }
  if (!model_.violation) CheckNow(model_);
}

// --- clients ------------------------------------------------------------------------------------

std::uint64_t Outside::Connect(std::uint32_t uid) {
  const std::uint64_t connection = model_.next_connection++;
  Event("connect %llu of user %u", Ull(connection), uid);
  Client client{Peer{100 + connection, uid, uid, {}, "cmd"}};
  std::uint32_t own = 0;
  for (const auto& [id, other] : model_.clients) own += other.peer.uid == uid ? 1 : 0;
  const bool may = uid == kOurUid || own < model_.limits.user.connection_count_max;
  client.refused = !model_.core->MayConnect(client.peer).ok();
  if (client.refused == may) {
    model_.Fail(Invariant::kWithinLimits, Format("user %u has %u connections, one more is %s", uid,
                                                 own, may ? "refused" : "taken"));
  }
  model_.clients[connection] = client;
  Do(model_.core->Connected(ConnectionId{connection}, client.peer, model_.now_ns));
  return connection;
}

void Outside::Disconnect(std::uint64_t connection, bool leaves_mapping) {
  Event("connection %llu ends%s", Ull(connection), leaves_mapping ? ", its mappings stay" : "");
  model_.clients.erase(connection);
  std::erase_if(model_.open, [&](const auto& entry) { return entry.first.first == connection; });
  std::erase_if(model_.mappings, [&](Mapping& mapping) {
    if (mapping.connection != connection) return false;
    mapping.connection = 0;
    return !leaves_mapping;
  });
  for (auto& [id, requester] : model_.requesters) {
    if (requester.connection == connection) requester.connection.reset();
  }
  if (saboteur_.Strikes(Fault::kHideDeath)) return CheckNow(model_);
  Do(model_.core->Disconnected(ConnectionId{connection}, model_.now_ns));
}

void Outside::Ask(std::uint64_t connection, wire::Body body) {
  const std::uint32_t id = model_.next_request++;
  Event("%llu/%u asks: %s", Ull(connection), id, TextOf(body).c_str());
  const std::int64_t patience_ns = PatienceOf(body, model_.limits);
  // The answer to an eviction comes with the next look at borrowers.
  const bool at_once = patience_ns == 0 && !std::holds_alternative<wire::EvictRequest>(body);
  const auto key = std::pair(connection, id);
  model_.open[key] = {body, model_.now_ns + patience_ns, model_.counts.events,
                      OnlyKept(*model_.core, body), at_once};
  const ConnectionId from{connection};
  if (const auto* load = std::get_if<wire::LoadRequest>(&body)) {
    const BundleId bundle{model_.next_bundle++};
    model_.bundles.insert(bundle);
    Do(model_.core->LoadAsked(from, id, *load, bundle, model_.now_ns));
  } else if (const auto* commit = std::get_if<wire::BuildCommitRequest>(&body)) {
    Do(model_.core->CommitAsked(from, id, *commit, /*tensor_count=*/1, model_.now_ns));
  } else {
    Do(model_.core->Asked(from, {id, std::move(body)}, model_.now_ns));
  }
  if (at_once && model_.open.contains(key)) {
    model_.Fail(Invariant::kOneAnswer,
                Format("request %llu/%u does not wait, and is not answered", Ull(connection), id));
  }
}

void Outside::Tick(std::int64_t after_ns) {
  model_.now_ns += after_ns;
  Event("tick");
  if (saboteur_.Strikes(Fault::kHideTicks)) return CheckInTime(model_);
  Do(model_.core->Tick(model_.now_ns));
  if (!model_.violation) CheckInTime(model_);
}

void Outside::LetGo(std::size_t mapping) {
  Event("a mapping of memory %llu ends", Ull(model_.mappings[mapping].memory));
  model_.mappings.erase(model_.mappings.begin() + static_cast<std::ptrdiff_t>(mapping));
}

void Outside::Protect(std::size_t mapping) {
  Event("a mapping of memory %llu becomes read-only", Ull(model_.mappings[mapping].memory));
  model_.mappings[mapping].is_writable = false;
}

// --- children -----------------------------------------------------------------------------------

void Outside::LoaderPlanned(StateId id, std::uint64_t bytes) {
  Event("loader #%llu plans %llu bytes", Ull(id.value), Ull(bytes));
  model_.loaders.at(id).step = Loader::Step::kPlanned;
  Do(model_.core->Planned(id, bytes, /*tensor_count=*/1, model_.now_ns));
}

void Outside::LoaderProgressed(StateId id, std::uint64_t done, std::uint64_t present) {
  Event("loader #%llu has done %llu bytes", Ull(id.value), Ull(done));
  Do(model_.core->Progressed(id, done, present, model_.now_ns));
}

Digest Outside::Fill(StateId id) {
  const Held* const held = model_.FindHeld(id);
  if (held == nullptr) return {};  // its load has failed
  const MemoryId memory = held->memory;
  Digest& content = model_.memories.at(memory).content;
  for (std::size_t i = 0; i < sizeof(memory); ++i) {
    content.bytes[i] = static_cast<std::uint8_t>(memory >> (8 * i));
  }
  content.bytes.back() = 1;
  return content;
}

void Outside::LoaderDone(StateId id) {
  Event("loader #%llu has done its work", Ull(id.value));
  Loader& loader = model_.loaders.at(id);
  if (std::exchange(loader.step, Loader::Step::kIdle) == Loader::Step::kPrefaulting) {
    return Do(model_.core->BuildArenaMade(id, model_.now_ns));
  }
  loader.step = Loader::Step::kEnded;
  Do(model_.core->Filled(id, Fill(id), /*huge_bytes=*/0, model_.now_ns));
}

void Outside::LoaderFailed(StateId id) {
  Event("loader #%llu fails", Ull(id.value));
  model_.loaders.at(id).step = Loader::Step::kEnded;
  Do(model_.core->LoaderFailed(id, Error{Code::kCorrupt, "sim: bad file"}, model_.now_ns));
}

void Outside::LoaderEnded(StateId id) {
  if (model_.loaders.at(id).step != Loader::Step::kEnded) {
    const std::uint64_t life = model_.counts.restarts;
    LoaderFailed(id);
    if (model_.violation || model_.counts.restarts != life) return;
  }
  Event("loader #%llu is reaped", Ull(id.value));
  model_.loaders.erase(id);
  model_.dying.erase(id);
  if (saboteur_.Strikes(Fault::kHideReaped)) return CheckNow(model_);
  Do(model_.core->LoaderGone(id, model_.now_ns));
}

void Outside::RequesterEnded(StateId id) {
  if (const auto connection = model_.requesters.at(id).connection) {
    const std::uint64_t life = model_.counts.restarts;
    Disconnect(*connection, /*leaves_mapping=*/false);
    if (model_.violation || model_.counts.restarts != life) return;
  }
  Event("requester #%llu is reaped", Ull(id.value));
  model_.requesters.erase(id);
  const Error silent{Code::kUnavailable, "sim: no load came of it"};
  Do(model_.core->RequesterEnded(id, silent, model_.now_ns));
}

}  // namespace sticky::daemon::sim
