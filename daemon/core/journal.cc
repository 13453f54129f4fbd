#include "daemon/core/journal.h"

#include <algorithm>
#include <utility>

namespace sticky::daemon {

void Journal::Add(Entry entry) {
  entry.event.sequence = ++last_;
  entries_.push_back(std::move(entry));
  if (entries_.size() > event_count_max_) entries_.pop_front();
}

wire::EventsReply Journal::Since(std::uint64_t after,
                                 const std::function<bool(const Entry&)>& is_visible) const {
  wire::EventsReply reply;
  const std::uint64_t oldest = last_ - entries_.size() + 1;
  const std::uint64_t from = std::min(after, last_) + 1;
  if (from < oldest) reply.lost = oldest - from;
  reply.last = last_;
  for (std::uint64_t at = std::max(from, oldest); at <= last_; ++at) {
    const Entry& entry = entries_[static_cast<std::size_t>(at - oldest)];
    if (!is_visible(entry)) continue;
    if (reply.events.size() == kEventsPerReplyMax) {
      reply.last = at - 1;
      break;
    }
    reply.events.push_back(entry.event);
  }
  return reply;
}

}  // namespace sticky::daemon
