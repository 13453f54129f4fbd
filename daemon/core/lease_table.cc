#include "daemon/core/lease_table.h"

#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace sticky::daemon {

LeaseTable::LeaseTable(std::uint32_t lease_count_max) : lease_count_max_(lease_count_max) {
  STICKY_CHECK(lease_count_max > 0);
}

Result<LeaseId> LeaseTable::Grant(const Lease& lease) {
  if (leases_.size() >= lease_count_max_) {
    return Error{Code::kOutOfMemory, Format("grant a lease: the node's limit of %u is reached "
                                            "(limits.leases in the node config)",
                                            lease_count_max_)};
  }
  // Ids are never reused, so a late message from a dead peer cannot end someone else's lease.
  const LeaseId id{next_id_++};
  leases_.emplace(id, lease);
  of_connection_[lease.connection].insert(id);
  for (Counts* counts : {&on_state_[lease.state], &of_user_[lease.uid]}) {
    ++counts->leases;
    counts->holds += lease.hold ? 1 : 0;
  }
  return id;
}

template <typename Key>
void LeaseTable::TakeFrom(std::map<Key, Counts>& counts, const Key& key, bool hold) {
  const auto found = counts.find(key);
  STICKY_CHECK(found != counts.end());
  found->second.holds -= hold ? 1 : 0;
  if (--found->second.leases == 0) counts.erase(found);
}

void LeaseTable::End(LeaseId id) {
  const auto found = leases_.find(id);
  if (found == leases_.end()) return;
  const Lease& lease = found->second;
  TakeFrom(on_state_, lease.state, lease.hold);
  TakeFrom(of_user_, lease.uid, lease.hold);
  const auto own = of_connection_.find(lease.connection);
  own->second.erase(id);
  if (own->second.empty()) of_connection_.erase(own);
  leases_.erase(found);
}

std::vector<Lease> LeaseTable::EndAll(ConnectionId connection) {
  std::vector<Lease> ended;
  const auto own = of_connection_.find(connection);
  if (own == of_connection_.end()) return ended;
  const std::set<LeaseId> ids = own->second;
  for (const LeaseId id : ids) {
    ended.push_back(leases_.at(id));
    End(id);
  }
  return ended;
}

}  // namespace sticky::daemon
