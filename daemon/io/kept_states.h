// KeptStates: published states as the keeper has them, under names of their own: the manifest and
// the arenas of epoch 12 as "sti.s12", its newest record as "sti.r12.3", that of the daemon itself
// as "sti.n4". A state is kept once its record is; what is there without one was never published.
//
// Thread: loop thread only.
// Source: flatbuffers/wire_record.fbs; docs/reliability.md, "What is kept".

#ifndef STICKY_DAEMON_IO_KEPT_STATES_H_
#define STICKY_DAEMON_IO_KEPT_STATES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/io/inherited.h"
#include "daemon/io/keeper.h"
#include "device/host_arena.h"
#include "flatbuffers/wire_record.h"

namespace sticky::daemon {

// A state that an earlier daemon published, checked: the record, the manifest and the arenas agree,
// and nobody can change them any more.
struct KeptState {
  wire::StateRecord record;
  UniqueFd manifest;
  std::vector<device::HostArena> arenas;
};

struct Recovered {
  std::vector<KeptState> states;  // in order of epoch
  wire::NodeRecord node;
  // What a daemon of another version kept: left to it. Epochs up to `epoch_max` are taken.
  std::uint32_t foreign_count = 0;
  std::uint64_t foreign_bytes = 0;
  std::uint64_t epoch_max = 0;
  std::vector<std::string> problems;  // for the log: what was not taken over, and why
};

class KeptStates {
 public:
  explicit KeptStates(Keeper& keeper) : keeper_(keeper) {}

  // What the keeper passed on to this daemon. What can never be used by anybody is removed there.
  Recovered Recover(std::map<std::string, std::vector<UniqueFd>> kept);

  // Keeps a state. done: whether it is on its way to the keeper, who then has it whatever happens
  // to this process. Called once, perhaps at once.
  void Keep(wire::StateRecord record, int manifest, const std::vector<device::HostArena>& arenas,
            std::function<void(bool)> done);
  // A kept state's record has changed. Does nothing for one that is not kept.
  void Update(wire::StateRecord record);
  void Update(const wire::NodeRecord& record);

  bool Has(std::uint64_t epoch) const { return kept_.contains(epoch); }
  bool IsBeingForgotten(std::uint64_t epoch) const { return leaving_.contains(epoch); }
  // Has the state removed. done: when its memory is no longer held there; called once.
  void Forget(std::uint64_t epoch, std::function<void()> done);
  // Everything, that of other versions too, since the node's owner drops all states.
  void ForgetAll();
  // The keeper is gone, and so is all that it had.
  void Lose() { kept_.clear(); }

 private:
  struct Kept {
    std::vector<std::uint64_t> arena_inodes;
    std::uint64_t revision = 0;  // of its newest record; 0: it has none
  };
  // What the keeper passed on of one epoch.
  struct Pieces {
    std::vector<UniqueFd> fds;                  // the manifest and the arenas, in any order
    std::map<std::uint64_t, UniqueFd> records;  // by revision
  };
  struct Found {
    std::map<std::uint64_t, Pieces> epochs;
    std::map<std::uint64_t, UniqueFd> node_records;  // by revision
  };
  Found Sort(std::map<std::string, std::vector<UniqueFd>> kept);
  static Result<KeptState> Assemble(std::uint64_t epoch, Pieces& pieces);
  void RecoverState(std::uint64_t epoch, Pieces& pieces, Recovered& out);
  void StoreRecord(const std::string& name, std::span<const std::uint8_t> bytes, bool patient,
                   std::function<void(bool)> done);

  Keeper& keeper_;
  std::map<std::uint64_t, Kept> kept_;  // by epoch
  std::set<std::uint64_t> leaving_;     // epochs that the keeper has been told to let go of
  std::uint64_t node_revision_ = 0;
};

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_IO_KEPT_STATES_H_
