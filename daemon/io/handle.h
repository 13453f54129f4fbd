// Handle<T>: owns one libuv handle. The destructor asks libuv to close it; its memory is freed in
// the close callback, after which no callback of it can run any more.
//
// Thread: loop thread only. The only place where uv handles live or die.

#ifndef STICKY_DAEMON_IO_HANDLE_H_
#define STICKY_DAEMON_IO_HANDLE_H_

#include <utility>

#include <uv.h>

namespace sticky::daemon {

template <typename T>
class Handle {
 public:
  Handle() : handle_(new T{}) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    auto* const base = reinterpret_cast<uv_handle_t*>(handle_);
    if (base->loop == nullptr) {  // was never initialised
      delete handle_;
      return;
    }
    uv_close(base, [](uv_handle_t* closed) { delete reinterpret_cast<T*>(closed); });
  }

  T* get() const { return handle_; }
  T* operator->() const { return handle_; }

 private:
  T* handle_;
};

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_IO_HANDLE_H_
