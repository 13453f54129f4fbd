#include "daemon/io/loop.h"

#include <algorithm>
#include <csignal>
#include <utility>
#include <vector>

#include <poll.h>
#include <unistd.h>
#include <uv.h>

#include "base/check.h"
#include "base/deadline.h"
#include "base/text.h"
#include "daemon/io/handle.h"

namespace sticky::daemon {
namespace {

// On Unix, libuv's codes are negated errno values.
Error UvError(const std::string& what, int code) { return ErrnoError(what, -code); }

}  // namespace

struct Loop::Impl {
  uv_loop_t loop{};
  std::vector<std::shared_ptr<void>> buried;
  std::unique_ptr<Timer> undertaker;
};

Loop::Loop() : impl_(std::make_unique<Impl>()) {
  STICKY_CHECK(uv_loop_init(&impl_->loop) == 0);
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
  while (uv_run(&impl_->loop, UV_RUN_NOWAIT) != 0 && !deadline.passed()) {
    pollfd wake{uv_backend_fd(&impl_->loop), POLLIN, 0};
    ::poll(&wake, 1, std::min(deadline.left_ms(), 20));
  }
  if (uv_loop_close(&impl_->loop) != 0) static_cast<void>(impl_.release());
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

struct Child::Impl {
  Handle<uv_process_t> handle;
  std::function<void(int)> on_exit;
  bool exited = false;
  bool orphan = false;  // the Child is gone; this frees itself when the process has been reaped
};

Child::Child(Impl* impl) : impl_(impl) {}

Result<std::unique_ptr<Child>> Child::Spawn(Loop& loop, Command command,
                                            std::function<void(int status)> on_exit) {
  auto impl = std::make_unique<Impl>();
  impl->on_exit = std::move(on_exit);
  std::vector<char*> args = {command.program.data()};
  for (std::string& argument : command.arguments) args.push_back(argument.data());
  args.push_back(nullptr);
  uv_stdio_container_t stdio[4] = {};
  stdio[0].flags = UV_IGNORE;
  stdio[1].flags = UV_IGNORE;
  stdio[2].flags = UV_INHERIT_FD;
  stdio[2].data.fd = command.error_output.valid() ? command.error_output.get() : STDERR_FILENO;
  stdio[3].flags = UV_INHERIT_FD;
  stdio[3].data.fd = command.channel.get();
  uv_process_options_t options{};
  options.file = command.program.c_str();
  options.args = args.data();
  options.stdio = stdio;
  options.stdio_count = command.channel.valid() ? 4 : 3;
  options.exit_cb = [](uv_process_t* handle, std::int64_t status, int signal) {
    auto* const exited = static_cast<Impl*>(handle->data);
    exited->exited = true;
    if (exited->orphan) {
      delete exited;
    } else {
      exited->on_exit(signal != 0 ? 128 + signal : static_cast<int>(status));
    }
  };
  const int code = uv_spawn(&loop.impl().loop, impl->handle.get(), &options);
  impl->handle->data = impl.get();
  if (code != 0) return UvError("start '" + command.program + "'", code);
  return std::unique_ptr<Child>(new Child(impl.release()));
}

Child::~Child() {
  if (impl_->exited) {
    delete impl_;
    return;
  }
  impl_->orphan = true;
  uv_process_kill(impl_->handle.get(), SIGKILL);
}

void Child::Kill() {
  if (!impl_->exited) uv_process_kill(impl_->handle.get(), SIGKILL);
}

int Child::pid() const { return impl_->handle->pid; }

}  // namespace sticky::daemon
