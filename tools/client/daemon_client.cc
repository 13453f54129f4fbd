#include "tools/client/daemon_client.h"

#include <algorithm>
#include <cerrno>

#include "base/text.h"
#include "flatbuffers/wire_socket.h"

namespace sticky::client {
namespace {

// So few that their names fit into one frame however long they are.
constexpr std::size_t kFilesPerPart = 128;
static_assert(kFilesPerPart <= wire::kFdsPerFrameMax);
static_assert(kFilesPerPart * (wire::kFileNameBytesMax + 128) < wire::kFrameBytesMax);

wire::SourceFile Described(const weights::OpenFile& file) {
  wire::FileRole role = file.is_weights ? wire::FileRole::kWeights : wire::FileRole::kAsset;
  if (file.is_whole) role = wire::FileRole::kWhole;
  return {file.name, role, file.size_bytes, file.expected_sha256};
}

}  // namespace

Outcome<DaemonClient> DaemonClient::Connect(const std::optional<std::string>& path,
                                            std::int64_t answer_ms) {
  std::string where;
  if (path) {
    where = *path;
  } else {
    STICKY_STEP(where, During(Stage::kConnect, wire::DefaultSocketPath()));
  }
  Result<UniqueFd> socket = wire::Connect(where, Deadline::AfterMs(answer_ms));
  if (!socket.ok()) {
    return Failed{Stage::kConnect, socket.error()};
  }
  return DaemonClient(where, std::move(socket).value(), answer_ms);
}

Error DaemonClient::AnotherAnswer() const {
  return Error{Code::kCorrupt,
               "talk to stickyd at '" + Escape(path_) + "': it gave an answer of another kind"};
}

Failed DaemonClient::TalkFailed(const Error& error) const {
  Error told = error;
  told.message = "talk to stickyd at '" + Escape(path_) + "': " + error.message;
  return Failed{Stage::kTalk, told};
}

Outcome<wire::Received> DaemonClient::Answer(std::uint32_t id, std::int64_t wait_ms,
                                             const OnProgress& on_progress) {
  const Deadline deadline = Deadline::AfterMs(wait_ms + answer_ms_);
  for (;;) {
    Result<wire::Received> received = wire::ReceiveMessage(socket_.get(), deadline);
    if (!received.ok()) return TalkFailed(received.error());
    const wire::Message& message = received.value().message;
    if (message.request_id != id) return Failed{Stage::kTalk, AnotherAnswer()};
    if (const auto* progress = std::get_if<wire::LoadProgress>(&message.body)) {
      if (on_progress) on_progress(progress->state);
      continue;
    }
    if (const auto* failure = std::get_if<wire::Failure>(&message.body)) {
      return Failed{Stage::kAnswer, Error{failure->code, failure->message, failure->os_code}};
    }
    return std::move(received).value();
  }
}

Failed DaemonClient::WhySendFailed(std::uint32_t id, const Error& error) {
  constexpr int kTries = 2;  // the first may only report that the peer reset the connection
  for (int i = 0; i < kTries && error.code == Code::kUnavailable; ++i) {
    Outcome<wire::Received> answer = Answer(id, /*wait_ms=*/-answer_ms_, {});
    if (!answer.ok() && answer.failed().stage == Stage::kAnswer) return answer.failed();
  }
  return TalkFailed(error);
}

Outcome<std::uint32_t> DaemonClient::Send(wire::Body request) {
  const std::uint32_t id = next_id_++;
  const Status sent =
      wire::SendMessage(socket_.get(), {id, std::move(request)}, {}, Deadline::AfterMs(answer_ms_));
  if (!sent.ok()) return WhySendFailed(id, sent.error());
  return id;
}

Outcome<wire::Received> DaemonClient::Ask(wire::Body request, std::int64_t wait_ms) {
  STICKY_STEP(const std::uint32_t id, Send(std::move(request)));
  return Answer(id, wait_ms, {});
}

Outcome<wire::LoadReply> DaemonClient::Load(const wire::LoadRequest& request,
                                            const std::vector<weights::OpenFile>& files,
                                            const OnProgress& on_progress) {
  const std::uint32_t id = next_id_++;
  const Deadline deadline = Deadline::AfterMs(answer_ms_);
  const Status asked = wire::SendMessage(socket_.get(), {id, request}, {}, deadline);
  if (!asked.ok()) return WhySendFailed(id, asked.error());
  for (std::size_t at = 0; at < files.size();) {
    const std::size_t end = std::min(at + kFilesPerPart, files.size());
    wire::FilesPart part;
    std::vector<int> fds;
    for (; at < end; ++at) {
      const weights::OpenFile& file = files[at];
      part.files.push_back(Described(file));
      fds.push_back(file.fd.get());
    }
    const Status sent = wire::SendMessage(socket_.get(), {id, std::move(part)}, fds, deadline);
    if (!sent.ok()) return WhySendFailed(id, sent.error());
  }
  STICKY_STEP(wire::Received received, Answer(id, request.wait_ms, on_progress));
  return As<wire::LoadReply>(std::move(received));
}

Outcome<DaemonClient::Lease> DaemonClient::Attach(const wire::AttachRequest& request,
                                                  const OnProgress& on_progress) {
  STICKY_STEP(const std::uint32_t id, Send(request));
  STICKY_STEP(wire::Received received, Answer(id, request.wait_ms, on_progress));
  std::vector<UniqueFd> fds = std::move(received.fds);
  Lease lease;
  STICKY_STEP(lease.reply, As<wire::AttachReply>(std::move(received)));
  if (fds.size() != lease.reply.arena_bytes.size() + 1) {
    return Failed{
        Stage::kTalk,
        Error{Code::kCorrupt,
              Format("attach '%s': the daemon sent %zu descriptors for %zu arenas",
                     Escape(request.state).c_str(), fds.size(), lease.reply.arena_bytes.size())}};
  }
  lease.manifest = std::move(fds.front());
  for (std::size_t i = 1; i < fds.size(); ++i) lease.arenas.push_back(std::move(fds[i]));
  return lease;
}

bool DaemonClient::Ended() {
  for (;;) {
    const Result<std::optional<wire::Frame>> frame = wire::TryReceive(socket_.get());
    if (!frame.ok()) return true;
    if (!frame.value().has_value()) return false;
  }
}

}  // namespace sticky::client
