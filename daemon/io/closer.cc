#include "daemon/io/closer.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/deadline.h"

namespace sticky::daemon {
namespace {

struct Waiting {
  int fd = -1;
  std::int64_t since_ns = 0;
  std::shared_ptr<void> token;
};

struct Lane {  // of one user
  std::deque<Waiting> waiting;
  int thread_count = 0;  // that close one of its descriptors now
};

}  // namespace

struct Closer::Shared : std::enable_shared_from_this<Closer::Shared> {
  using Lanes = std::map<std::uint32_t, Lane>;

  CloseOne close_one;  // constant after construction

  std::mutex mutex;
  std::condition_variable called;  // a thread is called to work, or the end has come
  std::condition_variable done;    // nothing waits, and no thread closes
  // Guarded by `mutex`, all that follows.
  Lanes lanes;  // those with something to close alone
  int thread_count = 0;
  int idle_count = 0;    // that wait to be called
  int called_count = 0;  // calls that no idle thread has heard yet
  int begun_count = 0;   // that have begun and not looked for work yet
  bool ending = false;

  // A user whose next descriptor may be closed now: the one whose first has waited for longest.
  Lanes::iterator Next() {
    auto best = lanes.end();
    for (auto at = lanes.begin(); at != lanes.end(); ++at) {
      const Lane& lane = at->second;
      if (lane.waiting.empty() || lane.thread_count >= kThreadsPerOwnerMax) continue;
      const bool is_older = best == lanes.end() ||
                            lane.waiting.front().since_ns < best->second.waiting.front().since_ns;
      if (is_older) best = at;
    }
    return best;
  }

  // Sees to it that somebody is about to look for work, if there is any and a thread can be had.
  void Recruit() {
    if (called_count > 0 || begun_count > 0 || Next() == lanes.end()) return;
    if (idle_count > 0) {
      --idle_count;
      ++called_count;
      called.notify_one();
      return;
    }
    if (thread_count >= kThreadsMax) return;
    try {
      std::thread([self = shared_from_this()] { self->Run(); }).detach();
      ++thread_count;
      ++begun_count;
    } catch (const std::system_error&) {
      // The system has none to give now: those that there are see to it, or the next call.
    }
  }

  void CloseNext(Lanes::iterator at, std::unique_lock<std::mutex>& lock) {
    Lane& lane = at->second;
    Waiting next = std::move(lane.waiting.front());
    lane.waiting.pop_front();
    ++lane.thread_count;
    Recruit();  // this one may not come back
    lock.unlock();
    close_one(next.fd);
    next.token.reset();
    lock.lock();
    --lane.thread_count;
    if (lane.waiting.empty() && lane.thread_count == 0) lanes.erase(at);
    if (lanes.empty()) done.notify_all();
  }

  void Run() {
    std::unique_lock lock(mutex);
    --begun_count;
    while (!ending || Next() != lanes.end()) {
      if (const auto next = Next(); next != lanes.end()) {
        CloseNext(next, lock);
        continue;
      }
      ++idle_count;
      called.wait(lock, [this] { return called_count > 0 || ending; });
      if (called_count > 0) --called_count;
    }
  }
};

Closer::Closer(std::size_t waiting_max, CloseOne close_one)
    : waiting_max_(waiting_max), shared_(std::make_shared<Shared>()) {
  shared_->close_one = std::move(close_one);
}

Closer::~Closer() {
  std::unique_lock lock(shared_->mutex);
  shared_->ending = true;
  shared_->called.notify_all();
  shared_->done.wait_for(lock, std::chrono::milliseconds(kPatienceMs),
                         [this] { return shared_->lanes.empty(); });
  for (auto& [owner, lane] : shared_->lanes) lane.waiting.clear();
}

void Closer::Close(std::uint32_t owner, std::vector<UniqueFd> fds, std::shared_ptr<void> token) {
  const std::int64_t now_ns = MonotonicNs();
  const std::lock_guard lock(shared_->mutex);
  if (!fds.empty()) {
    Lane& lane = shared_->lanes[owner];
    for (UniqueFd& fd : fds) lane.waiting.push_back({fd.Release(), now_ns, token});
  }
  shared_->Recruit();
}

Closer::Pressure Closer::PressureOf(std::uint32_t owner) const {
  const std::lock_guard lock(shared_->mutex);
  const auto found = shared_->lanes.find(owner);
  if (found == shared_->lanes.end()) return Pressure::kNone;
  const std::deque<Waiting>& waiting = found->second.waiting;
  if (waiting.size() < waiting_max_) return Pressure::kNone;
  const std::int64_t waited_ns = MonotonicNs() - waiting.front().since_ns;
  return waited_ns < kStuckMs * 1'000'000 ? Pressure::kHigh : Pressure::kStuck;
}

ForeignFds& ForeignFds::operator=(ForeignFds&& other) noexcept {
  if (this == &other) return *this;
  Drop();
  closer_ = other.closer_;
  owner_ = other.owner_;
  fds_ = std::move(other.fds_);
  return *this;
}

void ForeignFds::Append(ForeignFds other) {
  if (closer_ == nullptr) {
    *this = std::move(other);
    return;
  }
  std::move(other.fds_.begin(), other.fds_.end(), std::back_inserter(fds_));
  other.fds_.clear();
}

ForeignFds ForeignFds::TakeFirst(std::size_t count) {
  ForeignFds taken;
  taken.closer_ = closer_;
  taken.owner_ = owner_;
  const auto end = fds_.begin() + static_cast<std::ptrdiff_t>(std::min(count, fds_.size()));
  std::move(fds_.begin(), end, std::back_inserter(taken.fds_));
  fds_.erase(fds_.begin(), end);
  return taken;
}

void ForeignFds::Drop() {
  if (closer_ != nullptr && !fds_.empty()) closer_->Close(owner_, std::exchange(fds_, {}));
}

}  // namespace sticky::daemon
