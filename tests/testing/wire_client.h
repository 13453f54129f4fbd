// WireClient: a raw peer of stickyd, which can also misbehave; for tests that must see each frame.
//
// Thread: one thread at a time.

#ifndef STICKY_TESTS_TESTING_WIRE_CLIENT_H_
#define STICKY_TESTS_TESTING_WIRE_CLIENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "flatbuffers/wire_blob.h"
#include "flatbuffers/wire_codec.h"

namespace sticky::testing {

class WireClient {
 public:
  static Result<WireClient> Connect(const std::string& socket_path, std::int64_t wait_ms = 5000);

  int fd() const { return socket_.get(); }
  void Close() { socket_.Reset(); }

  // Sends one message under a fresh request id, which is returned.
  Result<std::uint32_t> Send(wire::Body body, const std::vector<int>& fds = {});
  // The next message, whatever it is.
  Result<wire::Received> Receive(std::int64_t wait_ms = 30'000);
  // Sends and receives until the answer comes; progress is passed over. A Failure is an error.
  Result<wire::Received> Ask(wire::Body body, std::int64_t wait_ms = 30'000);
  // The answer to `request_id`, as Ask does.
  Result<wire::Received> Answer(std::uint32_t request_id, std::int64_t wait_ms = 30'000);

  // Ask for the body of one kind.
  template <typename Reply>
  Result<Reply> AskFor(wire::Body body, std::int64_t wait_ms = 30'000) {
    Result<wire::Received> received = Ask(std::move(body), wait_ms);
    if (!received.ok()) return received.error();
    auto* const reply = std::get_if<Reply>(&received.value().message.body);
    if (reply == nullptr) return Error{Code::kInternal, "another reply came"};
    return std::move(*reply);
  }

  // Sends a load request with the file at `path` as its only one; see LoadRequestFor.
  Result<std::uint32_t> SendLoad(const wire::LoadRequest& request, const std::string& path);
  // As SendLoad, and waits for the LoadReply.
  Result<wire::LoadReply> Load(const wire::LoadRequest& request, const std::string& path);

  Result<wire::StateInfo> Show(const std::string& state);
  Result<wire::StatusReply> Status();

 private:
  explicit WireClient(UniqueFd socket) : socket_(std::move(socket)) {}
  UniqueFd socket_;
  std::uint32_t next_request_ = 1;
};

// A request for one file, with a template digest that only depends on `template_number`.
wire::LoadRequest LoadRequestFor(const std::string& state, std::uint32_t wait_ms = 20'000,
                                 std::uint8_t template_number = 1);

// Writes a safetensors file with one u8 tensor `data` of `size_bytes` bytes, sparse where it is
// zero: the first bytes are 1, 2, 3, ... up to 64.
void WriteTensorFile(const std::string& path, std::uint64_t size_bytes);

}  // namespace sticky::testing

#endif  // STICKY_TESTS_TESTING_WIRE_CLIENT_H_
