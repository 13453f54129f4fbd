// Measures attach, touch every page, exit of a process against the same with plain mmap of a file
// in the page cache, per GiB, in turns. Two such files: one was just written, which leaves it in
// large pages on some file systems; one was read from the disk, as a model that was fetched once.
//
// usage: touch_bench [--json] [--gib N] [--rounds N] [--pages loader|small|thp|hugetlb]
//                    [--folder PATH]
// loader (the default) makes the pages as sticky-loader does; thp needs
// /sys/kernel/mm/transparent_hugepage/shmem_enabled at "advise" or "always", hugetlb needs
// vm.nr_hugepages; both say so when they did not get them. The files lie in --folder.

#include <cstring>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench_util.h"
#include "bench/peer.h"
#include "stickyinvoc/stickyinvoc.h"

namespace sticky::bench {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

// One byte of each page; the sum keeps the compiler honest.
unsigned Touch(const std::uint8_t* bytes, std::uint64_t size_bytes) {
  unsigned sum = 0;
  for (std::uint64_t at = 0; at < size_bytes; at += kPageBytes) {
    sum += *static_cast<const volatile std::uint8_t*>(bytes + at);
  }
  return sum;
}

// The body runs in a child of fork() that then exits, and is waited for.
template <typename Body>
void InProcess(const Body& body) {
  const pid_t pid = ::fork();
  if (pid < 0) Die("fork");
  if (pid == 0) ::_exit(body() ? 0 : 1);
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid || status != 0) {
    std::fprintf(stderr, "a process of the bench has failed\n");
    std::exit(1);
  }
}

bool AttachAndTouch(const std::string& path, std::uint64_t size_bytes) {
  sti_attach_options options{};
  options.struct_bytes = sizeof options;
  options.socket_path = path.c_str();
  sti_state* state = nullptr;
  sti_tensor tensor;
  if (sti_attach("bench", &options, &state, nullptr) != STI_OK) return false;
  if (sti_tensor_at(state, 0, &tensor, nullptr) != STI_OK) return false;
  return Touch(static_cast<const std::uint8_t*>(tensor.data), size_bytes) != 1;
}

bool MapFileAndTouch(const std::string& path, std::uint64_t size_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* at = ::mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return false;
  return Touch(static_cast<const std::uint8_t*>(at), size_bytes) != 1;
}

// Makes every page present through a mapping, as the loader does, so that huge pages are asked for.
device::HostArena MakeArena(std::uint64_t size_bytes, std::string_view pages) {
  auto arena = device::HostArena::Create("bench", size_bytes, pages == "hugetlb").value();
  auto mapping = device::Mapping::Writable(arena.fd(), size_bytes).value();
  const std::span<std::uint8_t> bytes = mapping.writable_bytes();
  if (pages == "loader") {
    for (std::uint64_t at = 0; at < size_bytes; at += 64u << 20) {
      STICKY_CHECK(mapping.Populate(at, 64u << 20).ok());
    }
  }
  if (pages == "thp") ::madvise(bytes.data(), bytes.size(), MADV_HUGEPAGE);
  for (std::uint64_t at = 0; at < size_bytes; at += kPageBytes) bytes[at] = 1;
  std::fprintf(stderr, "%.2f GiB are in huge pages\n",
               static_cast<double>(mapping.HugeBytes()) / (1u << 30));
  { const auto unmapped = std::move(mapping); }
  STICKY_CHECK(arena.Prefault().ok() && arena.Seal().ok());
  return arena;
}

// Puts a file into the page cache as reading it from front to back does.
void ReadAgain(int fd, std::uint64_t size_bytes) {
  if (::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) Die("forget a file's pages");
  std::vector<char> block(1u << 20);
  for (std::uint64_t at = 0; at < size_bytes; at += block.size()) {
    if (::pread(fd, block.data(), block.size(), static_cast<off_t>(at)) <= 0) Die("read a file");
  }
}

// A file that is in the page cache because it was just written, or read.
std::string MakeWarmFile(const std::string& folder, std::uint64_t size_bytes, bool read_again) {
  std::string path = folder + "/stkXXXXXX";
  const int fd = ::mkstemp(path.data());
  if (fd < 0) Die("make a file");
  const std::vector<char> block(8u << 20, 1);
  for (std::uint64_t done = 0; done < size_bytes; done += block.size()) {
    if (::write(fd, block.data(), block.size()) != static_cast<ssize_t>(block.size())) {
      Die("write a file");
    }
  }
  ::fsync(fd);  // a dirty page would cost the reader, and not us
  if (read_again) ReadAgain(fd, size_bytes);
  ::close(fd);
  return path;
}

int Main(int argc, char** argv) {
  const std::uint64_t gib = std::stoull(Option(argc, argv, "--gib", "4"));
  const int rounds = std::stoi(Option(argc, argv, "--rounds", "7"));
  const std::string pages = Option(argc, argv, "--pages", "loader");
  const std::uint64_t size_bytes = gib << 30;
  const auto arena = MakeArena(size_bytes, pages);
  wire::Manifest manifest = ModelLikeManifest(1, size_bytes);
  manifest.tensors[0] = {"all", Dtype::kU8, {static_cast<std::int64_t>(size_bytes)},
                         0,     0,          size_bytes};
  const Peer peer(arena, manifest);
  const std::string folder = Option(argc, argv, "--folder", "/var/tmp");
  const std::string written = MakeWarmFile(folder, size_bytes, /*read_again=*/false);
  const std::string read = MakeWarmFile(folder, size_bytes, /*read_again=*/true);

  const auto times = Interleave(
      rounds, {[&] { InProcess([&] { return MapFileAndTouch(written, size_bytes); }); },
               [&] { InProcess([&] { return MapFileAndTouch(read, size_bytes); }); },
               [&] { InProcess([&] { return AttachAndTouch(peer.attach_path(), size_bytes); }); }});
  ::unlink(written.c_str());
  ::unlink(read.c_str());
  const auto per_gib_ms = [&](std::size_t i) {
    return Median(times[i]) / 1000 / static_cast<double>(gib);
  };
  const char* const aim = pages == "small" ? "(must reach 1.05)" : "(must reach 0.3)";
  Report report;
  report.Add("map a file that was written, touch, exit, per GiB", per_gib_ms(0), "ms");
  report.Add("map a file that was read, touch, exit, per GiB", per_gib_ms(1), "ms");
  report.Add("attach, touch, exit, per GiB", per_gib_ms(2), "ms");
  report.Add("attach / map a file that was written", per_gib_ms(2) / per_gib_ms(0), aim);
  report.Add("attach / map a file that was read", per_gib_ms(2) / per_gib_ms(1), aim);
  std::printf("%s", Flag(argc, argv, "--json") ? "" : ("pages: " + pages + "\n").c_str());
  report.Print("touch_" + pages, Flag(argc, argv, "--json"));
  return 0;
}

}  // namespace
}  // namespace sticky::bench

int main(int argc, char** argv) { return sticky::bench::Main(argc, argv); }
