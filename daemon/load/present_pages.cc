#include "daemon/load/present_pages.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace sticky::load {

PresentPages::PresentPages(std::span<std::uint8_t> arena, MakePresent make, int maker_count)
    : arena_(arena),
      make_(std::move(make)),
      maker_count_max_(std::max(maker_count, 1)),
      is_there_(static_cast<std::size_t>((arena.size() + kStretchBytes - 1) / kStretchBytes)) {
  const auto count = std::min<std::size_t>(static_cast<std::size_t>(maker_count_max_),
                                           make_ ? is_there_.size() : 0);
  try {
    while (makers_.size() < count) makers_.emplace_back([this] { MakeAll(); });
  } catch (const std::system_error&) {  // the limit of threads is reached
  }
}

PresentPages::~PresentPages() {
  const std::scoped_lock lock(mutex_);
  stopped_ = true;
}

void PresentPages::MakeAll() {
  std::unique_lock lock(mutex_);
  while (!stopped_ && !error_ && next_ < is_there_.size()) {
    if (maker_count_ < maker_count_max_) {
      MakeNext(lock);
    } else {
      changed_.wait(lock);
    }
  }
}

Status PresentPages::WaitFor(std::uint64_t offset) {
  if (!make_) return Ok{};
  const auto wanted = static_cast<std::size_t>(offset / kStretchBytes);
  std::unique_lock lock(mutex_);
  while (!error_ && !is_there_.at(wanted)) {
    if (next_ <= wanted && maker_count_ < maker_count_max_) {
      MakeNext(lock);
    } else {
      changed_.wait(lock);  // for whoever makes it, or who then makes room for another to make it
    }
  }
  if (error_) return *error_;
  return Ok{};
}

void PresentPages::MakeNext(std::unique_lock<std::mutex>& lock) {
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
