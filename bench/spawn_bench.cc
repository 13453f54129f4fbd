// Measures spawn -> attached and every tensor found -> exit, minus spawn and exit of an empty
// static program, and where the difference goes, in turns.
//
// usage: spawn_bench [--json] [--rounds N] [--tensors N] [--core N]
// Without --core the processes run where the scheduler puts them, as invocations do.

#include <string>
#include <vector>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "bench/bench_util.h"
#include "bench/peer.h"

namespace sticky::bench {
namespace {

// Of the folder that this program lies in: the build puts all of the bench there.
std::string Beside(const char* name) {
  char self[4096];
  const ssize_t size = ::readlink("/proc/self/exe", self, sizeof self - 1);
  if (size < 0) Die("find this program");
  const std::string path(self, static_cast<std::size_t>(size));
  return path.substr(0, path.rfind('/') + 1) + name;
}

void SpawnAndWait(const std::string& program, const char* mode) {
  std::string path = program;
  std::string argument = mode;
  char* const arguments[] = {path.data(), argument.data(), nullptr};
  pid_t pid = -1;
  if (::posix_spawn(&pid, path.c_str(), nullptr, nullptr, arguments, environ) != 0) Die("spawn");
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid || status != 0) {
    std::fprintf(stderr, "%s %s has failed\n", path.c_str(), mode);
    std::exit(1);
  }
}

int Main(int argc, char** argv) {
  const int rounds = std::stoi(Option(argc, argv, "--rounds", "1000"));
  const auto tensor_count =
      static_cast<std::uint32_t>(std::stoul(Option(argc, argv, "--tensors", "272")));
  const std::string core = Option(argc, argv, "--core", "");
  if (!core.empty()) PinTo(std::stoi(core));

  constexpr std::uint64_t kArenaBytes = 64u << 20;
  auto arena = device::HostArena::Create("bench", kArenaBytes, /*want_huge=*/false).value();
  STICKY_CHECK(arena.Prefault().ok() && arena.Seal().ok());
  const Peer peer(arena, ModelLikeManifest(tensor_count, kArenaBytes));
  ::setenv("STICKYINVOC_SOCKET", peer.attach_path().c_str(), 1);
  ::setenv("STICKYINVOC_STATE", "bench", 1);
  ::unsetenv("STICKYINVOC_LEASE");

  const std::string empty_static = Beside("spawn_empty_static");
  const std::string empty_shared = Beside("spawn_empty_shared");
  const std::string probe = Beside("spawn_probe");
  const auto times = Interleave(
      rounds, {[&] { SpawnAndWait(empty_static, ""); }, [&] { SpawnAndWait(empty_shared, ""); },
               [&] { SpawnAndWait(probe, "none"); }, [&] { SpawnAndWait(probe, "attach"); },
               [&] { SpawnAndWait(probe, "find"); }});
  std::vector<double> us;
  for (const auto& each : times) us.push_back(Median(each));
  Report report;
  report.Add("empty static program", us[0], "us");
  report.Add("attach, find every tensor, exit", us[4], "us");
  report.Add("difference", us[4] - us[0], "us (must reach 2000)");
  report.Add("  of it: loading libc", us[1] - us[0], "us");
  report.Add("  of it: loading libstickyinvoc", us[2] - us[1], "us");
  report.Add("  of it: attach, and unmapping at exit", us[3] - us[2], "us");
  report.Add(Format("  of it: finding %u tensors", tensor_count), us[4] - us[3], "us");
  report.Print("spawn", Flag(argc, argv, "--json"));
  return 0;
}

}  // namespace
}  // namespace sticky::bench

int main(int argc, char** argv) { return sticky::bench::Main(argc, argv); }
