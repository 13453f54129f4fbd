#include "tests/testing/wire_client.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

namespace sticky::testing {

Result<WireClient> WireClient::Connect(const std::string& socket_path, std::int64_t wait_ms) {
  STICKY_ASSIGN(UniqueFd socket, wire::Connect(socket_path, Deadline::AfterMs(wait_ms)));
  return WireClient(std::move(socket));
}

Result<std::uint32_t> WireClient::Send(wire::Body body, const std::vector<int>& fds) {
  const std::uint32_t id = next_request_++;
  STICKY_TRY(wire::SendMessage(socket_.get(), {id, std::move(body)}, fds, Deadline::AfterMs(5000)));
  return id;
}

Result<wire::Received> WireClient::Receive(std::int64_t wait_ms) {
  return wire::ReceiveMessage(socket_.get(), Deadline::AfterMs(wait_ms));
}

Result<wire::Received> WireClient::Answer(std::uint32_t request_id, std::int64_t wait_ms) {
  const Deadline deadline = Deadline::AfterMs(wait_ms);
  for (;;) {
    STICKY_ASSIGN(wire::Received received, wire::ReceiveMessage(socket_.get(), deadline));
    if (received.message.request_id != request_id) continue;
    if (std::holds_alternative<wire::LoadProgress>(received.message.body)) continue;
    if (const auto* failure = std::get_if<wire::Failure>(&received.message.body)) {
      return Error{failure->code, failure->message, failure->os_code};
    }
    return received;
  }
}

Result<wire::Received> WireClient::Ask(wire::Body body, std::int64_t wait_ms) {
  STICKY_ASSIGN(const std::uint32_t id, Send(std::move(body)));
  return Answer(id, wait_ms);
}

Result<std::uint32_t> WireClient::SendLoad(const wire::LoadRequest& request,
                                           const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0) return ErrnoError("open " + path, errno);
  wire::FilesPart part;
  const std::string name = path.substr(path.rfind('/') + 1);
  part.files.push_back(
      {name, wire::FileRole::kWeights, static_cast<std::uint64_t>(status.st_size)});
  STICKY_ASSIGN(const std::uint32_t id, Send(request));
  STICKY_TRY(Send(part, {file.get()}));
  return id;
}

Result<wire::LoadReply> WireClient::Load(const wire::LoadRequest& request,
                                         const std::string& path) {
  STICKY_ASSIGN(const std::uint32_t id, SendLoad(request, path));
  STICKY_ASSIGN(wire::Received received, Answer(id, request.wait_ms + 10'000));
  auto* const reply = std::get_if<wire::LoadReply>(&received.message.body);
  if (reply == nullptr) return Error{Code::kInternal, "another reply came"};
  return std::move(*reply);
}

Result<wire::StateInfo> WireClient::Show(const std::string& state) {
  STICKY_ASSIGN(wire::ShowReply reply, AskFor<wire::ShowReply>(wire::ShowRequest{state}));
  return std::move(reply.state);
}

Result<wire::StatusReply> WireClient::Status() {
  return AskFor<wire::StatusReply>(wire::StatusRequest{});
}

wire::LoadRequest LoadRequestFor(const std::string& state, std::uint32_t wait_ms,
                                 std::uint8_t template_number) {
  wire::LoadRequest request;
  request.state = state;
  request.template_digest.bytes.fill(template_number);
  request.source = "/test/" + state;
  request.file_count = 1;
  request.wait_ms = wait_ms;
  return request;
}

void WriteTensorFile(const std::string& path, std::uint64_t size_bytes) {
  const auto size = static_cast<unsigned long long>(size_bytes);
  std::string header = Format(
      "{\"data\":{\"dtype\":\"U8\",\"shape\":[%llu],\"data_offsets\":[0,%llu]}}", size, size);
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t header_bytes = header.size();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  char length[8];
  std::memcpy(length, &header_bytes, sizeof length);
  file.write(length, sizeof length);
  file << header;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(size_bytes, 64); ++i) {
    file.put(static_cast<char>(i + 1));
  }
  file.close();
  ::truncate(path.c_str(), static_cast<off_t>(sizeof length + header.size() + size_bytes));
}

}  // namespace sticky::testing
