// A loader that speaks the protocol as the real one does, up to the lie that its argument names.
// The daemon must make one failed load of each (tests/fault/loader_fault_test.cc).

#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <unistd.h>

#include "base/deadline.h"
#include "device/host_arena.h"
#include "flatbuffers/wire_blob.h"
#include "flatbuffers/wire_manifest.h"

namespace sticky::testing {
namespace {

constexpr int kChannel = 3;
constexpr int kMessageMs = 5000;
constexpr std::uint64_t kArenaBytes = 8192;

template <typename T>
wire::Received Await() {
  for (;;) {  // the files' frames come between; they are of no interest here
    Result<wire::Received> received = wire::ReceiveMessage(kChannel, Deadline::AfterMs(kMessageMs));
    if (!received.ok()) ::_exit(9);
    if (std::holds_alternative<T>(received.value().message.body))
      return std::move(received).value();
  }
}

void Say(wire::Body body, const std::vector<int>& fds = {}) {
  static_cast<void>(
      wire::SendMessage(kChannel, {0, std::move(body)}, fds, Deadline::AfterMs(kMessageMs)));
}

// As of two files that are kept whole.
wire::Manifest PlanOfFiles(const std::string& lie) {
  wire::Manifest plan;
  plan.state = "m";
  plan.device = "host";
  plan.arena_bytes = {kArenaBytes, kArenaBytes};
  plan.assets = {{"f", 0, 0, kArenaBytes}, {"g", 1, 0, kArenaBytes}};
  plan.whole_files = true;
  if (lie == "files-short") plan.assets[1].size_bytes = 100;
  if (lie == "files-shared") plan.assets[1].arena = 0;
  if (lie == "files-spare") plan.assets.pop_back();
  if (lie == "files-tensor") plan.tensors = {{"a", Dtype::kF32, {16}, 0, 0, 64}};
  if (lie == "files-many") plan.arena_bytes.resize(wire::kArenaCountMax + 1, kArenaBytes);
  return plan;
}

wire::Manifest Plan(const std::string& lie) {
  if (lie.starts_with("files-")) return PlanOfFiles(lie);
  wire::Manifest plan;
  plan.state = "m";
  plan.device = "host";
  plan.arena_bytes = {kArenaBytes};
  plan.tensors = {{"a", Dtype::kF32, {16}, 0, 0, 64}, {"b", Dtype::kF32, {16}, 0, 256, 64}};
  if (lie == "outside") plan.tensors[1].offset = kArenaBytes;
  if (lie == "unaligned") plan.tensors[1].offset = 100;
  if (lie == "twice") plan.tensors[1].name = "a";
  if (lie == "shape") plan.tensors[1].shape = {17};
  if (lie == "arena") plan.tensors[1].arena = 1;
  if (lie == "two-arenas") plan.arena_bytes = {kArenaBytes, kArenaBytes};
  return plan;
}

int Lie(const std::string& lie) {
  Await<wire::PlanRequest>();
  const std::vector<std::uint8_t> draft = wire::EncodeManifest(Plan(lie));
  const UniqueFd fd = device::SealedCopy("plan", draft).value();
  if (lie == "no-manifest") Say(wire::PlanReply{kArenaBytes});
  const std::uint64_t said = lie == "files-half" || lie == "size" ? kArenaBytes * 2 : kArenaBytes;
  Say(wire::PlanReply{said}, {fd.get()});
  if (lie == "plans-twice") Say(wire::PlanReply{kArenaBytes}, {fd.get()});

  wire::Received request = Await<wire::FillRequest>();
  device::HostArena arena =
      device::HostArena::Adopt(std::move(request.fds.at(0)), kArenaBytes).value();
  {
    device::Mapping mapping = device::Mapping::Writable(arena.fd(), kArenaBytes).value();
    if (lie != "holes") std::memset(mapping.writable_bytes().data(), 1, kArenaBytes);
    if (lie == "mapped") {
      Say(wire::FillReply{});
      ::sleep(60);
    }
  }
  if (lie == "backwards") Say(wire::FillProgress{~std::uint64_t{0}, ~std::uint64_t{0}});
  if (lie == "backwards") ::sleep(60);
  Say(wire::FillReply{});
  if (lie == "dies-done") ::raise(SIGKILL);
  return 0;
}

}  // namespace
}  // namespace sticky::testing

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: sticky_fake_loader LIE, started by stickyd\n", stderr);
    return 64;
  }
  return sticky::testing::Lie(argv[1]);
}
