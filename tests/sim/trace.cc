#include "tests/sim/trace.h"

#include <type_traits>
#include <variant>

#include "base/text.h"

namespace sticky::daemon::sim {
namespace {

template <typename... Cases>
struct Overload : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overload(Cases...) -> Overload<Cases...>;

unsigned long long Ull(std::uint64_t value) { return value; }
std::string Wait(std::uint32_t wait_ms) { return Format(" wait %u ms", wait_ms); }
std::string Quoted(const std::string& name) { return " '" + name + "'"; }
const char* PlacementText(wire::Placement placement) {
  constexpr const char* kTexts[] = {" join", " replace", " in-place"};
  return kTexts[static_cast<int>(placement)];
}
std::string Of(StateId state) { return Format(" #%llu", Ull(state.value)); }
std::string Of(const wire::StateInfo& info) {
  return Format(" '%s' epoch %llu %s%s", info.name.c_str(), Ull(info.epoch), wire::Name(info.phase),
                info.kept ? " kept" : "");
}
std::string Of(const wire::StateRecord& record) {
  return Format(" '%s' epoch %llu%s%s%s", record.state.c_str(), Ull(record.epoch),
                record.closed ? " closed" : "", record.ending ? " ending" : "",
                record.kept_by_holds ? " kept-by-holds" : "");
}
std::string LoadText(const wire::LoadRequest& load) {
  return "load" + Quoted(load.state) + Wait(load.wait_ms) + PlacementText(load.placement) +
         (load.hold ? " hold" : "") + (load.policy.pin ? " pin" : "") +
         Format(" priority %d idle %llu ttl %llu", load.policy.priority, Ull(load.policy.idle_ms),
                Ull(load.policy.ttl_ms));
}
std::string DrainText(const wire::DrainRequest& drain) {
  return (drain.resume ? "resume" : "drain") + (drain.state ? Quoted(*drain.state) : " node") +
         Wait(drain.wait_ms);
}
std::string BuildText(const wire::BuildRequest& build) {
  return "build" + Quoted(build.state) + PlacementText(build.placement) +
         (build.base ? " from" + Quoted(*build.base) : "");
}

std::string ReplyText(const wire::Body& body) {
  return std::visit(
      Overload{
          [](const wire::Failure& r) { return "failure: " + r.message; },
          [](const wire::AttachReply& r) {
            return Format("lease %llu on epoch %llu", Ull(r.lease_id), Ull(r.epoch));
          },
          [](const wire::LoadProgress& r) { return "progress:" + Of(r.state); },
          [](const wire::LoadReply& r) { return "loaded:" + Of(r.state); },
          [](const wire::EvictReply& r) {
            return (r.freed ? "freed:" : "not freed:") + Of(r.state);
          },
          [](const wire::BuildReply& r) { return "built:" + Of(r.state); },
          [](const wire::BuildArenaReply& r) { return Format("arena %u", r.arena); },
          [](const wire::DrainReply& r) { return std::string(r.empty ? "empty" : "not empty"); },
          [](const auto&) { return std::string("another message"); },
      },
      body);
}

const char* AttachmentText(Attachment attachment) {
  constexpr const char* kTexts[] = {"", " + manifest", " + state", " + writable arena"};
  return kTexts[static_cast<int>(attachment)];
}

}  // namespace

std::string TextOf(const wire::Body& body) {
  return std::visit(
      Overload{
          [](const wire::LoadRequest& r) { return LoadText(r); },
          [](const wire::DrainRequest& r) { return DrainText(r); },
          [](const wire::BuildRequest& r) { return BuildText(r); },
          [](const wire::AttachRequest& r) {
            return "attach" + Quoted(r.state) + Wait(r.wait_ms) + (r.hold ? " hold" : "");
          },
          [](const wire::EvictRequest& r) { return "evict" + Quoted(r.state) + Wait(r.wait_ms); },
          [](const wire::ShowRequest& r) { return "show" + Quoted(r.state); },
          [](const wire::BuildArenaRequest& r) {
            return Format("arena of %llu bytes", Ull(r.size_bytes)) + Wait(r.wait_ms);
          },
          [](const wire::BuildCommitRequest& r) { return "commit" + Wait(r.wait_ms); },
          [](const wire::EventsRequest& r) { return "events" + Wait(r.wait_ms); },
          [](const wire::ListRequest&) { return std::string("list"); },
          [](const wire::StatusRequest&) { return std::string("status"); },
          [](const wire::BudgetRequest& r) { return Format("budget %llu", Ull(r.budget_bytes)); },
          [](const wire::ShutdownRequest& r) {
            return std::string(r.keep_states ? "shutdown, keep" : "shutdown, drop");
          },
          [&](const auto&) { return ReplyText(body); },
      },
      body);
}

std::string TextOf(const Action& action) {
  return std::visit(
      Overload{
          [](const Send& a) {
            return Format("send %llu/%u: ", Ull(a.to.value), a.message.request_id) +
                   TextOf(a.message.body) + AttachmentText(a.attachment);
          },
          [](const DropBundle& a) { return Format("drop bundle %llu", Ull(a.bundle.value)); },
          [](const StartRequester& a) { return "start requester" + Of(a.state); },
          [](const StartLoader& a) { return "start loader" + Of(a.state); },
          [](const AllocateArena& a) {
            return "allocate" + Of(a.state) + Format(" %llu bytes", Ull(a.arena_bytes));
          },
          [](const Publish& a) { return "publish" + Of(a.state) + Of(a.record); },
          [](const KeepRecord& a) { return "keep record" + Of(a.state) + Of(a.record); },
          [](const KeepNode& a) {
            return Format("keep node: draining %d, budget %llu", a.record.draining,
                          Ull(a.record.budget_bytes));
          },
          [](const MakeBuildArena& a) {
            return "make arena" + Of(a.state) + Format(" %llu bytes", Ull(a.arena_bytes));
          },
          [](const CommitBuild& a) { return "commit" + Of(a.state); },
          [](const KillLoader& a) { return "kill" + Of(a.state); },
          [](const FreeArena& a) { return "free" + Of(a.state); },
          [](const AskBorrowers& a) { return "ask borrowers" + Of(a.state); },
          [](const Stop& a) { return std::string(a.keep_states ? "stop, keep" : "stop, drop"); },
          [](const Log& a) { return "log: " + a.text; },
      },
      action);
}

}  // namespace sticky::daemon::sim
