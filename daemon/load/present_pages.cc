#include "daemon/load/present_pages.h"

#include <algorithm>
#include <utility>

namespace sticky::load {

PresentPages::PresentPages(std::span<std::uint8_t> arena, MakePresent make, int maker_count_max)
    : arena_(arena),
      make_(std::move(make)),
      maker_count_max_(std::max(maker_count_max, 1)),
      is_there_(static_cast<std::size_t>((arena.size() + kStretchBytes - 1) / kStretchBytes)) {}

Status PresentPages::WaitFor(std::uint64_t offset) {
  if (!make_) return Ok{};
  constexpr std::size_t kAhead = 2;  // stretches that are kept ready, so that readers never wait
  const auto wanted = static_cast<std::size_t>(offset / kStretchBytes);
  std::unique_lock lock(mutex_);
  if (maker_count_ == 0 && next_ <= wanted + kAhead) MakeNext(lock);
  while (!error_ && !is_there_.at(wanted)) {
    if (next_ < is_there_.size() && maker_count_ < maker_count_max_) {
      MakeNext(lock);
    } else {
      changed_.wait(lock);  // for whoever makes it, or who then makes room for another to make it
    }
  }
  if (error_) return *error_;
  return Ok{};
}

void PresentPages::MakeNext(std::unique_lock<std::mutex>& lock) {
  if (next_ == is_there_.size()) return;
  const std::size_t stretch = next_++;
  ++maker_count_;
  lock.unlock();
  const std::size_t begin = stretch * kStretchBytes;
  const Status made =
      make_(arena_.subspan(begin, std::min<std::size_t>(kStretchBytes, arena_.size() - begin)));
  lock.lock();
  --maker_count_;
  is_there_[stretch] = made.ok();
  if (!made.ok() && !error_) error_ = made.error();
  changed_.notify_all();
}

}  // namespace sticky::load
