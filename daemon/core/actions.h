// What the core asks of the outside world, and what it knows of it. Values only.
//
// Thread: any thread (plain values).

#ifndef STICKY_DAEMON_CORE_ACTIONS_H_
#define STICKY_DAEMON_CORE_ACTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/policy.h"
#include "flatbuffers/wire_codec.h"
#include "flatbuffers/wire_record.h"

namespace sticky::daemon {

// Who is at the other end of a connection, as the kernel and /proc say.
struct Peer {
  std::uint64_t pid = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;              // primary group
  std::vector<std::uint32_t> groups;  // supplementary ones
  std::string command;                // untrusted text
};

// What one user who is not the node's owner may have at once.
struct UserLimits {
  std::uint32_t connection_count_max = 1024;
  std::uint32_t load_count_max = 8;  // that run or wait
  std::uint64_t memory_bytes = 0;    // of states that the user had built; 0: the budget alone
  std::uint32_t lease_count_max = 2048;
};

// What the node's owner allows; see config/node_config.h for meanings and defaults.
struct Limits {
  std::uint64_t budget_bytes = 0;
  std::uint32_t lease_count_max = 4096;
  std::uint32_t state_count_max = 256;
  std::uint32_t load_count_max = 4;                // that run at once
  std::uint32_t queue_count_max = 64;              // loads that wait for their turn or for room
  std::uint32_t waiter_count_max = 16384;          // requests that wait, all together
  std::uint32_t connection_waiter_count_max = 64;  // requests that wait, of one connection
  std::uint32_t failed_count_max = 64;             // failed loads whose reason is kept
  std::uint32_t event_count_max = 4096;            // events that are kept
  UserLimits user;
  std::optional<Access> who;  // who may connect, besides the node's owner; absent: everyone
  std::int64_t plan_ns = 60'000'000'000;
  std::int64_t fill_stall_ns = 60'000'000'000;
  std::int64_t failed_kept_ns = 600'000'000'000;
  std::int64_t build_ns = 3600ll * 1'000'000'000;  // from the begin of a build to its commit
  std::int64_t room_ns =
      30'000'000'000;  // for evicted memory to come, when nobody waits for a load
  std::int64_t progress_ns = 100'000'000;  // least time between two LoadProgress to one waiter
  std::int64_t hold_again_ns =
      30'000'000'000;  // for sticky tasks to hold their states again after the daemon was restarted
  std::int64_t borrower_ns = 50'000'000;  // time between two looks whether an arena is free
};

// A template that the node's owner has installed. The outside knows its file.
struct Installed {
  std::string name;  // of the state
  std::string path;
  BuildWhen build = BuildWhen::kManual;
  Access access;           // as the state will have it, until the file is read again
  Digest template_digest;  // likewise
  std::string problem;     // not empty: it cannot be used, and has no name
};

// What an earlier daemon left besides its states.
struct Adoption {
  wire::NodeRecord node;
  std::uint32_t foreign_count = 0;  // states that are left to a daemon of another version
  std::uint64_t foreign_bytes = 0;
  std::uint64_t epoch_max = 0;  // the highest that is taken
};

// Files that came with a load request; the outside owns their descriptors under this number.
struct BundleId {
  std::uint64_t value;
  auto operator<=>(const BundleId&) const = default;
};

enum class Attachment : std::int8_t {
  kNone = 0,
  kManifest,    // the state's manifest
  kState,       // the manifest and a freshly lent description of each arena, whose size the
                // outside adds to the reply
  kBuildArena,  // of a BuildArenaReply: that arena, writable
};

struct Send {
  ConnectionId to;
  wire::Message message;
  Attachment attachment = Attachment::kNone;
  StateId state{0};  // when something is attached
  LeaseId lease{0};  // when kState: told back by NodeState::LendFailed if lending fails
};
struct DropBundle {
  BundleId bundle;
};
// Run a requester, as the daemon's own user, that asks for the load of an installed template. The
// load comes as any other; reports RequesterEnded.
struct StartRequester {
  StateId state;
  std::string path;  // of the template
};
struct StartLoader {  // the outside reports Planned or LoaderFailed
  StateId state;
  BundleId bundle;
  wire::PlanRequest request;
};
struct AllocateArena {  // those of the plan; for the loader; reports ArenaAllocated or LoaderFailed
  StateId state;
  std::uint64_t arena_bytes = 0;  // what they take together
  bool huge_pages = false;
  bool prefault = true;
};
// Write the manifest, seal, have it kept; reports Published or LoaderFailed.
struct Publish {
  StateId state;
  std::uint64_t daemon_nonce = 0;
  wire::StateRecord record;
};
struct KeepRecord {  // of a state that is kept: it has changed
  StateId state;
  wire::StateRecord record;
};
struct KeepNode {
  wire::NodeRecord record;
};
// End the daemon as ShutDown does, and leave its states to the next one, or drop them.
struct Stop {
  bool keep_states = false;
};
// For a builder; the outside makes its pages present and reports BuildArenaMade or LoaderFailed.
struct MakeBuildArena {
  StateId state;
  std::uint64_t arena_bytes = 0;
};
// Seals the arenas of a build and has them digested; reports BuildNotSealed, Filled or
// LoaderFailed.
struct CommitBuild {
  StateId state;
};
struct KillLoader {
  StateId state;
};
struct FreeArena {  // closes the daemon's descriptors of the state
  StateId state;
};
// Reports Borrowers. When there are none, the keeper lets go of the memory first, and the report
// comes when it has.
struct AskBorrowers {
  StateId state;
};
struct Log {
  enum class Level : std::int8_t { kError = 0, kWarning, kInfo, kDebug };
  Level level = Level::kInfo;
  std::string text;  // safe to print
};

using Action = std::variant<Send, DropBundle, StartRequester, StartLoader, AllocateArena, Publish,
                            KeepRecord, KeepNode, MakeBuildArena, CommitBuild, KillLoader,
                            FreeArena, AskBorrowers, Stop, Log>;

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_CORE_ACTIONS_H_
