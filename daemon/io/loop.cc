#include "daemon/io/loop.h"

#include <algorithm>
#include <csignal>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "base/check.h"
#include "base/deadline.h"
#include "base/text.h"
#include "daemon/io/handle.h"
#include "daemon/io/spawner.h"

namespace sticky::daemon {
namespace {

// On Unix, libuv's codes are negated errno values.
Error UvError(const std::string& what, int code) { return ErrnoError(what, -code); }

}  // namespace

struct Child::Impl {
  pid_t pid = -1;
  std::function<void(int)> on_exit;
  bool reaped = false;  // its number may be another process' by now
  bool told = false;    // on_exit has been called
  bool orphan = false;  // the Child is gone; this goes when the process has been reaped
};

struct Loop::Impl {
  uv_loop_t loop{};
  std::vector<std::shared_ptr<void>> buried;
  std::unique_ptr<Timer> undertaker;
  Result<std::unique_ptr<Spawner>> spawner = Spawner::Create();
  std::unique_ptr<SignalWatcher> reaper;
  std::vector<Child::Impl*> children;  // that have not been reaped

  void Reap();
};

Loop::Loop() : impl_(std::make_unique<Impl>()) {
  STICKY_CHECK(uv_loop_init(&impl_->loop) == 0);
  impl_->reaper = std::make_unique<SignalWatcher>(*this, SIGCHLD, [this] { impl_->Reap(); });
  impl_->undertaker = std::make_unique<Timer>(*this, [this] {
    const auto buried = std::exchange(impl_->buried, {});  // destructors may bury more
  });
}

Loop::~Loop() {
  while (!impl_->buried.empty()) const auto buried = std::exchange(impl_->buried, {});
  impl_->undertaker.reset();
  // Lets the close callbacks run, and killed children be reaped: one that the kernel does not let
  // go of (a file system that hangs) must not keep the daemon from ending.
  constexpr int kPatienceMs = 1000;
  const Deadline deadline = Deadline::AfterMs(kPatienceMs);
  while (!deadline.passed()) {
    impl_->Reap();
    if (impl_->children.empty()) impl_->reaper.reset();
    if (uv_run(&impl_->loop, UV_RUN_NOWAIT) == 0) break;
    pollfd wake{uv_backend_fd(&impl_->loop), POLLIN, 0};
    ::poll(&wake, 1, std::min(deadline.left_ms(), 20));
  }
  if (uv_loop_close(&impl_->loop) != 0) static_cast<void>(impl_.release());
}

// Calls back only when all are taken off the list: a callback may start others.
void Loop::Impl::Reap() {
  std::vector<std::pair<Child::Impl*, int>> ended;
  std::erase_if(children, [&ended](Child::Impl* child) {
    int status = 0;
    if (::waitpid(child->pid, &status, WNOHANG) != child->pid) return false;
    child->reaped = true;
    ended.emplace_back(child, WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    return true;
  });
  for (const auto& [child, status] : ended) {
    child->told = true;
    if (child->orphan) {
      delete child;
    } else {
      child->on_exit(status);
    }
  }
}

void Loop::Run() { uv_run(&impl_->loop, UV_RUN_DEFAULT); }
void Loop::Stop() { uv_stop(&impl_->loop); }

void Loop::Bury(std::shared_ptr<void> object) {
  impl_->buried.push_back(std::move(object));
  impl_->undertaker->Start(/*after_ms=*/0, /*repeat_ms=*/0);
}

struct Poller::Impl {
  Handle<uv_poll_t> handle;
  Callback callback;
  int events = 0;
};

Poller::Poller(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Poller>> Poller::Create(Loop& loop, int fd, Callback callback) {
  auto impl = std::make_unique<Impl>();
  impl->callback = std::move(callback);
  const int code = uv_poll_init(&loop.impl().loop, impl->handle.get(), fd);
  if (code != 0) {
    impl->handle->loop = nullptr;
    return UvError("watch a descriptor", code);
  }
  impl->handle->data = impl.get();
  std::unique_ptr<Poller> poller(new Poller(std::move(impl)));
  poller->Watch(/*readable=*/true, /*writable=*/false);
  return poller;
}

Poller::~Poller() { uv_poll_stop(impl_->handle.get()); }

void Poller::Watch(bool readable, bool writable) {
  const int events = (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0);
  if (events == impl_->events) return;
  impl_->events = events;
  if (events == 0) {
    uv_poll_stop(impl_->handle.get());
    return;
  }
  uv_poll_start(impl_->handle.get(), events, [](uv_poll_t* handle, int status, int ready) {
    // An error condition shows when it is read, so it counts as readable.
    static_cast<Impl*>(handle->data)
        ->callback(status < 0 || (ready & UV_READABLE) != 0, (ready & UV_WRITABLE) != 0);
  });
}

struct Timer::Impl {
  Handle<uv_timer_t> handle;
  std::function<void()> callback;
};

Timer::Timer(Loop& loop, std::function<void()> callback) : impl_(std::make_unique<Impl>()) {
  impl_->callback = std::move(callback);
  uv_timer_init(&loop.impl().loop, impl_->handle.get());
  impl_->handle->data = impl_.get();
}

Timer::~Timer() { uv_timer_stop(impl_->handle.get()); }

void Timer::Start(std::uint64_t after_ms, std::uint64_t repeat_ms) {
  if (active()) return;
  uv_timer_start(
      impl_->handle.get(), [](uv_timer_t* handle) { static_cast<Impl*>(handle->data)->callback(); },
      after_ms, repeat_ms);
}

void Timer::Stop() { uv_timer_stop(impl_->handle.get()); }

bool Timer::active() const {
  return uv_is_active(reinterpret_cast<uv_handle_t*>(impl_->handle.get())) != 0;
}

struct SignalWatcher::Impl {
  Handle<uv_signal_t> handle;
  std::function<void()> callback;
};

SignalWatcher::SignalWatcher(Loop& loop, int signal, std::function<void()> callback)
    : impl_(std::make_unique<Impl>()) {
  impl_->callback = std::move(callback);
  uv_signal_init(&loop.impl().loop, impl_->handle.get());
  impl_->handle->data = impl_.get();
  uv_signal_start(
      impl_->handle.get(),
      [](uv_signal_t* handle, int) { static_cast<Impl*>(handle->data)->callback(); }, signal);
}

SignalWatcher::~SignalWatcher() { uv_signal_stop(impl_->handle.get()); }

Child::Child(Impl* impl) : impl_(impl) {}

Result<std::unique_ptr<Child>> Child::Spawn(Loop& loop, Command command,
                                            std::function<void(int status)> on_exit) {
  if (!loop.impl().spawner.ok()) return loop.impl().spawner.error();
  Spawner::Command wanted;
  wanted.program = std::move(command.program);
  wanted.arguments = std::move(command.arguments);
  wanted.channel = command.channel.get();
  wanted.error_output = command.error_output.get();
  STICKY_ASSIGN(const pid_t pid, loop.impl().spawner.value()->Spawn(wanted));
  auto impl = std::make_unique<Impl>();
  impl->pid = pid;
  impl->on_exit = std::move(on_exit);
  loop.impl().children.push_back(impl.get());
  return std::unique_ptr<Child>(new Child(impl.release()));
}

Child::~Child() {
  if (impl_->told) {
    delete impl_;
    return;
  }
  impl_->orphan = true;
  Kill();
}

void Child::Kill() {
  if (!impl_->reaped) ::kill(impl_->pid, SIGKILL);
}

int Child::pid() const { return impl_->pid; }

}  // namespace sticky::daemon
