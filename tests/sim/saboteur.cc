#include "tests/sim/saboteur.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace sticky::daemon::sim {
namespace {

bool IsAnswer(const Action& action) {
  const Send* const send = std::get_if<Send>(&action);
  return send != nullptr && !std::holds_alternative<wire::LoadProgress>(send->message.body);
}

}  // namespace

bool Saboteur::Strikes(Fault fault, std::uint64_t every) {
  return fault == fault_ && ++chances_ % every == 0;
}

void Saboteur::Drop(std::vector<Action>& actions, std::size_t at) {
  actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(at));
}

void Saboteur::OnActions(std::vector<Action>& actions) {
  if (fault_ == Fault::kNone) return;
  if (fault_ == Fault::kTellFirst) return TellFirst(actions);
  for (std::size_t at = 0; at < actions.size(); ++at) {
    if (ChangeSend(actions, at) || ChangeMemory(actions, at) || ChangeRest(actions, at)) return;
  }
}

bool Saboteur::ChangeSend(std::vector<Action>& actions, std::size_t at) {
  if (!IsAnswer(actions[at])) return false;
  const Send send = std::get<Send>(actions[at]);
  if (Strikes(Fault::kDropSend)) {
    Drop(actions, at);
  } else if (Strikes(Fault::kSendTwice)) {
    actions.emplace_back(send);
  } else if (Strikes(Fault::kSendToNobody)) {
    std::get<Send>(actions[at]).to = ConnectionId{UINT64_MAX};
  } else if (send.attachment == Attachment::kState && Strikes(Fault::kFreeEarly)) {
    actions.emplace_back(FreeArena{send.state});
  } else if (send.attachment == Attachment::kState && Strikes(Fault::kLendWritable)) {
    std::get<Send>(actions[at]).attachment = Attachment::kBuildArena;
  } else {
    return false;
  }
  return true;
}

bool Saboteur::ChangeMemory(std::vector<Action>& actions, std::size_t at) {
  constexpr std::uint64_t kTooMuch = 1u << 20;
  if (std::holds_alternative<FreeArena>(actions[at]) && Strikes(Fault::kDropFree)) {
    Drop(actions, at);
    return true;
  }
  auto* const allocate = std::get_if<AllocateArena>(&actions[at]);
  if (allocate == nullptr) return false;
  if (Strikes(Fault::kAllocateMore)) {
    ++allocate->arena_bytes;
  } else if (Strikes(Fault::kAllocateTooMuch)) {
    allocate->arena_bytes += kTooMuch;
  } else if (Strikes(Fault::kShowEarly)) {
    const StateId state = allocate->state;
    actions.emplace_back(
        Send{ConnectionId{1}, {1, wire::ShowReply{}}, Attachment::kManifest, state});
  } else {
    return false;
  }
  return true;
}

bool Saboteur::ChangeRest(std::vector<Action>& actions, std::size_t at) {
  const Action& action = actions[at];
  const bool is_dropped =
      (std::holds_alternative<KeepRecord>(action) && Strikes(Fault::kForgetRecord)) ||
      (std::holds_alternative<KeepNode>(action) && Strikes(Fault::kForgetNode)) ||
      (std::holds_alternative<KillLoader>(action) && Strikes(Fault::kLeaveLoader)) ||
      (std::holds_alternative<DropBundle>(action) && Strikes(Fault::kLeakBundle));
  if (is_dropped) Drop(actions, at);
  return is_dropped;
}

void Saboteur::TellFirst(std::vector<Action>& actions) {
  std::stable_partition(actions.begin(), actions.end(), IsAnswer);
}

}  // namespace sticky::daemon::sim
