// A storm: many processes attach, check every byte and are killed at random, while their states are
// replaced and evicted and loaders and the daemon itself are killed. Not one wrong byte is read,
// and at the end nothing is left.
//
// STICKY_STORM_SECONDS: how long (60; 20 under a sanitizer). STICKY_STORM_SEED: as an earlier run
// printed it; what is done is the same then, though not when.

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string_view>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/text.h"
#include "stickyinvoc/stickyinvoc.h"
#include "tests/testing/daemon_process.h"
#include "tests/testing/matchers.h"

namespace sticky::testing {
namespace {

constexpr std::uint64_t kDefaultSeconds = std::string_view(STICKY_SANITIZE).empty() ? 60 : 20;
constexpr int kWorkers = 16;
constexpr std::uint64_t kModelBytes = 1u << 20;
constexpr const char* kNames[] = {"a", "b", "c"};

std::uint64_t FromEnvironment(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Every byte of a model follows from its first eight (xorshift64, Marsaglia 2003).
void FillFrom(std::uint64_t seed, std::uint64_t* words, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    words[i] = seed;
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
  }
}

// Shared by all processes of the test.
struct Counters {
  std::atomic<std::uint64_t> attaches;
  std::atomic<std::uint64_t> refusals;  // try again: no daemon, loading, draining
  std::atomic<std::uint64_t> bytes;     // that were right
  std::atomic<std::uint64_t> wrong;     // states with a wrong byte, digest or name
  std::atomic<std::uint64_t> errors;    // of a kind that nobody should see
  std::atomic<std::uint64_t> orphans;   // states read after their daemon had gone
};

class Worker {
 public:
  Worker(Counters& counters, std::string socket_path, std::uint64_t seed)
      : counters_(counters), socket_path_(std::move(socket_path)), random_(seed) {}

  [[noreturn]] void Run() {
    for (;;) Attach();
  }

