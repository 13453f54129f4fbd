#include "tools/client/client.h"

#include <algorithm>
#include <cerrno>

#include <poll.h>

#include "base/text.h"

namespace sticky::tools {

Result<Client> Client::Connect(const std::string& socket_path) {
  Result<UniqueFd> socket = wire::Connect(socket_path, Deadline::AfterMs(kAnswerMs));
  if (!socket.ok()) {
    Error error = socket.error();
    if (IsNoDaemon(error)) {
      error.message += "; start one with `stickyd --socket " + Escape(socket_path) +
                       "`, or name another with --socket or STICKYINVOC_SOCKET";
    }
    return error;
  }
  return Client(std::move(socket).value(), socket_path);
}

bool IsNoDaemon(const Error& error) {
  return error.os_code == ENOENT || error.os_code == ECONNREFUSED || error.os_code == ENOTDIR;
}

Status Client::Send(const wire::Message& message, const std::vector<int>& fds) {
  return wire::SendMessage(socket_.get(), message, fds, Deadline::AfterMs(kAnswerMs));
}

Result<wire::Received> Client::Receive(std::uint32_t request_id, std::uint32_t wait_ms) {
  const Deadline deadline = Deadline::AfterMs(std::int64_t{wait_ms} + kAnswerMs);
  STICKY_ASSIGN(wire::Received received, wire::ReceiveMessage(socket_.get(), deadline));
  if (const auto* const failure = std::get_if<wire::Failure>(&received.message.body)) {
    return Error{failure->code, failure->message, failure->os_code};
  }
  if (received.message.request_id != request_id) {
    return Error{Code::kCorrupt, "ask the daemon: an answer to another question"};
  }
  return received;
}

Result<wire::LoadReply> Client::Load(
    const wire::LoadRequest& request, const std::vector<wire::SourceFile>& files,
    const std::vector<int>& fds, const std::function<void(const wire::StateInfo&)>& on_progress) {
  const std::uint32_t id = next_request_++;
  STICKY_TRY(Send({id, request}, {}));
  for (std::size_t at = 0; at < files.size();) {
    const std::size_t end = std::min<std::size_t>(at + wire::kFdsPerFrameMax, files.size());
    const wire::FilesPart part{{files.data() + at, files.data() + end}};
    STICKY_TRY(Send({id, part}, {fds.data() + at, fds.data() + end}));
    at = end;
  }
  const Deadline deadline = Deadline::AfterMs(std::int64_t{request.wait_ms} + kAnswerMs);
  for (;;) {
    const auto left_ms = static_cast<std::uint32_t>(std::max(deadline.left_ms() - kAnswerMs, 0));
    STICKY_ASSIGN(wire::Received received, Receive(id, left_ms));
    if (const auto* const progress = std::get_if<wire::LoadProgress>(&received.message.body)) {
      if (on_progress) on_progress(progress->state);
      continue;
    }
    const auto* const reply = std::get_if<wire::LoadReply>(&received.message.body);
    if (reply == nullptr) return Error{Code::kCorrupt, "load: another kind of answer"};
    return *reply;
  }
}

bool Client::WaitForEnd(int wake_fd) const {
  pollfd watched[2] = {{socket_.get(), POLLIN | POLLRDHUP, 0}, {wake_fd, POLLIN, 0}};
  for (;;) {
    // A sticky task waits for as long as its job lives: a signal or the daemon's end is the end.
    if (::poll(watched, 2, /*timeout=*/-1) < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    if (watched[1].revents != 0) return true;
    if (watched[0].revents != 0) return false;  // nothing was asked, so it can only be the end
  }
}

}  // namespace sticky::tools
