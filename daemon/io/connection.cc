#include "daemon/io/connection.h"

#include <cerrno>
#include <optional>
#include <utility>

#include "base/text.h"
#include "flatbuffers/wire_blob.h"

namespace sticky::daemon {

Connection::Connection(Loop& loop, UniqueFd socket, Callbacks callbacks)
    : socket_(std::move(socket)),
      callbacks_(std::move(callbacks)),
      closing_(loop, [this] { callbacks_.on_closed(std::exchange(why_, {})); }) {}

Result<std::unique_ptr<Connection>> Connection::Create(Loop& loop, UniqueFd socket,
                                                       Callbacks callbacks) {
  std::unique_ptr<Connection> made(new Connection(loop, std::move(socket), std::move(callbacks)));
  Connection* const raw = made.get();
  auto on_ready = [raw](bool readable, bool writable) { raw->OnReady(readable, writable); };
  STICKY_ASSIGN(made->poller_, Poller::Create(loop, made->socket_.get(), on_ready));
  return made;
}

void Connection::OnReady(bool readable, bool writable) {
  if (writable) Flush();
  if (readable) Read();
}

void Connection::Read() {
  for (int frame_count = 0; frame_count < kFramesPerTurn; ++frame_count) {
    if (failed_) return;
    Result<std::optional<wire::Frame>> frame = wire::TryReceive(socket_.get());
    if (!frame.ok()) {
      const int os_code = frame.error().os_code;
      return Fail(os_code == EPIPE || os_code == ECONNRESET ? "" : frame.error().message);
    }
    if (!frame.value().has_value()) return;
    if (!ending_) callbacks_.on_frame(std::move(*frame.value()));
  }
}

void Connection::Send(const wire::Message& message, std::vector<UniqueFd> fds) {
  if (failed_) return;
  Outgoing frame{wire::Encode(message), std::move(fds)};
  if (frame.bytes.size() > wire::kFrameBytesMax) {
    Result<UniqueFd> blob = wire::MakeBlob(frame.bytes);
    if (!blob.ok()) return Fail(blob.error().message);
    frame.fds.insert(frame.fds.begin(), std::move(blob).value());
    frame.bytes = wire::Encode({message.request_id, wire::Blob{frame.bytes.size()}});
  }
  if (queue_.size() >= kQueueMax) return Fail(Format("it left %zu replies unread", queue_.size()));
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
    if (!sent.ok()) return Fail(sent.error().os_code == EPIPE ? "" : sent.error().message);
    if (!sent.value()) break;
    queue_.pop_front();
  }
  if (failed_) return;
  if (ending_ && queue_.empty()) return Fail(std::move(why_));
  poller_->Watch(/*readable=*/true, !queue_.empty());
}

Result<bool> Connection::TrySend(const Outgoing& frame) {
  std::vector<int> fds;
  fds.reserve(frame.fds.size());
  for (const UniqueFd& fd : frame.fds) fds.push_back(fd.get());
  return wire::TrySend(socket_.get(), frame.bytes, fds);
}

void Connection::Fail(std::string why) {
  failed_ = true;
  why_ = std::move(why);
  queue_.clear();
  poller_->Watch(/*readable=*/false, /*writable=*/false);
  closing_.Start(/*after_ms=*/0, /*repeat_ms=*/0);
}

}  // namespace sticky::daemon
