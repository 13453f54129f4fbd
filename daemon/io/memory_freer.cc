#include "daemon/io/memory_freer.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sticky::daemon {
namespace {

constexpr std::uint64_t kLookMs = 5;

}  // namespace

MemoryFreer::MemoryFreer(Loop& loop, Closer& closer)
    : closer_(closer), look_(loop, [this] { Look(); }) {}

void MemoryFreer::Free(std::vector<device::HostArena> arenas, std::function<void()> done) {
  std::vector<UniqueFd> fds;
  for (device::HostArena& arena : arenas) fds.push_back(std::move(arena).TakeFd());
  const auto token = std::make_shared<int>();
  freeing_.push_back({token, std::move(done)});
  closer_.Close(Closer::kOurMemory, std::move(fds), token);
  look_.Start(kLookMs, kLookMs);
}

void MemoryFreer::Look() {
  closer_.Close(Closer::kOurMemory, {});  // for threads that could not be had before
  const auto first_freed = std::stable_partition(
      freeing_.begin(), freeing_.end(), [](const Freeing& one) { return !one.token.expired(); });
  std::vector<Freeing> freed(std::make_move_iterator(first_freed),
                             std::make_move_iterator(freeing_.end()));
  freeing_.erase(first_freed, freeing_.end());
  if (freeing_.empty()) look_.Stop();
  for (const Freeing& one : freed) one.done();  // may free more
}

}  // namespace sticky::daemon
