#include "daemon/io/connection.h"

#include <cerrno>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/socket.h>

#include "base/text.h"
#include "flatbuffers/wire_blob.h"

namespace sticky::daemon {
namespace {

// Whether frames with descriptors wait in a socket. True where the kernel does not tell (before
// Linux 5.6), or cannot be asked. Source: Linux net/unix/af_unix.c, unix_show_fdinfo.
bool MayHoldDescriptors(int socket) {
  const UniqueFd info(::open(Format("/proc/self/fdinfo/%d", socket).c_str(), O_RDONLY | O_CLOEXEC));
  if (!info.valid()) return true;
  char text[512];
  const ssize_t size = ::read(info.get(), text, sizeof text);
  if (size <= 0) return true;
  const std::string_view told(text, static_cast<std::size_t>(size));
  return told.find("scm_fds: 0\n") == std::string_view::npos;
}

}  // namespace

Connection::Connection(Loop& loop, Closer& closer, std::uint32_t owner, UniqueFd socket,
                       Callbacks callbacks)
    : closer_(closer),
      owner_(owner),
      socket_(std::move(socket)),
      callbacks_(std::move(callbacks)),
      closing_(loop, [this] { callbacks_.on_closed(std::exchange(why_, {})); }),
      retry_(loop, [this] { Flush(); }) {}

Connection::~Connection() {
  poller_.reset();  // before its descriptor
  CloseSocket(std::move(socket_), closer_, owner_);
}

Result<std::unique_ptr<Connection>> Connection::Create(Loop& loop, Closer& closer,
                                                       std::uint32_t owner, UniqueFd socket,
                                                       Callbacks callbacks) {
  std::unique_ptr<Connection> made(
      new Connection(loop, closer, owner, std::move(socket), std::move(callbacks)));
  Connection* const raw = made.get();
  auto on_ready = [raw](bool readable, bool writable) { raw->OnReady(readable, writable); };
  STICKY_ASSIGN(made->poller_, Poller::Create(loop, made->socket_.get(), on_ready));
  return made;
}

void Connection::OnReady(bool readable, bool writable) {
  if (writable) Flush();
  if (!readable || failed_) return;
  if (closer_.PressureOf(owner_) == Closer::Pressure::kHigh) return Pause();
  Read(kFramesPerTurn);
}

// Until retry_ flushes, which also reads again.
void Connection::Pause() {
  constexpr std::uint64_t kPauseMs = 20;
  retry_.Start(kPauseMs, /*repeat_ms=*/0);
  poller_->Watch(/*readable=*/false, !queue_.empty());
}

void Connection::Read(int frame_count_max) {
  const bool is_stuck = closer_.PressureOf(owner_) == Closer::Pressure::kStuck;
  for (int frame_count = 0; frame_count < frame_count_max; ++frame_count) {
    if (failed_) return;
    const wire::Rights rights = is_stuck ? wire::Rights::kRefuse : wire::Rights::kTake;
    wire::Frame got;
    const Result<bool> is_there = wire::TryReceiveInto(socket_.get(), rights, got);
    Frame frame{std::move(got.bytes), ForeignFds(closer_, owner_, std::move(got.fds)),
                got.rights_refused};
    if (!is_there.ok()) {
      const int os_code = is_there.error().os_code;
      return Fail(os_code == EPIPE || os_code == ECONNRESET ? "" : is_there.error().message);
    }
    if (!is_there.value()) return;
    if (!ending_) callbacks_.on_frame(std::move(frame));
  }
}

void Connection::Send(const wire::Message& message, std::vector<UniqueFd> fds, ForeignFds foreign) {
  if (failed_) return;
  Outgoing frame{wire::Encode(message), std::move(fds), std::move(foreign)};
  frame.cost_bytes = frame.bytes.size();
  if (frame.bytes.size() > wire::kFrameBytesMax) {
    Result<UniqueFd> blob = wire::MakeBlob(frame.bytes);
    if (!blob.ok()) return Fail(blob.error().message);
    frame.fds.insert(frame.fds.begin(), std::move(blob).value());
    frame.bytes = wire::Encode({message.request_id, wire::Blob{frame.bytes.size()}});
  }
  if (queue_.size() >= kQueueMax || queued_bytes_ + frame.cost_bytes > kQueueBytesMax) {
    return Fail(Format("it left %zu replies of %zu bytes unread", queue_.size(), queued_bytes_));
  }
  queued_bytes_ += frame.cost_bytes;
  queue_.push_back(std::move(frame));
  Flush();
}

void Connection::CloseAfterSending(std::string why) {
  if (failed_) return;
  ending_ = true;
  why_ = std::move(why);
  Flush();
}

void Connection::Flush() {
  while (!queue_.empty() && !failed_) {
    const Result<bool> sent = TrySend(queue_.front());
    if (!sent.ok() && sent.error().os_code == ETOOMANYREFS) {
      // The socket has room, so waiting for it to be writable would only spin.
      constexpr std::uint64_t kRetryMs = 20;
      retry_.Start(kRetryMs, /*repeat_ms=*/0);
      return poller_->Watch(/*readable=*/true, /*writable=*/false);
    }
    if (!sent.ok()) return Fail(sent.error().os_code == EPIPE ? "" : sent.error().message);
    if (!sent.value()) break;
    queued_bytes_ -= queue_.front().cost_bytes;
    queue_.pop_front();
  }
  if (failed_) return;
  if (ending_ && queue_.empty()) return Fail(std::move(why_));
  poller_->Watch(/*readable=*/true, !queue_.empty());
}

Result<bool> Connection::TrySend(const Outgoing& frame) {
  std::vector<int> fds;
  fds.reserve(frame.fds.size() + frame.foreign.size());
  for (const UniqueFd& fd : frame.fds) fds.push_back(fd.get());
  for (std::size_t i = 0; i < frame.foreign.size(); ++i) fds.push_back(frame.foreign.get(i));
  return wire::TrySend(socket_.get(), frame.bytes, fds);
}

void Connection::Fail(std::string why) {
  failed_ = true;
  why_ = std::move(why);
  queue_.clear();
  queued_bytes_ = 0;
  retry_.Stop();
  poller_->Watch(/*readable=*/false, /*writable=*/false);
  closing_.Start(/*after_ms=*/0, /*repeat_ms=*/0);
}

void CloseSocket(UniqueFd socket, Closer& closer, std::uint32_t owner) {
  if (!socket.valid()) return;
  ::shutdown(socket.get(), SHUT_RDWR);  // nothing more can come
  if (!MayHoldDescriptors(socket.get())) return;
  std::vector<UniqueFd> alone;
  alone.push_back(std::move(socket));
  closer.Close(owner, std::move(alone));
}

}  // namespace sticky::daemon
