// CoreRig: a NodeState without an outside. It keeps the actions, and plays the loader and the
// clock when a test says so.

#ifndef STICKY_TESTS_UNIT_DAEMON_CORE_RIG_H_
#define STICKY_TESTS_UNIT_DAEMON_CORE_RIG_H_

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/node_state.h"

namespace sticky::daemon {

constexpr std::int64_t kMs = 1'000'000;
constexpr std::uint32_t kOurUid = 1000;
constexpr std::uint64_t kNonce = 77;
constexpr std::int64_t kWallMs = 1'700'000'000'000;  // since the epoch, when the rig begins

struct CoreRig {
  explicit CoreRig(const Limits& limits = DefaultLimits())
      : core(limits, Facts(), /*now_ns=*/kMs, kWallMs) {}

  static Limits DefaultLimits() {
    Limits limits;
    limits.budget_bytes = 1000;
    return limits;
  }
  static wire::StatusReply Facts() {
    wire::StatusReply facts;
    facts.uid = kOurUid;
    facts.nonce = kNonce;
    return facts;
  }
  static wire::LoadRequest Load(const std::string& state, std::uint32_t wait_ms = 0) {
    wire::LoadRequest request;
    request.state = state;
    request.template_digest.bytes.fill(1);
    request.file_count = 1;
    request.wait_ms = wait_ms;
    return request;
  }
  static wire::AttachRequest AttachTo(const std::string& state, std::uint32_t wait_ms = 0) {
    wire::AttachRequest request;
    request.state = state;
    request.wait_ms = wait_ms;
    return request;
  }
  static Digest Content() {
    Digest digest;
    digest.bytes.fill(9);
    return digest;
  }

  void Connect(std::uint64_t connection, std::uint32_t uid = kOurUid) {
    Keep(core.Connected(ConnectionId{connection}, Peer{100 + connection, uid, uid, {}, "cmd"},
                        now_ns));
  }
  void Disconnect(std::uint64_t connection) {
    Keep(core.Disconnected(ConnectionId{connection}, now_ns));
  }
  void Ask(std::uint64_t connection, std::uint32_t request_id, wire::Body body) {
    if (const auto* load = std::get_if<wire::LoadRequest>(&body)) {
      Keep(core.LoadAsked(ConnectionId{connection}, request_id, *load, BundleId{next_bundle++},
                          now_ns));
    } else {
      Keep(core.Asked(ConnectionId{connection}, {request_id, std::move(body)}, now_ns));
    }
  }
  void Tick(std::int64_t after_ns) {
    now_ns += after_ns;
    Keep(core.Tick(now_ns));
  }

  // The loader's part, for the state that was started last.
  StateId LastStarted() const { return Last<StartLoader>()->state; }
  void Plan(std::uint64_t bytes) { Keep(core.Planned(LastStarted(), bytes, 3, now_ns)); }
  void Fill() {
    Keep(core.ArenaAllocated(LastStarted(), "none", now_ns));
    Keep(core.Filled(LastStarted(), Content(), /*huge_bytes=*/0, now_ns));
    Keep(core.Published(LastStarted(), /*is_kept=*/false, now_ns));
  }
  void FailLoader(const std::string& why) {
    Keep(core.LoaderFailed(LastStarted(), Error{Code::kCorrupt, why}, now_ns));
  }
  // A state that is ready, loaded by `connection` without waiting.
  StateId MakeReady(const std::string& state, std::uint64_t bytes = 100,
                    std::uint64_t connection = 1) {
    return MakeReady(Load(state), bytes, connection);
  }
  StateId MakeReady(const wire::LoadRequest& load, std::uint64_t bytes,
                    std::uint64_t connection = 1) {
    Ask(connection, 900, load);
    Plan(bytes);
    Fill();
    const StateId id = LastStarted();
    Keep(core.LoaderGone(id, now_ns));
    actions.clear();
    return id;
  }

  void Keep(NodeState::Actions more) {
    for (Action& action : more) actions.push_back(std::move(action));
  }
  template <typename T>
  const T* Last() const {
    const T* found = nullptr;
    for (const Action& action : actions) {
      if (const T* one = std::get_if<T>(&action)) found = one;
    }
    return found;
  }
  template <typename T>
  int Count() const {
    return static_cast<int>(std::count_if(actions.begin(), actions.end(), [](const Action& action) {
      return std::holds_alternative<T>(action);
    }));
  }
  // The last answer of this kind to a request; null when there is none.
  template <typename T>
  const T* Answer(std::uint64_t connection, std::uint32_t request_id) const {
    const T* found = nullptr;
    for (const Action& action : actions) {
      const Send* send = std::get_if<Send>(&action);
      if (send == nullptr || send->to != ConnectionId{connection}) continue;
      if (send->message.request_id != request_id) continue;
      if (const T* one = std::get_if<T>(&send->message.body)) found = one;
    }
    return found;
  }
  int AnswerCount(std::uint64_t connection, std::uint32_t request_id) const {
    int count = 0;
    for (const Action& action : actions) {
      const Send* send = std::get_if<Send>(&action);
      count += send != nullptr && send->to == ConnectionId{connection} &&
               send->message.request_id == request_id &&
               !std::holds_alternative<wire::LoadProgress>(send->message.body);
    }
    return count;
  }
  // The oldest of that name.
  std::optional<wire::StateInfo> InfoOf(const std::string& state) const {
    for (const wire::StateInfo& info : core.ListStates(now_ns)) {
      if (info.name == state) return info;
    }
    return std::nullopt;
  }
  std::optional<wire::StatePhase> PhaseOf(const std::string& state) const {
    const std::optional<wire::StateInfo> info = InfoOf(state);
    return info ? std::optional(info->phase) : std::nullopt;
  }

  NodeState core;
  std::vector<Action> actions;
  std::int64_t now_ns = kMs;
  std::uint64_t next_bundle = 1;
};

}  // namespace sticky::daemon

#endif  // STICKY_TESTS_UNIT_DAEMON_CORE_RIG_H_
