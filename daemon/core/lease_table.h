// LeaseTable: which connection holds which state. A leased state is never freed.
//
// Thread: loop thread only. Owns the lease records; names states and connections by id.
// Source: docs/ARCHITECTURE.md, "Life of an invocation".

#ifndef STICKY_DAEMON_CORE_LEASE_TABLE_H_
#define STICKY_DAEMON_CORE_LEASE_TABLE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace sticky::daemon {

struct Lease {
  StateId state;
  ConnectionId connection;
  std::int64_t granted_ns = 0;  // monotonic
  bool hold = false;            // of a sticky task
};

class LeaseTable {
 public:
  // lease_count_max: most leases alive at once; the table never grows past it.
  explicit LeaseTable(std::uint32_t lease_count_max);

  // Errors: kOutOfMemory when lease_count_max leases are alive; nothing changes then.
  Result<LeaseId> Grant(const Lease& lease);

  // Ends one lease. Harmless for one that has ended already.
  void End(LeaseId id) { leases_.erase(id); }

  // The connection is gone: ends all its leases and returns them, in order of granting. Harmless
  // for a connection that holds none.
  std::vector<Lease> EndAll(ConnectionId connection);

  std::uint32_t CountOn(StateId state) const;
  std::uint32_t HoldCountOn(StateId state) const;
  std::uint32_t count() const { return static_cast<std::uint32_t>(leases_.size()); }
  const std::map<LeaseId, Lease>& leases() const { return leases_; }  // in order of granting

 private:
  const std::uint32_t lease_count_max_;
  std::uint64_t next_id_ = 1;
  std::map<LeaseId, Lease> leases_;
};

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_CORE_LEASE_TABLE_H_
