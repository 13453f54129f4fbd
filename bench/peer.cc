#include "bench/peer.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <vector>

#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench_util.h"
#include "flatbuffers/wire_blob.h"

namespace sticky::bench {
namespace {

UniqueFd Listen(const std::string& path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) Die("bind");
  if (::listen(fd.get(), 64) != 0) Die("listen");
  return fd;
}

class Server {
 public:
  Server(const device::HostArena& arena, const wire::Manifest& manifest, UniqueFd attach_listener,
         UniqueFd bare_listener)
      : arena_(arena),
        manifest_(wire::MakeBlob(wire::EncodeManifest(manifest)).value()),
        attach_listener_(std::move(attach_listener)),
        bare_listener_(std::move(bare_listener)),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    reply_.epoch = manifest.epoch;
    reply_.lease_id = 1;
    reply_.arena_bytes = manifest.arena_bytes;
    Watch(attach_listener_.get());
    Watch(bare_listener_.get());
  }

  [[noreturn]] void Run() {
    for (;;) {
      epoll_event event{};
      if (::epoll_wait(epoll_.get(), &event, 1, -1) != 1) continue;
      const int fd = event.data.fd;
      if (fd == attach_listener_.get() || fd == bare_listener_.get()) {
        Accept(fd);
      } else {
        const bool bare =
            static_cast<std::size_t>(fd) < bare_.size() && bare_[static_cast<std::size_t>(fd)];
        if (!(bare ? AnswerBare(fd) : AnswerAttach(fd))) ::close(fd);
      }
    }
  }

 private:
  void Watch(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) Die("watch");
  }

  void Accept(int listener) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    const auto index = static_cast<std::size_t>(fd);
    if (bare_.size() <= index) bare_.resize(index + 1);
    bare_[index] = listener == bare_listener_.get();
    Watch(fd);
  }

  // Whether the connection goes on, as below.
  bool AnswerBare(int fd) {
    std::uint8_t byte = 0;
    if (::recv(fd, &byte, 1, 0) != 1) return false;
    const std::uint8_t answer[64] = {};
    const std::vector<int> fds(3, manifest_.get());
    return wire::TrySend(fd, answer, fds).ok();
  }

  bool AnswerAttach(int fd) {
    const auto received = wire::ReceiveMessage(fd, Deadline::AfterMs(1000));
    if (!received.ok()) return false;
    const UniqueFd arena = arena_.Lend().value();
    const std::vector<int> fds{manifest_.get(), arena.get()};
    return wire::SendMessage(fd, {received.value().message.request_id, reply_}, fds,
                             Deadline::AfterMs(1000))
        .ok();
  }

  const device::HostArena& arena_;
  UniqueFd manifest_;
  UniqueFd attach_listener_;
  UniqueFd bare_listener_;
  UniqueFd epoll_;
  std::vector<bool> bare_;  // by descriptor: whether it came through the bare listener
  wire::AttachReply reply_;
};

}  // namespace

wire::Manifest ModelLikeManifest(std::uint32_t tensor_count, std::uint64_t arena_bytes) {
  wire::Manifest manifest;
  manifest.state = "bench";
  manifest.device = "host";
  manifest.arena_bytes = {arena_bytes};
  manifest.content_digest = Digest{};
  manifest.template_digest = Digest{};
  manifest.epoch = 1;
  const std::uint64_t each = arena_bytes / tensor_count / 512 * 512;
  for (std::uint32_t i = 0; i < tensor_count; ++i) {
    const std::string name =
        "model.layers." + std::to_string(i / 9) + ".block." + std::to_string(i % 9) + ".weight";
    manifest.tensors.push_back(
        {name, Dtype::kBf16, {static_cast<std::int64_t>(each / 512), 256}, 0, i * each, each});
  }
  return manifest;
}

Peer::Peer(const device::HostArena& arena, const wire::Manifest& manifest) {
  char name[] = "/tmp/stkXXXXXX";
  if (::mkdtemp(name) == nullptr) Die("make a folder");
  folder_ = name;
  attach_path_ = folder_ + "/a";
  bare_path_ = folder_ + "/b";
  UniqueFd attach_listener = Listen(attach_path_);
  UniqueFd bare_listener = Listen(bare_path_);
  pid_ = ::fork();
  if (pid_ < 0) Die("fork");
  if (pid_ > 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Server(arena, manifest, std::move(attach_listener), std::move(bare_listener)).Run();
}

Peer::~Peer() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  std::filesystem::remove_all(folder_);
}

}  // namespace sticky::bench
