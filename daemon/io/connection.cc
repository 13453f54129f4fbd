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
      closing_(loop, [this] { callbacks_.on_closed(std::exchange(why_, {})); }),
      retry_(loop, [this] { Flush(); }) {}

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
  if (readable) Read(kFramesPerTurn);
}

void Connection::Read(int frame_count_max) {
  for (int frame_count = 0; frame_count < frame_count_max; ++frame_count) {
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
  fds.reserve(frame.fds.size());
  for (const UniqueFd& fd : frame.fds) fds.push_back(fd.get());
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

}  // namespace sticky::daemon
