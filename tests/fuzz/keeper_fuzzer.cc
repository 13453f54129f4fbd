// Datagrams to the keeper: whatever is said, its store holds what
// was stored and not removed, within its limits, and no descriptor is lost.

#include <array>
#include <map>
#include <memory>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "daemon/keeper/fd_store.h"
#include "daemon/keeper/keeper_message.h"
#include "tests/fuzz/fuzzer.h"

using namespace sticky;  // NOLINT(google-build-using-namespace): a program of one function

namespace {

// Two descriptors each: far fewer than a process may have open.
constexpr std::size_t kStoresMax = 64;

bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

// Does what a message says, to the store and to a simple model of it: names and how often.
class Rig {
 public:
  void Say(std::string_view text) {
    const keeper::Message message = keeper::Parse(text);
    if (!message.has_bad_name) {
      FUZZ_CHECK(!message.name.empty() && message.name.size() <= keeper::kNameBytesMax);
      for (const char c : message.name) FUZZ_CHECK(c > ' ' && c <= '~' && c != ':');
    }
    if (message.has_bad_name) return;
    if (message.remove) Remove(message.name);
    if (message.store && stores_ < kStoresMax) Add(message.name);
    Check();
  }

 private:
  void Add(std::string_view name) {
    ++stores_;
    const std::array<int, 2> fds = {::dup(STDIN_FILENO), ::dup(STDIN_FILENO)};
    if (fds[0] < 0 || fds[1] < 0) return;
    FUZZ_CHECK(store_->Add(name, fds));
    counts_[std::string(name)] += fds.size();
  }
  void Remove(std::string_view name) {
    store_->Remove(name);
    counts_.erase(std::string(name));
  }
  void Check() const {
    std::size_t fd_count = 0;
    std::size_t names_bytes = 0;
    for (const auto& [name, count] : counts_) {
      fd_count += count;
      names_bytes += count * (name.size() + 1);
    }
    FUZZ_CHECK(store_->size() == fd_count);
    FUZZ_CHECK(store_->names_bytes() == names_bytes);
    for (std::size_t i = 0; i < store_->size(); ++i) {
      FUZZ_CHECK(counts_.contains(store_->name(i)));
      FUZZ_CHECK(IsOpen(store_->fd(i)));
    }
  }

  std::unique_ptr<keeper::FdStore> store_ = std::make_unique<keeper::FdStore>();
  std::map<std::string, std::size_t> counts_;
  std::size_t stores_ = 0;
};

}  // namespace

// Messages end with NUL, which no message that is understood has in it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const int before = ::dup(STDIN_FILENO);
  if (before >= 0) ::close(before);
  {
    Rig rig;
    std::string_view rest = fuzz::Text(bytes, size);
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find('\0'), rest.size());
      rig.Say(rest.substr(0, std::min(end, keeper::kMessageBytesMax)));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  const int after = ::dup(STDIN_FILENO);  // the lowest that is free: all others were closed
  if (after >= 0) ::close(after);
  FUZZ_CHECK(after == before);
  return 0;
}
