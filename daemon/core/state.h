// State: what the core knows of one state, from the request for it to the end of its memory.
//
// Thread: loop thread only (plain values).

#ifndef STICKY_DAEMON_CORE_STATE_H_
#define STICKY_DAEMON_CORE_STATE_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "daemon/core/access.h"
#include "daemon/core/actions.h"
#include "flatbuffers/wire_codec.h"

namespace sticky::daemon {

struct State {
  StateId id{0};
  std::string name;
  std::uint64_t epoch = 0;
  wire::StatePhase phase = wire::StatePhase::kQueued;

  // As it was asked for.
  std::uint32_t uid = 0;  // its owner
  std::uint32_t gid = 0;  // the owner's primary group
  Policy policy;
  Digest template_digest;
  std::string source;
  DtypeChoice dtype = DtypeChoice::kAuto;
  bool huge_pages_wanted = false;
  bool prefault = true;
  std::uint32_t file_count = 0;
  std::optional<Digest> expect_digest;  // the loader compares it
  std::int64_t asked_ns = 0;

  // Who wants it.
  bool kept_by_holds = false;            // drains by itself when its last hold ends
  std::set<ConnectionId> holders_to_be;  // asked with hold, have not attached yet
  bool cancelled_when_unwanted = false;  // everyone who asked for the load waits for it
  bool is_expected = false;  // of an installed template; the load has not been asked for
  bool closed = false;       // drained by an admin: kept, but no new leases
  // Of a state that a builder makes, not the loader.
  std::optional<ConnectionId> builder;  // until it is published
  std::string built_by;                 // untrusted text
  std::optional<StateId> base;          // what it is derived from, and keeps
  std::string base_name;
  std::optional<Digest> base_digest;
  std::int64_t build_deadline_ns = 0;
  std::vector<std::uint64_t> build_arenas;  // of each: bytes
  bool is_helped = false;                   // a child makes its pages present, or digests it

  // Its load.
  std::optional<BundleId> bundle;   // its files, until a loader has them
  std::optional<StateId> replaces;  // the earlier epoch, drained when this one is published
  std::optional<StateId> follows;   // the earlier epoch, gone before this one gets memory
  bool gives_way = false;           // drained for one that follows, and open again if that fails
  std::uint64_t wanted_bytes = 0;   // planned, or asked for; while it waits for room
  std::uint64_t arena_bytes = 0;    // taken from the budget; 0 until there was room
  std::uint32_t tensor_count = 0;
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes_present = 0;
  std::string huge_pages;
  std::optional<Digest> content_digest;
  std::optional<wire::Failure> failure;
  bool is_kept = false;               // a keeper has it too
  bool is_record_stale = false;       // it has changed since its record was handed to the keeper
  std::int64_t awaited_until_ns = 0;  // taken over: until then its sticky tasks may come back
  bool cancelled = false;             // failed because it was given up: nothing went wrong

  // When. Monotonic; 0: not yet.
  std::int64_t moved_ns = 0;   // last sign of life of the load
  std::int64_t ended_ns = 0;   // ready or failed
  std::int64_t used_ns = 0;    // its last lease ended, or it became ready
  std::int64_t looked_ns = 0;  // last AskBorrowers
  bool is_looked_at = false;   // AskBorrowers has not been answered
  // In the queue: since when, 0 while it is not; and all in all before that.
  std::int64_t queued_since_ns = 0;
  std::int64_t queued_ns = 0;

  Ownership ownership() const { return {uid, gid, policy.access}; }
  // Its load, or its build, has not ended.
  bool IsLoading() const {
    return phase == wire::StatePhase::kPlanning || phase == wire::StatePhase::kFilling ||
           phase == wire::StatePhase::kQueued;
  }
  // A loader is at work on it.
  bool IsRunning() const { return IsLoading() && phase != wire::StatePhase::kQueued && !builder; }
};

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_CORE_STATE_H_
