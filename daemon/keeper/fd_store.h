// FdStore: descriptors under names, kept for the next daemon.
//
// Thread: one thread.

#ifndef STICKY_DAEMON_KEEPER_FD_STORE_H_
#define STICKY_DAEMON_KEEPER_FD_STORE_H_

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "daemon/keeper/keeper_message.h"

namespace sticky::keeper {

inline constexpr std::size_t kKeptFdsMax = 4096;
// Of all names together, joined by ':': they travel in one variable of the environment, which the
// kernel limits to 128 KiB (execve(2), MAX_ARG_STRLEN).
inline constexpr std::size_t kNamesBytesMax = 96u << 10;

class FdStore {
 public:
  FdStore() = default;
  ~FdStore() { RemoveAll(); }
  FdStore(const FdStore&) = delete;
  FdStore& operator=(const FdStore&) = delete;

  // Takes the descriptors over. False when there is no room for all: none is kept then, and all
  // are closed. Requires a name of at most kNameBytesMax.
  bool Add(std::string_view name, std::span<const int> fds);
  void Remove(std::string_view name);
  void RemoveAll();

  std::size_t size() const { return size_; }
  std::size_t names_bytes() const { return names_bytes_; }     // joined, with a NUL at the end
  int fd(std::size_t index) const { return kept_[index].fd; }  // index < size()
  // Ends with NUL; valid until the next change.
  const char* name(std::size_t index) const { return kept_[index].name.data(); }

 private:
  struct Kept {
    int fd = -1;
    std::array<char, kNameBytesMax + 1> name{};
  };
  std::array<Kept, kKeptFdsMax> kept_{};
  std::size_t size_ = 0;
  std::size_t names_bytes_ = 0;
};

}  // namespace sticky::keeper

#endif  // STICKY_DAEMON_KEEPER_FD_STORE_H_
