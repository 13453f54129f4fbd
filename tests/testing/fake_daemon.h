// FakeDaemon: a real socket in a short folder, and a thread that answers on it as a test says:
// honestly, with lies, or not at all.
//
// Thread: made and destroyed by one thread; the answers run on the daemon's own.

#ifndef STICKY_TESTS_TESTING_FAKE_DAEMON_H_
#define STICKY_TESTS_TESTING_FAKE_DAEMON_H_

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "flatbuffers/wire_blob.h"
#include "tests/testing/sample_state.h"

namespace sticky::testing {

class FakeDaemon {
 public:
  enum class Then { kKeep, kClose };
  // What to do about one message on `connection`.
  using Answer = std::function<Then(int connection, const wire::Received& received)>;

  static constexpr int kSoonMs = 5000;

  // parent: the folder that gets the socket's folder; short.
  explicit FakeDaemon(Answer answer, const std::string& parent = "/tmp")
      : answer_(std::move(answer)) {
    std::string name = parent + "/stkXXXXXX";
    STICKY_CHECK(::mkdtemp(name.data()) != nullptr);
    folder_ = name;
    path_ = folder_ + "/s";
    listener_.Reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    STICKY_CHECK(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) ==
                 0);
    STICKY_CHECK(::listen(listener_.get(), 64) == 0);
    int stop[2] = {-1, -1};
    STICKY_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stop) == 0);
    stop_.Reset(stop[0]);
    stopped_.Reset(stop[1]);
    thread_ = std::thread([this] { Run(); });
  }
  ~FakeDaemon() {
    Stop();
    std::filesystem::remove_all(folder_);
  }
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;

  // Dies: closes every connection and the listener.
  void Stop() {
    if (!thread_.joinable()) return;
    stop_.Reset();
    thread_.join();
    listener_.Reset();
  }

  const std::string& path() const { return path_; }
  int accepted_count() const { return accepted_count_; }

  // Whether `count` connections have ended, from either side, before long.
  bool WaitForClosed(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(kSoonMs),
                             [&] { return closed_count_ >= count; });
  }
  int closed_count() {
    const std::lock_guard lock(mutex_);
    return closed_count_;
  }

  // Sends `body` in answer to `received`.
  static void Send(int connection, const wire::Received& received, wire::Body body,
                   const std::vector<int>& fds = {}) {
    const auto sent = wire::SendMessage(connection, {received.message.request_id, std::move(body)},
                                        fds, Deadline::AfterMs(kSoonMs));
    STICKY_CHECK(sent.ok() || sent.error().code == Code::kUnavailable);
  }

  // Grants `state` to everyone who asks.
  static Answer Honest(const SampleState& state) {
    return [&state](int connection, const wire::Received& received) {
      const UniqueFd manifest = state.ManifestFd();
      const UniqueFd arena = state.LendArena();
      Send(connection, received, state.Reply(), {manifest.get(), arena.get()});
      return Then::kKeep;
    };
  }

 private:
  void Run() {
    std::vector<UniqueFd> connections;
    for (;;) {
      std::vector<pollfd> entries{{stopped_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      for (const UniqueFd& fd : connections) entries.push_back({fd.get(), POLLIN, 0});
      if (::poll(entries.data(), entries.size(), /*timeout=*/-1) < 0) continue;
      if (entries[0].revents != 0) return;
      for (std::size_t i = entries.size(); i-- > 2;) {
        if (entries[i].revents != 0 && !Serve(connections[i - 2].get())) {
          connections.erase(connections.begin() + static_cast<std::ptrdiff_t>(i - 2));
          CountClosed();
        }
      }
      if (entries[1].revents == 0) continue;
      connections.emplace_back(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      ++accepted_count_;
    }
  }

  // Whether the connection goes on.
  bool Serve(int connection) {
    auto received = wire::ReceiveMessage(connection, Deadline::AfterMs(kSoonMs));
    return received.ok() && answer_(connection, received.value()) == Then::kKeep;
  }

  void CountClosed() {
    const std::lock_guard lock(mutex_);
    ++closed_count_;
    changed_.notify_all();
  }

  Answer answer_;
  std::string folder_;
  std::string path_;
  UniqueFd listener_;
  UniqueFd stop_;
  UniqueFd stopped_;
  std::atomic<int> accepted_count_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  int closed_count_ = 0;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace sticky::testing

#endif  // STICKY_TESTS_TESTING_FAKE_DAEMON_H_
