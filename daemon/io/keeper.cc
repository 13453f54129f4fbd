#include "daemon/io/keeper.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/deadline.h"
#include "daemon/io/notify.h"

namespace sticky::daemon {
namespace {

// Sends a datagram with descriptors. Returns 0 or an errno.
int SendWithFds(int socket, const std::string& text, const std::vector<UniqueFd>& fds) {
  iovec part{const_cast<char*>(text.data()), text.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(Keeper::kFdsPerNameMax * sizeof(int))> control{};
  if (!fds.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    for (std::size_t i = 0; i < fds.size(); ++i) {
      const int fd = fds[i].get();
      std::memcpy(CMSG_DATA(rights) + i * sizeof fd, &fd, sizeof fd);
    }
  }
  return ::sendmsg(socket, &header, MSG_NOSIGNAL) < 0 ? errno : 0;
}

std::uint32_t StoreMax() {
  const char* const max = std::getenv("FDSTORE");
  if (max == nullptr) return 0;
  constexpr unsigned long kStoreMax = 1u << 16;
  return static_cast<std::uint32_t>(std::min(std::strtoul(max, nullptr, 10), kStoreMax));
}

}  // namespace

Keeper::Keeper(Loop& loop)
    : loop_(loop), retry_(loop, [this] { Retry(); }), fd_count_max_(StoreMax()) {
  Result<UniqueFd> manager = ConnectToManager();
  if (fd_count_max_ == 0 || !manager.ok()) return;
  socket_ = std::move(manager).value();
  const char* const pid = std::getenv("STICKYINVOC_KEEPER");
  parent_ = ::getppid();
  is_parent_ = pid != nullptr && std::atoi(pid) == parent_;
  name_ = is_parent_ ? "sticky-keeper" : "systemd";
}

Keeper::~Keeper() = default;

void Keeper::Check() {
  if (is_there() && is_parent_ && ::getppid() != parent_) Lose();
}

void Keeper::Has(const std::string& name, std::size_t fd_count) {
  names_[name] += static_cast<std::uint32_t>(fd_count);
  fd_count_ += static_cast<std::uint32_t>(fd_count);
}

void Keeper::Lacks(const std::string& name) {
  const auto found = names_.find(name);
  if (found == names_.end()) return;
  fd_count_ -= found->second;
  names_.erase(found);
}

void Keeper::Store(const std::string& name, std::span<const int> fds, bool patient,
                   std::function<void(bool)> done) {
  const bool fits = fds.size() <= kFdsPerNameMax && fd_count_ + fds.size() <= fd_count_max_;
  if (!is_there() || !fits) return done(false);
  Message message{"FDSTORE=1\nFDPOLL=0\nFDNAME=" + name, {}, std::move(done), name};
  if (!patient) message.expires_ns = MonotonicNs() + kPatienceNs;
  for (const int fd : fds) {
    message.fds.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!message.fds.back().valid()) return message.done(false);
  }
  Has(name, fds.size());
  Send(std::move(message));
}

void Keeper::Remove(const std::string& name, std::function<void()> done) {
  Lacks(name);
  if (!is_there()) return done();
  Send({"FDSTOREREMOVE=1\nFDNAME=" + name, {}, [](bool) {}, {}});
  AddBarrier(std::move(done));
}

// The keeper closes the descriptor once it has done all that was asked before.
void Keeper::AddBarrier(std::function<void()> done) {
  int pipe[2];
  if (!is_there() || ::pipe2(pipe, O_CLOEXEC) != 0) return done();
  UniqueFd reader(pipe[0]);
  UniqueFd writer(pipe[1]);
  const std::uint64_t number = next_barrier_++;
  const auto on_ready = [this, number](bool, bool) { EndBarrier(number); };
  Result<std::unique_ptr<Poller>> poller = Poller::Create(loop_, reader.get(), on_ready);
  if (!poller.ok()) return done();
  barriers_[number] = {std::move(reader), std::move(poller).value(), std::move(done)};
  Message message{"BARRIER=1", {}, [](bool) {}, {}};
  message.fds.push_back(std::move(writer));
  Send(std::move(message));
}

void Keeper::EndBarrier(std::uint64_t number) {
  const auto found = barriers_.find(number);
  if (found == barriers_.end()) return;
  const auto ended = std::make_shared<Barrier>(std::move(found->second));
  barriers_.erase(found);
  loop_.Bury(ended);
  ended->done();
}

void Keeper::Send(Message message) {
  if (queue_.size() >= kQueueMax) Lose();  // it is there, but of no use
  if (!is_there()) return message.done(false);
  queue_.push_back(std::move(message));
  Flush();
}

void Keeper::Retry() {
  DropExpired();
  Flush();
}

// Takes the stores that nobody waits for any more out of the queue.
void Keeper::DropExpired() {
  const std::int64_t now_ns = MonotonicNs();
  std::vector<Message> expired;
  for (auto it = queue_.begin(); it != queue_.end();) {
    if (it->expires_ns == 0 || now_ns < it->expires_ns) {
      ++it;
      continue;
    }
    expired.push_back(std::move(*it));
    it = queue_.erase(it);
  }
  for (const Message& message : expired) {
    Lacks(message.stored);
    message.done(false);  // which may send more
  }
}

void Keeper::Flush() {
  while (is_there() && !queue_.empty()) {
    const int error = SendWithFds(socket_.get(), queue_.front().text, queue_.front().fds);
    if (error == EINTR) continue;
    constexpr std::uint64_t kRetryMs = 5;
    const bool is_full = error == EAGAIN || error == ENOBUFS || error == ETOOMANYREFS;
    if (is_full) return retry_.Start(kRetryMs, /*repeat_ms=*/0);
    if (error != 0) return Lose();
    const Message sent = std::move(queue_.front());
    queue_.pop_front();
    sent.done(true);
  }
}

void Keeper::Lose() {
  lost_ = true;
  socket_.Reset();
  retry_.Stop();
  fd_count_ = 0;
  names_.clear();
  for (const Message& message : std::exchange(queue_, {})) message.done(false);
  while (!barriers_.empty()) EndBarrier(barriers_.begin()->first);
}

}  // namespace sticky::daemon
