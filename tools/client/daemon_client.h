// DaemonClient: a connection to stickyd for command-line programs: blocking, every wait with a
// deadline.
//
// Thread: one thread at a time.

#ifndef STICKY_TOOLS_CLIENT_DAEMON_CLIENT_H_
#define STICKY_TOOLS_CLIENT_DAEMON_CLIENT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "flatbuffers/wire_blob.h"
#include "flatbuffers/wire_codec.h"
#include "tools/client/outcome.h"
#include "weights/files/resolve.h"

namespace sticky::client {

// Beyond what a request itself waits for, unless told otherwise: connecting, and the daemon's
// answer.
inline constexpr std::int64_t kAnswerMs = 10'000;

class DaemonClient {
 public:
  using OnProgress = std::function<void(const wire::StateInfo&)>;

  struct Lease {
    wire::AttachReply reply;
    UniqueFd manifest;
    std::vector<UniqueFd> arenas;  // as many as reply.arena_bytes
  };

  // path: nothing means what wire::DefaultSocketPath gives. answer_ms: in place of kAnswerMs, here
  // and later.
  // Errors: kConnect: kUnavailable, with the path and how a daemon is started; kPermissionDenied;
  //   kInvalidArgument when the path cannot be one.
  static Outcome<DaemonClient> Connect(const std::optional<std::string>& path,
                                       std::int64_t answer_ms = kAnswerMs);

  const std::string& path() const { return path_; }
  int fd() const { return socket_.get(); }

  // Sends `request` and waits for its answer, at most wait_ms + answer_ms.
  // Errors: kTalk; kAnswer with the daemon's own code and message.
  Outcome<wire::Received> Ask(wire::Body request, std::int64_t wait_ms = 0);

  template <typename Reply>
  Outcome<Reply> AskFor(wire::Body request, std::int64_t wait_ms = 0) {
    STICKY_STEP(wire::Received received, Ask(std::move(request), wait_ms));
    return As<Reply>(std::move(received));
  }

  // The two halves of AskFor, for whoever waits for other things meanwhile: after Send, fd() is
  // readable once the answer has come or the daemon has gone. Send gives the request's id.
  Outcome<std::uint32_t> Send(wire::Body request);
  template <typename Reply>
  Outcome<Reply> Receive(std::uint32_t request_id) {
    STICKY_STEP(wire::Received received, Answer(request_id, /*wait_ms=*/0, {}));
    return As<Reply>(std::move(received));
  }

  // Hands the files over and waits as the request says. on_progress: may be empty.
  Outcome<wire::LoadReply> Load(const wire::LoadRequest& request,
                                const std::vector<weights::OpenFile>& files,
                                const OnProgress& on_progress);

  // on_progress: of the load that it waits for, when the request asks for that; may be empty.
  Outcome<Lease> Attach(const wire::AttachRequest& request, const OnProgress& on_progress = {});

  // Whether the daemon has ended the connection; frames that still come are passed over.
  bool Ended();

  // The connection itself, on which a lease hangs.
  UniqueFd Release() { return std::move(socket_); }

 private:
  DaemonClient(std::string path, UniqueFd socket, std::int64_t answer_ms)
      : path_(std::move(path)), socket_(std::move(socket)), answer_ms_(answer_ms) {}

  template <typename Reply>
  Outcome<Reply> As(wire::Received received) {
    auto* const reply = std::get_if<Reply>(&received.message.body);
    if (reply == nullptr) return Failed{Stage::kTalk, AnotherAnswer()};
    return std::move(*reply);
  }

  Error AnotherAnswer() const;
  Failed TalkFailed(const Error& error) const;
  // The answer to the request `id`; progress goes to `on_progress`.
  Outcome<wire::Received> Answer(std::uint32_t id, std::int64_t wait_ms,
                                 const OnProgress& on_progress);
  // A send failed: what the daemon said before it closed explains more than "closed" does.
  Failed WhySendFailed(std::uint32_t id, const Error& error);

  std::string path_;
  UniqueFd socket_;
  std::int64_t answer_ms_;
  std::uint32_t next_id_ = 1;
};

}  // namespace sticky::client

#endif  // STICKY_TOOLS_CLIENT_DAEMON_CLIENT_H_
