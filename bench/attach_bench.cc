// Measures connect + attach + map + verify + detach in the shim against a bare connect and
// SEQPACKET round trip that passes three descriptors, in turns, both sides pinned to one core.
//
// usage: attach_bench [--json] [--rounds N] [--tensors N] [--core N] [--state NAME]
//                     [--socket PATH]...
// With --socket the attach goes to that real daemon (pin it to the same core) instead of
// the bench's own peer; with several of them to each in turns. --core -1 pins nothing.

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <sys/socket.h>
#include <sys/un.h>

#include "base/unique_fd.h"
#include "bench/bench_util.h"
#include "bench/peer.h"
#include "stickyinvoc/stickyinvoc.h"

namespace sticky::bench {
namespace {

void BareRoundTrip(const std::string& path) {
  const UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    Die("connect");
  }
  if (::send(fd.get(), "x", 1, 0) != 1) Die("send");
  char bytes[64];
  alignas(cmsghdr) char control[CMSG_SPACE(3 * sizeof(int))];
  iovec part{bytes, sizeof bytes};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  if (::recvmsg(fd.get(), &header, MSG_CMSG_CLOEXEC) != sizeof bytes) Die("receive");
  int fds[3];
  std::memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof fds);
  for (const int passed : fds) ::close(passed);
}

sti_state* Attach(const std::string& path, const std::string& name) {
  sti_attach_options options{};
  options.struct_bytes = sizeof options;
  options.socket_path = path.c_str();
  sti_state* state = nullptr;
  sti_error error;
  if (sti_attach(name.c_str(), &options, &state, &error) != STI_OK) {
    std::fprintf(stderr, "%s\n", error.message);
    std::exit(1);
  }
  return state;
}

int Main(int argc, char** argv) {
  const int rounds = std::stoi(Option(argc, argv, "--rounds", "20000"));
  const auto tensor_count =
      static_cast<std::uint32_t>(std::stoul(Option(argc, argv, "--tensors", "272")));
  const std::string name = Option(argc, argv, "--state", "bench");
  const int core = std::stoi(Option(argc, argv, "--core", "0"));
  if (core >= 0) PinTo(core);

  constexpr std::uint64_t kArenaBytes = 64u << 20;
  auto arena = device::HostArena::Create("bench", kArenaBytes, /*want_huge=*/false).value();
  STICKY_CHECK(arena.Prefault().ok() && arena.Seal().ok());
  const Peer peer(arena, ModelLikeManifest(tensor_count, kArenaBytes));
  std::vector<std::string> paths = Options(argc, argv, "--socket");
  if (paths.empty()) paths.push_back(peer.attach_path());

  std::vector<std::function<void()>> bodies = {[&] { BareRoundTrip(peer.bare_path()); }};
  for (const std::string& path : paths) {
    bodies.emplace_back([&name, &path] { sti_detach(Attach(path, name)); });
  }
  // Twice, as the other side closes its end of a connection after the client has closed its own.
  const auto times = Interleave(rounds, bodies, /*warm_count=*/2);
  const double bare_us = Median(times[0]);
  Report report;
  report.Add("bare_round_trip", bare_us, "us");
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::string what =
        paths.size() == 1 ? "attach_to_detach" : "attach_to_detach " + paths[i];
    const double attach_us = Median(times[i + 1]);
    report.Add(what, attach_us, "us");
    report.Add(what + " p99", Quantile(times[i + 1], 0.99), "us");
    report.Add(what + " / bare_round_trip", attach_us / bare_us, "(must reach 5)");
  }
  report.Print("attach", Flag(argc, argv, "--json"));
  return 0;
}

}  // namespace
}  // namespace sticky::bench

int main(int argc, char** argv) { return sticky::bench::Main(argc, argv); }