 private:
  void Attach() {
    sti_attach_options options{};
    options.struct_bytes = sizeof options;
    options.wait_ms = 2000;
    options.socket_path = socket_path_.c_str();
    sti_state* state = nullptr;
    sti_error error{};
    const int code = sti_attach(kNames[random_() % std::size(kNames)], &options, &state, &error);
    // Out of memory: the loader of the state was killed, as the kernel does when memory is short.
    if (code == -STI_UNAVAILABLE || code == -STI_NOT_FOUND || code == -STI_OUT_OF_MEMORY) {
      ++counters_.refusals;
      ::usleep(1000);
      return;
    }
    if (code != STI_OK) {
      std::fprintf(stderr, "storm: attach: %s\n", error.message);
      ++counters_.errors;
      return;
    }
    ++counters_.attaches;
    Check(*state);
    ::usleep(static_cast<useconds_t>(random_() % 20'000));
    Check(*state);  // its daemon may have been killed meanwhile
    sti_detach(state);
  }

  void Check(const sti_state& state) {
    sti_tensor tensor{};
    sti_state_info info{};
    info.struct_bytes = sizeof info;
    if (sti_tensor_find(&state, "data", &tensor, nullptr) != STI_OK ||
        sti_state_info_get(&state, &info, nullptr) != STI_OK || tensor.size_bytes != kModelBytes) {
      ++counters_.wrong;
      return;
    }
    const auto* const words = static_cast<const std::uint64_t*>(tensor.data);
    expected_.resize(kModelBytes / sizeof(std::uint64_t));
    FillFrom(words[0], expected_.data(), expected_.size());
    const std::string digest(reinterpret_cast<const char*>(info.content_digest), 16);
    const bool is_known = digests_.try_emplace(words[0], digest).first->second == digest;
    if (!is_known || std::memcmp(expected_.data(), words, kModelBytes) != 0) ++counters_.wrong;
    counters_.bytes += kModelBytes;
    counters_.orphans += info.connected == 0 ? 1 : 0;
  }

  Counters& counters_;
  const std::string socket_path_;
  std::mt19937_64 random_;
  std::vector<std::uint64_t> expected_;
  std::map<std::uint64_t, std::string> digests_;  // of each content, as it was first told
};

DaemonOptions Kept() {
  DaemonOptions options;
  options.kept = true;
  options.arguments = {"--memory", "256MiB", "--log-level", "error"};
  return options;
}

class Storm {
 public:
  explicit Storm(std::uint64_t seed) : random_(seed), daemon_(Kept()) {
    void* const shared = ::mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    counters_ = new (shared) Counters{};
    for (const char* const name : kNames) Load(name, wire::Placement::kJoin);
    workers_.resize(kWorkers);
    for (Process& worker : workers_) StartWorker(worker);
  }

  void Rage(std::int64_t ms) {
    const Deadline deadline = Deadline::AfterMs(ms);
    while (!deadline.passed() && counters_->wrong == 0) {
      ::usleep(static_cast<useconds_t>(random_() % 30'000));
      DoOne();
    }
  }

  void ExpectCalm() {
    for (Process& worker : workers_) worker.KillAndReap();
    ASSERT_TRUE(daemon_.LeaseCountBecomes(0));
    for (const char* const name : kNames) Evict(name);
    const auto used = [&] { return daemon_.Client().Status().value().used_bytes; };
    EXPECT_TRUE(WaitUntil([&] { return used() == 0; })) << used() << " bytes are still counted";
    // Only what a daemon that has just been started has, and its keeper for it.
    const int open = OpenDescriptors(daemon_.pid());
    const int kept = OpenDescriptors(daemon_.process().pid());
    daemon_.KillAndWait();
    EXPECT_TRUE(WaitUntil([&] { return OpenDescriptors(daemon_.pid()) == open; }))
        << open << " before, " << OpenDescriptors(daemon_.pid()) << " after";
    EXPECT_EQ(OpenDescriptors(daemon_.process().pid()), kept);
    EXPECT_LE(kept, kKeeperDescriptorsMax);
    EXPECT_EQ(counters_->wrong, 0u);
    EXPECT_EQ(counters_->errors, 0u);
    EXPECT_GT(counters_->attaches, 0u);
    EXPECT_GT(counters_->orphans, 0u) << "nobody read a state without its daemon";
  }

  std::string Figures() const {
    return Format(
        "%llu attaches, %.1f GiB read, %llu wrong, %llu after the daemon's death; %llu to try "
        "again; killed: %llu workers, %llu daemons, %llu loaders; %llu reloads, %llu evictions",
        Count(counters_->attaches), static_cast<double>(counters_->bytes) / (1u << 30),
        Count(counters_->wrong), Count(counters_->orphans), Count(counters_->refusals),
        Count(killed_workers_), Count(killed_daemons_), Count(killed_loaders_), Count(reloads_),
        Count(evictions_));
  }

 private:
  // Its own, the socket, the record of the node: less than one state would add.
  static constexpr int kKeeperDescriptorsMax = 12;

  static unsigned long long Count(std::uint64_t count) { return count; }
  std::uint64_t Below(std::uint64_t limit) { return random_() % limit; }
  const char* AnyName() { return kNames[Below(std::size(kNames))]; }

  void DoOne() {
    const std::uint64_t kind = Below(20);
    if (kind < 8) {
      Process& worker = workers_[Below(workers_.size())];
      worker.KillAndReap();
      ++killed_workers_;
      StartWorker(worker);
    } else if (kind < 11) {
      if (const pid_t pid = daemon_.pid(); pid > 0) ::kill(pid, SIGKILL);
      ++killed_daemons_;
    } else if (kind < 15) {
      Load(AnyName(), wire::Placement::kReplace);
    } else if (kind < 17) {
      const char* const name = AnyName();
      Evict(name);
      Load(name, wire::Placement::kJoin);
    } else if (kind < 18) {
      PauseAWorker();
    } else {
      KillALoader();
    }
  }

  void StartWorker(Process& worker) {
    const std::uint64_t seed = random_();
    const std::string socket_path = daemon_.socket_path();
    worker = Process::Fork([&]() -> int { Worker(*counters_, socket_path, seed).Run(); });
  }

  void PauseAWorker() {
    const Process& worker = workers_[Below(workers_.size())];
    worker.Signal(SIGSTOP);
    ::usleep(20'000);
    worker.Signal(SIGCONT);
  }

  // A load of new content, whose daemon or loader may be killed while it runs.
  void Load(const std::string& name, wire::Placement placement) {
    WriteModel();
    Result<WireClient> client = WireClient::Connect(daemon_.socket_path());
    if (!client.ok()) return;
    wire::LoadRequest request = LoadRequestFor(name, 5000, static_cast<std::uint8_t>(++version_));
    request.placement = placement;
    Result<std::uint32_t> sent = client.value().SendLoad(request, model_path());
    if (!sent.ok()) return;
    if (Below(3) == 0) {
      if (const pid_t pid = daemon_.pid(); pid > 0 && Below(2) == 0) ::kill(pid, SIGKILL);
      KillALoader();
    }
    if (client.value().Answer(sent.value(), 5000).ok()) ++reloads_;
  }

  void KillALoader() {
    if (daemon_.pid() <= 0) return;
    const std::optional<pid_t> loader = daemon_.LoaderPid();
    if (!loader) return;
    ::kill(*loader, SIGKILL);
    ++killed_loaders_;
  }

  void Evict(const std::string& name) {
    Result<WireClient> client = WireClient::Connect(daemon_.socket_path());
    if (client.ok() && client.value().Ask(wire::EvictRequest{name, 2000}).ok()) ++evictions_;
  }

  std::string model_path() const { return daemon_.folder() / "model.safetensors"; }
  void WriteModel() {
    WriteTensorFile(model_path(), kModelBytes);
    std::string file = ReadText(model_path());
    std::vector<std::uint64_t> words(kModelBytes / sizeof(std::uint64_t));
    FillFrom(random_() | 1, words.data(), words.size());
    std::memcpy(file.data() + file.size() - kModelBytes, words.data(), kModelBytes);
    WriteText(model_path(), file);
  }

  std::mt19937_64 random_;
  DaemonProcess daemon_;
  Counters* counters_ = nullptr;
  std::vector<Process> workers_;
  std::uint64_t version_ = 0;
  std::uint64_t killed_workers_ = 0;
  std::uint64_t killed_daemons_ = 0;
  std::uint64_t killed_loaders_ = 0;
  std::uint64_t reloads_ = 0;
  std::uint64_t evictions_ = 0;
};

TEST(Storm, NobodyReadsAWrongByteAndNothingIsLeft) {
  const std::uint64_t seed = FromEnvironment("STICKY_STORM_SEED", std::random_device()());
  const std::uint64_t seconds = FromEnvironment("STICKY_STORM_SECONDS", kDefaultSeconds);
  Storm storm(seed);

  storm.Rage(static_cast<std::int64_t>(seconds) * 1000);
  storm.ExpectCalm();

  std::printf("storm of %llu s, seed %llu: %s\n", static_cast<unsigned long long>(seconds),
              static_cast<unsigned long long>(seed), storm.Figures().c_str());
}

}  // namespace
}  // namespace sticky::testing
