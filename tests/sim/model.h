// What the simulator knows of the world outside the core: processes, memory, the keeper, requests
// that wait for an answer; and the first invariant that was found broken.
//
// Thread: one thread at a time (plain values).
// Source: docs/reliability.md, "The simulator".

#ifndef STICKY_TESTS_SIM_MODEL_H_
#define STICKY_TESTS_SIM_MODEL_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/node_state.h"

namespace sticky::daemon::sim {

inline constexpr std::int64_t kMs = 1'000'000;
inline constexpr std::uint32_t kOurUid = 1000;  // the node's owner; others follow

// What holds after each event, and at the end of a history.
enum class Invariant : std::int8_t {
  kUsedBytes = 0,  // used bytes are the sum of what the outside has
  kNotInUse,       // nothing in use is freed
  kWithinBudget,   // nothing is allocated past the budget of the node, or of a user
  kOneAnswer,      // a request is answered once, a waiter is one that is not, a load fails once
  kInTime,         // nothing is answered later than its deadline and a tick
  kDeadPeer,       // a dead peer holds nothing, and is told nothing
  kPublishedOnly,  // only what is published is handed out, and never writable
  kMayUse,         // nobody is handed what is not for him
  kKeptRecord,     // the keeper has what the daemon would say
  kToldIsKept,     // nobody is told what the keeper does not know yet
  kTakenOver,      // the next daemon has every kept state, as it was
  kWithinLimits,   // no table grows past its limit
  kNothingLeft,    // when everybody has gone, nothing is left
};
const char* Name(Invariant invariant);  // "used bytes are the sum of ..."; static text

struct Violation {
  Invariant invariant;
  std::string text;         // what was found, with the values
  std::uint64_t event = 0;  // number of the event in the history, from 1
};

struct Client {
  Peer peer;
  bool refused = false;  // it was turned away, and asks for nothing
};
// The memory of one state, whoever has a descriptor of it.
struct Memory {
  Digest content;  // once it is filled
  bool is_sealed = false;
};
using MemoryId = std::uint64_t;
struct Mapping {
  MemoryId memory = 0;
  std::uint64_t connection = 0;  // 0: of a process that goes on without one
  bool is_writable = false;
};
// What the daemon has of a state.
struct Held {
  MemoryId memory = 0;
  std::uint64_t bytes = 0;
  std::uint64_t epoch = 0;  // once it is sealed
  bool is_published = false;
};
struct Request {
  wire::Body body;
  std::int64_t deadline_ns = 0;
  std::uint64_t event = 0;          // when it was asked
  std::uint64_t drained_epoch = 0;  // of the one kept state of the name that is drained
  bool at_once = false;             // it does not wait: its answer comes with the same event
};
struct Loader {
  enum class Step : std::int8_t { kPlanning = 0, kPlanned, kFilling, kPrefaulting, kIdle, kEnded };
  Step step = Step::kPlanning;
  bool is_killed = false;
};
struct Requester {
  std::string name;
  std::optional<std::uint64_t> connection;
  bool is_killed = false;
};
struct Kept {
  wire::StateRecord record;
  MemoryId memory = 0;
};
struct Keeper {
  bool is_there = true;
  std::map<std::uint64_t, Kept> states;  // by epoch
  wire::NodeRecord node;
};
// Messages on their way to the keeper, when its socket is full.
struct Keeping {
  StateId state;
  wire::StateRecord record;
  bool arrived = false;
  bool cancelled = false;
};
struct Forgetting {
  StateId state;
  std::uint64_t epoch = 0;
};

// How often things happened: a history that does nothing proves nothing.
struct Counts {
  std::uint64_t events = 0;
  std::uint64_t published = 0;
  std::uint64_t attached = 0;
  std::uint64_t freed = 0;
  std::uint64_t restarts = 0;
  std::uint64_t taken_over = 0;
  std::uint64_t builds = 0;
  Counts& operator+=(const Counts& other);
};

Limits TightLimits();

struct Model {
  explicit Model(unsigned seed) : rng(seed) {}

  std::uint64_t Below(std::uint64_t limit) { return rng() % limit; }
  bool OneIn(std::uint64_t count) { return Below(count) == 0; }
  // The first one counts; the history ends there.
  void Fail(Invariant invariant, std::string text);
  std::uint64_t UsedBytes() const;
  bool IsMapped(MemoryId id, bool writable_only = false) const;
  const Held* FindHeld(StateId id) const;

  const Limits limits = TightLimits();
  std::mt19937 rng;
  std::int64_t now_ns = kMs;
  std::optional<Violation> violation;
  Counts counts;

  std::unique_ptr<NodeState> core;
  std::uint64_t foreign_bytes = 0;
  // In this life of the daemon.
  std::map<std::uint64_t, Client> clients;
  std::map<std::pair<std::uint64_t, std::uint32_t>, Request> open;  // connection, request
  std::map<StateId, Held> held;
  std::map<StateId, std::uint64_t> dying;  // given up, but its loader may map it: bytes
  std::map<StateId, Loader> loaders;       // until they have been reaped
  std::map<StateId, Requester> requesters;
  std::set<StateId> failed;  // loads that were told to end
  std::set<BundleId> bundles;
  std::deque<Keeping> keepings;
  std::deque<Forgetting> forgettings;
  bool keeper_loss_told = false;
  bool is_stopping = false;
  bool drops_states = false;
  // Over all lives.
  Keeper keeper;
  std::map<MemoryId, Memory> memories;
  std::vector<Mapping> mappings;
  std::uint64_t next_memory = 1;
  std::uint64_t next_connection = 1;
  std::uint64_t next_bundle = 1;
  std::uint32_t next_request = 1;
};

}  // namespace sticky::daemon::sim

#endif  // STICKY_TESTS_SIM_MODEL_H_
