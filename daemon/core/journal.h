// Journal: what happened lately on this node, for people who look and programs that follow.
// Bounded: the oldest event goes when a new one comes, and whoever asks too late is told how many
// were lost.
//
// Thread: loop thread only.

#ifndef STICKY_DAEMON_CORE_JOURNAL_H_
#define STICKY_DAEMON_CORE_JOURNAL_H_

#include <cstdint>
#include <deque>
#include <functional>

#include "daemon/core/access.h"
#include "flatbuffers/wire_codec.h"

namespace sticky::daemon {

class Journal {
 public:
  static constexpr std::size_t kEventsPerReplyMax = 512;

  struct Entry {
    wire::Event event;  // its sequence is given by Add
    Ownership about;    // of the state that it is about; of the actor when there is none
  };

  // event_count_max: most events that are kept, at least 1.
  explicit Journal(std::uint32_t event_count_max) : event_count_max_(event_count_max) {}

  void Add(Entry entry);

  // The first kEventsPerReplyMax events after sequence number `after` that `is_visible` lets
  // through. `last` of the reply is where to go on from.
  wire::EventsReply Since(std::uint64_t after,
                          const std::function<bool(const Entry&)>& is_visible) const;

  std::uint64_t last() const { return last_; }

 private:
  const std::uint32_t event_count_max_;
  std::deque<Entry> entries_;
  std::uint64_t last_ = 0;
};

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_CORE_JOURNAL_H_
