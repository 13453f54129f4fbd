#include "daemon/keeper/fd_store.h"

#include <cstring>

#include <unistd.h>

namespace sticky::keeper {

bool FdStore::Add(std::string_view name, std::span<const int> fds) {
  const std::size_t bytes = fds.size() * (name.size() + 1);
  if (fds.size() > kKeptFdsMax - size_ || names_bytes_ + bytes > kNamesBytesMax) {
    for (const int fd : fds) ::close(fd);
    return false;
  }
  names_bytes_ += bytes;
  for (const int fd : fds) {
    Kept& kept = kept_[size_++];
    kept.fd = fd;
    kept.name = {};
    std::memcpy(kept.name.data(), name.data(), name.size());
  }
  return true;
}

void FdStore::Remove(std::string_view name) {
  std::size_t left = 0;
  for (std::size_t i = 0; i < size_; ++i) {
    if (name == kept_[i].name.data()) {
      ::close(kept_[i].fd);
      names_bytes_ -= name.size() + 1;
    } else {
      kept_[left++] = kept_[i];
    }
  }
  size_ = left;
}

void FdStore::RemoveAll() {
  while (size_ > 0) ::close(kept_[--size_].fd);
  names_bytes_ = 0;
}

}  // namespace sticky::keeper
