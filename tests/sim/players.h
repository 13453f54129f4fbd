// Players: clients of several users, builders, loaders, requesters, admins, time, and what kills
// daemons and keepers. Each step, one of them does something at random.
//
// Thread: one thread at a time. The model and the outside are the caller's.

#ifndef STICKY_TESTS_SIM_PLAYERS_H_
#define STICKY_TESTS_SIM_PLAYERS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "tests/sim/model.h"
#include "tests/sim/outside.h"

namespace sticky::daemon::sim {

class Players {
 public:
  Players(Model& model, Outside& outside) : model_(model), outside_(outside) {}

  void Step();
  // Everybody leaves, everything is evicted; what was promised to end has ended.
  void Leave();

 private:
  void MoveAClient();
  void MoveABuilder();
  void MoveAnAdmin();
  void MoveAChild();
  void MoveALoader();
  void MoveARequester();
  void MoveTheKeeper();
  void MoveTheDaemon();
  void MoveTime();

  void Connect();
  void Disconnect();
  void AskLoad(std::uint64_t connection, const std::string& name);
  void AskAttach(std::uint64_t connection);
  void AskToLook(std::uint64_t connection);
  void AskBuild(std::uint64_t connection);
  void LetGo();

  // Of those who may ask; absent when nobody is connected.
  std::optional<std::uint64_t> AnyClient();
  std::optional<std::uint64_t> AnyOwner();
  std::optional<std::uint64_t> AnyBuilder();
  template <typename Map>
  auto Any(const Map& map) {
    auto at = map.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(model_.Below(map.size())));
    return at->first;
  }
  std::string Name();
  std::uint32_t WaitMs();
  Policy AnyPolicy();
  void LeaveOnce(std::uint64_t owner);
  void EndChildren();

  Model& model_;
  Outside& outside_;
};

}  // namespace sticky::daemon::sim

#endif  // STICKY_TESTS_SIM_PLAYERS_H_
