// Client: asks the daemon on behalf of a command-line program.
//
// Thread: one thread at a time.
// Source: flatbuffers/wire_protocol.fbs.

#ifndef STICKY_TOOLS_CLIENT_CLIENT_H_
#define STICKY_TOOLS_CLIENT_CLIENT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "flatbuffers/wire_blob.h"
#include "flatbuffers/wire_codec.h"

namespace sticky::tools {

// How long the daemon may take for an answer that needs no waiting, milliseconds.
inline constexpr int kAnswerMs = 10'000;

// A reply of the kind that was asked for, and its descriptors.
template <typename Reply>
struct Answer {
  Reply reply;
  std::vector<UniqueFd> fds;
};

class Client {
 public:
  // Errors: kUnavailable when nobody answers there (see IsNoDaemon), kPermissionDenied.
  static Result<Client> Connect(const std::string& socket_path);

  // Sends `request` and waits for its answer. wait_ms: what the request itself allows beside.
  // Errors: what the daemon answered; kUnavailable when it went away; kCorrupt for an answer of
  //   another kind.
  template <typename Reply, typename Request>
  Result<Answer<Reply>> Ask(const Request& request, std::uint32_t wait_ms = 0) {
    const std::uint32_t id = next_request_++;
    STICKY_TRY(Send({id, request}, {}));
    return Await<Reply>(id, wait_ms);
  }

  // A load: the request, its files in parts, then progress until the answer.
  // on_progress: may be empty.
  Result<wire::LoadReply> Load(const wire::LoadRequest& request,
                               const std::vector<wire::SourceFile>& files,
                               const std::vector<int>& fds,
                               const std::function<void(const wire::StateInfo&)>& on_progress);

  // Blocks until the daemon closes the connection or `wake_fd` is readable; true for the latter.
  bool WaitForEnd(int wake_fd) const;

  // The connection outlives this: for `run`, which hands it to the program it starts.
  UniqueFd TakeSocket() { return std::move(socket_); }
  const std::string& socket_path() const { return socket_path_; }

 private:
  Client(UniqueFd socket, std::string socket_path)
      : socket_(std::move(socket)), socket_path_(std::move(socket_path)) {}
  Status Send(const wire::Message& message, const std::vector<int>& fds);
  Result<wire::Received> Receive(std::uint32_t request_id, std::uint32_t wait_ms);

  template <typename Reply>
  Result<Answer<Reply>> Await(std::uint32_t request_id, std::uint32_t wait_ms) {
    STICKY_ASSIGN(wire::Received received, Receive(request_id, wait_ms));
    auto* const reply = std::get_if<Reply>(&received.message.body);
    if (reply == nullptr) return Error{Code::kCorrupt, "ask the daemon: another kind of answer"};
    return Answer<Reply>{std::move(*reply), std::move(received.fds)};
  }

  UniqueFd socket_;
  std::string socket_path_;
  std::uint32_t next_request_ = 1;
};

// Whether Connect failed because no daemon is there (rather than for want of permission).
bool IsNoDaemon(const Error& error);

}  // namespace sticky::tools

#endif  // STICKY_TOOLS_CLIENT_CLIENT_H_
