#include "tests/sim/players.h"

#include <iterator>
#include <utility>
#include <vector>

#include "base/text.h"

namespace sticky::daemon::sim {
namespace {

constexpr std::uint64_t kConnectionCount = 12;
constexpr std::uint64_t kNameCount = 6;
constexpr std::uint64_t kUserCount = 4;

}  // namespace

std::string Players::Name() { return Format("s%d", static_cast<int>(model_.Below(kNameCount))); }

std::uint32_t Players::WaitMs() {
  return static_cast<std::uint32_t>(model_.Below(2) * model_.Below(3000));
}

std::optional<std::uint64_t> Players::AnyClient() {
  std::vector<std::uint64_t> able;
  for (const auto& [connection, client] : model_.clients) {
    if (!client.refused) able.push_back(connection);
  }
  if (able.empty()) return std::nullopt;
  return able[model_.Below(able.size())];
}

std::optional<std::uint64_t> Players::AnyOwner() {
  for (const auto& [connection, client] : model_.clients) {
    if (client.peer.uid == kOurUid) return connection;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Players::AnyBuilder() {
  std::vector<std::uint64_t> building;
  for (const auto& [id, state] : model_.core->states()) {
    if (state.builder && state.IsLoading()) building.push_back(state.builder->value);
  }
  if (building.empty() || model_.OneIn(20)) return AnyClient();
  return building[model_.Below(building.size())];
}

void Players::Step() {
  model_.now_ns += static_cast<std::int64_t>(model_.Below(30)) * kMs;
  const std::uint64_t kind = model_.Below(100);
  if (kind < 32) return MoveAClient();
  if (kind < 42) return MoveABuilder();
  if (kind < 45) return MoveAnAdmin();
  if (kind < 80) return MoveAChild();
  if (kind < 86) return MoveTheKeeper();
  if (kind < 99) return MoveTime();
  MoveTheDaemon();
}

// --- clients ------------------------------------------------------------------------------------

void Players::MoveAClient() {
  if (model_.clients.size() < kConnectionCount && model_.OneIn(5)) return Connect();
  if (model_.OneIn(8)) return Disconnect();
  if (model_.OneIn(8)) return LetGo();
  const auto connection = AnyClient();
  if (!connection) return Connect();
  const std::uint64_t kind = model_.Below(12);
  if (kind < 4) return AskLoad(*connection, Name());
  if (kind < 9) return AskAttach(*connection);
  if (kind == 9 && model_.OneIn(2)) {
    return outside_.Ask(*connection, wire::EvictRequest{Name(), WaitMs()});
  }
  AskToLook(*connection);
}

void Players::Connect() {
  outside_.Connect(kOurUid + static_cast<std::uint32_t>(model_.Below(kUserCount)));
}

void Players::Disconnect() {
  if (model_.clients.empty()) return;
  outside_.Disconnect(Any(model_.clients), /*leaves_mapping=*/model_.OneIn(3));
}

Policy Players::AnyPolicy() {
  Policy policy;
  policy.pin = model_.OneIn(10);
  policy.priority = -static_cast<std::int32_t>(model_.Below(3));
  policy.idle_ms = model_.OneIn(3) ? 300 : 0;
  policy.ttl_ms = model_.OneIn(8) ? 1000 : 0;
  policy.lease_count_max = model_.OneIn(4) ? 2 : 0;
  policy.access.mode = static_cast<AccessMode>(model_.Below(kAccessModeCount));
  return policy;
}

void Players::AskLoad(std::uint64_t connection, const std::string& name) {
  wire::LoadRequest request;
  request.state = name;
  request.template_digest.bytes.fill(model_.OneIn(10) ? 2 : 1);
  request.source = "/m/" + name;
  request.file_count = 1;
  request.wait_ms = WaitMs();
  request.hold = model_.OneIn(3);
  request.policy = AnyPolicy();
  request.placement = static_cast<wire::Placement>(model_.Below(3));
  if (model_.OneIn(2)) request.placement = wire::Placement::kJoin;
  outside_.Ask(connection, request);
}

void Players::AskAttach(std::uint64_t connection) {
  wire::AttachRequest request;
  request.state = Name();
  request.wait_ms = WaitMs();
  request.hold = model_.OneIn(4);
  request.progress = model_.OneIn(2);
  if (model_.OneIn(15)) request.digest = Digest{};
  outside_.Ask(connection, request);
}

void Players::AskToLook(std::uint64_t connection) {
  const std::uint64_t kind = model_.Below(6);
  if (kind == 0) return outside_.Ask(connection, wire::ListRequest{});
  if (kind == 1) return outside_.Ask(connection, wire::StatusRequest{});
  if (kind == 2) return outside_.Ask(connection, wire::LeasesRequest{});
  if (kind == 3) return outside_.Ask(connection, wire::TemplatesRequest{});
  if (kind == 4) return outside_.Ask(connection, wire::EventsRequest{model_.Below(500), WaitMs()});
  outside_.Ask(connection, wire::ShowRequest{Name()});
}

// A mapping that was left behind ends, or a builder's writable one.
void Players::LetGo() {
  std::vector<std::size_t> able;
  for (std::size_t i = 0; i < model_.mappings.size(); ++i) {
    const Mapping& mapping = model_.mappings[i];
    if (mapping.connection == 0 || mapping.is_writable) able.push_back(i);
  }
  if (!able.empty()) outside_.LetGo(able[model_.Below(able.size())]);
}

// --- builders and admins ------------------------------------------------------------------------

void Players::AskBuild(std::uint64_t connection) {
  wire::BuildRequest request;
  request.state = Name();
  request.policy = AnyPolicy();
  request.placement = static_cast<wire::Placement>(model_.Below(3));
  request.builder = "sim";
  if (model_.OneIn(3)) request.base = Name();
  if (model_.OneIn(4)) request.deadline_ms = static_cast<std::uint32_t>(1 + model_.Below(2000));
  ++model_.counts.builds;
  outside_.Ask(connection, request);
}

void Players::MoveABuilder() {
  const std::uint64_t kind = model_.Below(10);
  const auto connection = kind < 3 ? AnyClient() : AnyBuilder();
  if (!connection) return Connect();
  if (kind < 3) return AskBuild(*connection);
  if (kind < 6) {
    return outside_.Ask(*connection, wire::BuildArenaRequest{model_.Below(400), WaitMs()});
  }
  // It unmaps or protects what it has filled before it commits, as a rule.
  for (std::size_t i = model_.mappings.size(); i-- > 0 && !model_.OneIn(10);) {
    const Mapping& mapping = model_.mappings[i];
    if (mapping.connection != *connection || !mapping.is_writable) continue;
    model_.OneIn(2) ? outside_.LetGo(i) : outside_.Protect(i);
  }
  // The outside checks what comes with a commit, and asks the core only when there is a build.
  outside_.Ask(*connection, wire::BuildCommitRequest{WaitMs()});
}

void Players::MoveAnAdmin() {
  const auto connection = model_.OneIn(5) ? AnyClient() : AnyOwner();
  if (!connection) return Connect();
  const std::uint64_t whole = model_.limits.budget_bytes;
  const std::uint64_t kind = model_.Below(12);
  if (kind < 2) {
    return outside_.Ask(*connection, wire::BudgetRequest{model_.OneIn(3) ? whole / 3 : whole});
  }
  if (kind == 2) {
    return outside_.Ask(*connection, wire::DrainRequest{std::nullopt, false, WaitMs()});
  }
  if (kind < 7) return outside_.Ask(*connection, wire::DrainRequest{std::nullopt, true, WaitMs()});
  if (kind == 11 && model_.OneIn(20)) {
    return outside_.Ask(*connection, wire::ShutdownRequest{!model_.OneIn(3)});
  }
  outside_.Ask(*connection, wire::DrainRequest{Name(), !model_.OneIn(3), WaitMs()});
}

// --- children -----------------------------------------------------------------------------------

void Players::MoveAChild() {
  if (!model_.requesters.empty() && model_.OneIn(4)) return MoveARequester();
  if (!model_.loaders.empty()) MoveALoader();
}

void Players::MoveALoader() {
  const StateId id = Any(model_.loaders);
  const Loader::Step step = model_.loaders.at(id).step;
  if (step == Loader::Step::kEnded) return outside_.LoaderEnded(id);
  if (model_.OneIn(25)) return outside_.LoaderFailed(id);
  if (model_.OneIn(25)) return outside_.LoaderEnded(id);
  const bool works = step == Loader::Step::kFilling || step == Loader::Step::kPrefaulting;
  if (step == Loader::Step::kPlanning) {
    const std::uint64_t bytes = model_.OneIn(30) ? 5000 : 1 + model_.Below(450);
    return outside_.LoaderPlanned(id, bytes);
  }
  if (works && model_.OneIn(2)) {
    return outside_.LoaderProgressed(id, model_.Below(700), model_.Below(700));
  }
  if (works && !model_.OneIn(4)) return outside_.LoaderDone(id);
}

// It asks for the load of its template, or of another, and ends when it likes.
void Players::MoveARequester() {
  const StateId id = Any(model_.requesters);
  Requester& requester = model_.requesters.at(id);
  if (requester.is_killed || requester.connection || model_.OneIn(4)) {
    return outside_.RequesterEnded(id);
  }
  const std::string name = model_.OneIn(10) ? Name() : requester.name;
  const std::uint64_t life = model_.counts.restarts;
  const std::uint64_t connection = outside_.Connect(kOurUid);
  if (model_.violation || model_.counts.restarts != life) return;
  model_.requesters.at(id).connection = connection;
  AskLoad(connection, name);
}

// --- the keeper, the daemon and time ------------------------------------------------------------

void Players::MoveTheKeeper() {
  constexpr std::uint64_t kLossesOneIn = 300;
  if (!model_.keeper.is_there) {
    if (!model_.keeper_loss_told) outside_.TellKeeperLoss();
    return;
  }
  if (model_.OneIn(kLossesOneIn)) return outside_.LoseKeeper();
  outside_.FlushKeeper();
}

void Players::MoveTheDaemon() {
  const std::uint64_t kind = model_.Below(20);
  if (model_.is_stopping) return outside_.SuccessorStarts();
  if (kind < 5) return outside_.Crash();
  if (kind < 12) return outside_.CrashWithin(static_cast<int>(model_.Below(12)));
  if (kind == 12) return outside_.ShutDown();
  if (!model_.keeper.is_there && kind < 16) outside_.Crash();
}

void Players::MoveTime() {
  if (model_.is_stopping && model_.OneIn(4)) return outside_.SuccessorStarts();
  const std::uint64_t kind = model_.Below(40);
  if (kind == 0) return outside_.Tick(static_cast<std::int64_t>(model_.Below(9000)) * kMs);
  if (kind < 4) return outside_.Tick(static_cast<std::int64_t>(model_.Below(1500)) * kMs);
  outside_.Tick(static_cast<std::int64_t>(model_.Below(80)) * kMs);
}

// --- the end ------------------------------------------------------------------------------------

void Players::Leave() {
  if (model_.is_stopping) outside_.SuccessorStarts();
  constexpr int kRounds = 8;
  for (int round = 0; round < kRounds && !model_.violation; ++round) {
    while (!model_.clients.empty() && !model_.violation) Disconnect();
    if (model_.violation) return;
    const std::uint64_t owner = outside_.Connect(kOurUid);
    LeaveOnce(owner);
  }
  while (!model_.clients.empty() && !model_.violation) Disconnect();
  if (!model_.violation) outside_.Tick(model_.limits.failed_kept_ns + kMs);
  if (!model_.violation) outside_.Tick(model_.limits.failed_kept_ns + kMs);
}

void Players::LeaveOnce(std::uint64_t owner) {
  for (int name = 0; name < static_cast<int>(kNameCount) && !model_.violation; ++name) {
    // A crash that was on its way may come now, and the connection ends with it.
    if (!model_.clients.contains(owner)) return;
    outside_.Ask(owner, wire::EvictRequest{Format("s%d", name), 0});
  }
  while (!model_.mappings.empty() && !model_.violation) outside_.LetGo(0);
  while (!model_.violation && (!model_.keepings.empty() || !model_.forgettings.empty())) {
    outside_.FlushKeeper();
  }
  if (!model_.violation) outside_.Tick(model_.limits.build_ns + kMs);
  EndChildren();
}

// Those that work may go on; those that were told to end do, and requesters give up.
void Players::EndChildren() {
  const std::map<StateId, Loader> loaders = model_.loaders;
  const std::uint64_t life = model_.counts.restarts;
  for (const auto& [id, loader] : loaders) {
    if (model_.violation || model_.counts.restarts != life) return;
    if (loader.step == Loader::Step::kEnded) outside_.LoaderEnded(id);
  }
  const std::map<StateId, Requester> requesters = model_.requesters;
  for (const auto& [id, requester] : requesters) {
    if (model_.violation || model_.counts.restarts != life) return;
    outside_.RequesterEnded(id);
  }
}

}  // namespace sticky::daemon::sim
