#include "daemon/core/lease_table.h"

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
  return id;
}

std::vector<Lease> LeaseTable::EndAll(ConnectionId connection) {
  std::vector<Lease> ended;
  for (auto it = leases_.begin(); it != leases_.end();) {
    if (it->second.connection != connection) {
      ++it;
      continue;
    }
    ended.push_back(it->second);
    it = leases_.erase(it);
  }
  return ended;
}

std::uint32_t LeaseTable::CountOn(StateId state) const {
  std::uint32_t count = 0;
  for (const auto& [id, lease] : leases_) count += lease.state == state ? 1 : 0;
  return count;
}

std::uint32_t LeaseTable::HoldCountOn(StateId state) const {
  std::uint32_t count = 0;
  for (const auto& [id, lease] : leases_) count += lease.state == state && lease.hold ? 1 : 0;
  return count;
}

}  // namespace sticky::daemon
