#include "shim/attach.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/deadline.h"
#include "base/text.h"
#include "flatbuffers/wire_blob.h"
#include "flatbuffers/wire_codec.h"
#include "flatbuffers/wire_socket.h"

namespace sticky::shim {
namespace {

// Only one request is ever made on a connection.
constexpr std::uint32_t kRequestId = 1;

// The daemon's own messages begin so already.
Error About(const std::string& name, Error error) {
  const std::string what = "attach '" + Escape(name) + "': ";
  if (!error.message.starts_with(what)) error.message = what + error.message;
  return error;
}

// Passes over progress, which the daemon may report while the state is being built.
Result<wire::Received> ReceiveAnswer(int socket, Deadline deadline) {
  for (;;) {
    STICKY_ASSIGN(wire::Received got, wire::ReceiveMessage(socket, deadline));
    if (got.message.request_id != kRequestId) {
      return Error{Code::kCorrupt, Format("read answer: it is for request %u, asked was %u",
                                          got.message.request_id, kRequestId)};
    }
    if (!std::holds_alternative<wire::LoadProgress>(got.message.body)) return got;
  }
}

Result<State::Lease> TakeLease(UniqueFd connection, wire::Received answer) {
  if (const auto* failure = std::get_if<wire::Failure>(&answer.message.body)) {
    return Error{failure->code, failure->message, failure->os_code};
  }
  auto* reply = std::get_if<wire::AttachReply>(&answer.message.body);
  if (reply == nullptr) {
    return Error{Code::kCorrupt, "read answer: it is none to an attach request"};
  }
  if (answer.fds.size() != 1 + reply->arena_bytes.size()) {
    return Error{Code::kCorrupt, Format("read answer: %zu descriptors came with it, want %zu",
                                        answer.fds.size(), 1 + reply->arena_bytes.size())};
  }
  State::Lease lease;
  lease.connection = std::move(connection);
  lease.manifest = std::move(answer.fds[0]);
  answer.fds.erase(answer.fds.begin());
  lease.arenas = std::move(answer.fds);
  lease.epoch = reply->epoch;
  lease.arena_bytes = std::move(reply->arena_bytes);
  lease.lease_id = reply->lease_id;
  return lease;
}

Result<State> RoundTrip(const std::string& name, const AttachOptions& options) {
  std::string path;
  if (options.socket_path.has_value()) {
    path = *options.socket_path;
  } else {
    STICKY_ASSIGN(path, wire::DefaultSocketPath());
  }
  const Deadline connected = Deadline::AfterMs(options.connect_ms);
  STICKY_ASSIGN(UniqueFd connection, wire::Connect(path, connected));
  const std::uint32_t wait_ms = std::min(options.wait_ms, wire::kWaitMsMax);
  wire::AttachRequest request;
  request.state = name;
  request.digest = options.digest;
  request.wait_ms = wait_ms;
  request.job = JobOfThisProcess();
  STICKY_TRY(wire::SendMessage(connection.get(), {kRequestId, request}, {}, connected));

  const Deadline answered =
      wait_ms == 0 ? connected
                   : Deadline::AfterMs(std::int64_t{wait_ms} + std::int64_t{options.connect_ms});
  STICKY_ASSIGN(wire::Received answer, ReceiveAnswer(connection.get(), answered));
  STICKY_ASSIGN(State::Lease lease, TakeLease(std::move(connection), std::move(answer)));
  return State::Open(name, options.digest, std::move(lease));
}

Result<std::string> NameOrDefault(const std::optional<std::string>& name) {
  if (name.has_value()) return *name;
  const char* from_environment = std::getenv("STICKYINVOC_STATE");
  if (from_environment != nullptr && *from_environment != '\0') {
    return std::string(from_environment);
  }
  return Error{Code::kInvalidArgument,
               "attach: no state was named; give a name, or set STICKYINVOC_STATE"};
}

}  // namespace

Result<State> AskDaemon(const std::string& name, const AttachOptions& options) {
  Result<State> state = RoundTrip(name, options);
  if (!state.ok()) return About(name, state.error());
  return state;
}

Result<State> Attach(const std::optional<std::string>& name, const AttachOptions& options) {
  STICKY_ASSIGN(const std::string state_name, NameOrDefault(name));
  STICKY_TRY(wire::CheckStateName(state_name));
  if (options.socket_path.has_value()) return AskDaemon(state_name, options);

  Result<State> adopted = AdoptLease(state_name, options.digest);
  if (adopted.ok()) return adopted;
  Result<State> attached = AskDaemon(state_name, options);
  if (attached.ok() || adopted.error().code == Code::kNotFound) return attached;
  // Why the inherited lease was no use matters only when nothing else worked either.
  Error error = attached.error();
  error.message += " (and the inherited lease: " + adopted.error().message + ")";
  return error;
}

}  // namespace sticky::shim
