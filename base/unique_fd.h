// UniqueFd: owns one file descriptor and closes it.
//
// Thread: one thread at a time.

#ifndef STICKY_BASE_UNIQUE_FD_H_
#define STICKY_BASE_UNIQUE_FD_H_

#include <utility>

#include <unistd.h>

namespace sticky {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}  // takes ownership; a negative number means none
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.Release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(other.Release());
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { Reset(); }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }

  // The caller owns the descriptor from here on.
  [[nodiscard]] int Release() { return std::exchange(fd_, -1); }

  // Closes what is held, then holds `fd`.
  void Reset(int fd = -1) {
    const int old = std::exchange(fd_, fd);
    if (old >= 0) ::close(old);
  }

 private:
  int fd_ = -1;
};

}  // namespace sticky

#endif  // STICKY_BASE_UNIQUE_FD_H_
