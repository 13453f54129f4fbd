// LeaseTable: which connection holds which state. A leased state is never freed.
//
// Thread: loop thread only. Owns the lease records; names states and connections by id. Granting,
// ending and counting cost the logarithm of what is there.
// Source: docs/ARCHITECTURE.md, "Life of an invocation".

#ifndef STICKY_DAEMON_CORE_LEASE_TABLE_H_
#define STICKY_DAEMON_CORE_LEASE_TABLE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace sticky::daemon {

struct Lease {
  StateId state;
  ConnectionId connection;
  std::uint32_t uid = 0;
  std::int64_t granted_ns = 0;  // monotonic
  bool hold = false;            // of a sticky task
  std::string job;              // untrusted text
};

class LeaseTable {
 public:
  // lease_count_max: most leases alive at once; the table never grows past it.
  explicit LeaseTable(std::uint32_t lease_count_max);

  // Errors: kOutOfMemory when lease_count_max leases are alive; nothing changes then.
  Result<LeaseId> Grant(const Lease& lease);

  // Ends one lease. Harmless for one that has ended already.
  void End(LeaseId id);

  // The connection is gone: ends all its leases and returns them, in order of granting. Harmless
  // for a connection that holds none.
  std::vector<Lease> EndAll(ConnectionId connection);

  std::uint32_t CountOn(StateId state) const { return At(on_state_, state).leases; }
  std::uint32_t HoldCountOn(StateId state) const { return At(on_state_, state).holds; }
  std::uint32_t CountOf(std::uint32_t uid) const { return At(of_user_, uid).leases; }
  std::uint32_t count() const { return static_cast<std::uint32_t>(leases_.size()); }
  const std::map<LeaseId, Lease>& leases() const { return leases_; }  // in order of granting

 private:
  struct Counts {
    std::uint32_t leases = 0;
    std::uint32_t holds = 0;
  };
  template <typename Key>
  static Counts At(const std::map<Key, Counts>& counts, const Key& key) {
    const auto found = counts.find(key);
    return found == counts.end() ? Counts{} : found->second;
  }
  template <typename Key>
  static void TakeFrom(std::map<Key, Counts>& counts, const Key& key, bool hold);

  const std::uint32_t lease_count_max_;
  std::uint64_t next_id_ = 1;
  std::map<LeaseId, Lease> leases_;
  std::map<ConnectionId, std::set<LeaseId>> of_connection_;
  std::map<StateId, Counts> on_state_;
  std::map<std::uint32_t, Counts> of_user_;
};

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_CORE_LEASE_TABLE_H_
