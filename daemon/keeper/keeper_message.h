// What a daemon tells its keeper: the lines of one datagram.
//
// Thread: any thread.
// Source: sd_notify(3), "Well-known assignments". Unknown lines are passed over, as it asks for.

#ifndef STICKY_DAEMON_KEEPER_KEEPER_MESSAGE_H_
#define STICKY_DAEMON_KEEPER_KEEPER_MESSAGE_H_

#include <cstddef>
#include <string_view>

namespace sticky::keeper {

inline constexpr std::size_t kMessageBytesMax = 4096;  // a longer datagram is cut, and passed over
inline constexpr std::size_t kNameBytesMax = 63;       // of a kept descriptor

struct Message {
  bool store = false;    // FDSTORE=1: keep the descriptors that came along
  bool remove = false;   // FDSTOREREMOVE=1: close what is kept under the name
  bool ready = false;    // READY=1
  bool barrier = false;  // BARRIER=1: close the descriptor that came along, and nothing else
  // FDNAME=: of printable ASCII without ':'; "stored" when none is given. Points into the text.
  std::string_view name = "stored";
  bool has_bad_name = false;  // nothing is stored or removed then
};

// Never fails: what is not understood is not there.
Message Parse(std::string_view text);

}  // namespace sticky::keeper

#endif  // STICKY_DAEMON_KEEPER_KEEPER_MESSAGE_H_
