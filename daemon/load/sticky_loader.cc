// sticky-loader: one load, in a process of its own, so that whatever a weight file does to it is
// one failed load and nothing more. It speaks with the coordinator over descriptor 3: plan the
// files that it is given, fill the arena that it is given, say the digest, exit.

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/cpu_features.h"
#include "base/deadline.h"
#include "base/text.h"
#include "daemon/load/digest_arena.h"
#include "daemon/load/fd_byte_source.h"
#include "daemon/load/load_model.h"
#include "daemon/load/progress_teller.h"
#include "daemon/load/reading.h"
#include "daemon/load/sha256_check.h"
#include "daemon/load/whole_files.h"
#include "device/host_arena.h"
#include "flatbuffers/wire_blob.h"
#include "flatbuffers/wire_manifest.h"
#include "weights/load_plan.h"

namespace sticky::load {
namespace {

constexpr int kChannel = 3;
// For room in memory: as long as anyone may wait for a load. The coordinator ends it earlier.
constexpr std::int64_t kRoomMs = wire::kWaitMsMax;
constexpr int kMessageMs = 60'000;  // for one message of the coordinator, who has its own deadlines
constexpr std::int64_t kProgressNs = 50'000'000;

// A load is background work that may be killed: the node's tasks, and the coordinator, come first.
void StepBack() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setpriority(PRIO_PROCESS, 0, 10);
  constexpr int kIoprioWhoProcess = 1;  // ioprio_set(2) has no header
  constexpr int kIoprioBestEffortLow = 2 << 13 | 6;
  ::syscall(SYS_ioprio_set, kIoprioWhoProcess, 0, kIoprioBestEffortLow);
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  ::umask(077);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  const int fd = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  static_cast<void>(::write(fd, "1000", 4));
  ::close(fd);
}

struct Job {
  wire::PlanRequest request;
  std::vector<std::unique_ptr<FdByteSource>> sources;
  std::vector<weights::SourceFile> files;
  std::vector<ExpectedFile> expected;  // those of `files` whose SHA-256 is to be checked
  std::size_t whole_count = 0;         // of `files`: all, or none
};

// What the files become: a model's one arena, or an arena for each file that is kept whole.
struct Plan {
  std::optional<weights::LoadPlan> model;
  wire::Manifest draft;
  std::uint64_t memory_bytes = 0;
};

Result<wire::Received> Receive(std::int64_t wait_ms = kMessageMs) {
  return wire::ReceiveMessage(kChannel, Deadline::AfterMs(wait_ms));
}

Status Say(wire::Body body, int fd = -1) {
  const std::vector<int> fds = fd < 0 ? std::vector<int>() : std::vector<int>{fd};
  return wire::SendMessage(kChannel, {0, std::move(body)}, fds, Deadline::AfterMs(kMessageMs));
}

// Errors: kInvalidArgument for what is not a regular file, kCorrupt when its size has changed since
// the requester looked.
Status CheckFile(const wire::SourceFile& file, int fd) {
  struct stat status {};
  const std::string doing = "use the file '" + Escape(file.name) + "'";
  if (::fstat(fd, &status) != 0) return ErrnoError(doing, errno);
  if (!S_ISREG(status.st_mode)) {
    return Error{Code::kInvalidArgument, doing + ": it is not a regular file"};
  }
  const auto found = static_cast<std::uint64_t>(status.st_size);
  if (found == file.size_bytes) return Ok{};
  return Error{Code::kCorrupt,
               Format("%s: it had %llu bytes when the load was asked for and has %llu now; is "
                      "somebody still writing it?",
                      doing.c_str(), static_cast<unsigned long long>(file.size_bytes),
                      static_cast<unsigned long long>(found))};
}

// Adds the files of one message, whose descriptors it takes.
Status AddFiles(Job& job, wire::Received part) {
  const auto* const files = std::get_if<wire::FilesPart>(&part.message.body);
  if (files == nullptr || files->files.size() != part.fds.size() || part.fds.empty()) {
    return Error{Code::kInternal, "expected the files to plan from"};
  }
  for (std::size_t i = 0; i < part.fds.size(); ++i) {
    const wire::SourceFile& file = files->files[i];
    STICKY_TRY(CheckFile(file, part.fds[i].get()));
    // A file whose SHA-256 is checked is read for that too.
    const ReadBy by = file.sha256 ? ReadBy::kPageCache : ReadBy::kDisk;
    job.sources.push_back(std::make_unique<FdByteSource>(std::move(part.fds[i]), file.name, by));
    job.files.push_back({file.name, file.size_bytes, job.sources.back().get()});
    if (file.sha256) job.expected.push_back({job.files.back(), *file.sha256});
    job.whole_count += file.role == wire::FileRole::kWhole ? 1 : 0;
  }
  return Ok{};
}

Result<Job> ReceiveJob(const wire::Received& first) {
  Job job;
  const auto* const request = std::get_if<wire::PlanRequest>(&first.message.body);
  if (request == nullptr) return Error{Code::kInternal, "expected a request to plan"};
  job.request = *request;
  while (job.files.size() < job.request.file_count) {
    STICKY_ASSIGN(wire::Received part, Receive());
    STICKY_TRY(AddFiles(job, std::move(part)));
  }
  return job;
}

void DraftModel(const weights::LoadPlan& plan, wire::Manifest& draft) {
  draft.arena_bytes = {plan.arena_bytes};
  draft.notes = plan.notes;
  for (const weights::PlannedTensor& tensor : plan.tensors) {
    draft.tensors.push_back(
        {tensor.name, tensor.dtype, tensor.shape, 0, tensor.offset, tensor.size_bytes});
  }
  for (const weights::PlannedAsset& asset : plan.assets) {
    draft.assets.push_back({asset.name, 0, asset.offset, asset.bytes.size()});
  }
}

// Errors: kInvalidArgument for more files than a state has room for.
Status DraftWholeFiles(std::span<const weights::SourceFile> files, wire::Manifest& draft) {
  if (files.size() > wire::kArenaCountMax) {
    return Error{Code::kInvalidArgument,
                 Format("plan a load: %zu files are to be kept whole, at most %u are, each in "
                        "memory of its own; make several states of them, or one archive",
                        files.size(), wire::kArenaCountMax)};
  }
  draft.whole_files = true;
  draft.arena_bytes = WholeFileArenas(files);
  std::uint32_t next_arena = 0;
  for (const weights::SourceFile& file : files) {
    const std::uint32_t arena = file.size_bytes > 0 ? next_arena++ : 0;
    draft.assets.push_back({file.name, arena, 0, file.size_bytes});
  }
  return Ok{};
}

Result<Plan> MakePlan(const Job& job) {
  Plan plan;
  plan.draft.state = job.request.state;
  plan.draft.device = "host";
  for (std::size_t i = 0; i < job.files.size(); ++i) {
    plan.draft.sources.push_back(
        {job.files[i].name, job.files[i].size_bytes, job.sources[i]->modified_ns()});
  }
  if (job.whole_count > 0) {
    if (job.whole_count != job.files.size()) {
      return Error{Code::kInvalidArgument,
                   Format("plan a load: %zu of %zu files are to be kept whole; all are, or none",
                          job.whole_count, job.files.size())};
    }
    STICKY_TRY(DraftWholeFiles(job.files, plan.draft));
  } else {
    weights::PlanOptions options;
    options.dtype = job.request.dtype;
    options.best_matrix_dtype = BestMatrixDtype();
    STICKY_ASSIGN(plan.model, weights::PlanLoad(job.files, options));
    DraftModel(*plan.model, plan.draft);
  }
  plan.memory_bytes = wire::ArenaMemoryBytes(plan.draft);
  return plan;
}

int CpuCount() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

Reading ReadingOf(const Job& job) {
  std::uint64_t cached_bytes = 0;
  std::uint64_t all_bytes = 0;
  for (std::size_t i = 0; i < job.files.size(); ++i) {
    cached_bytes += job.sources[i]->CachedBytes();
    all_bytes += job.files[i].size_bytes;
  }
  return ChooseReading(cached_bytes, all_bytes, CpuCount());
}

// A coordinator that does not listen right now is not waited for: one that is gone shows when the
// reply is sent.
void SayProgress(std::uint64_t bytes_done, std::uint64_t bytes_present) {
  const wire::FillProgress progress{bytes_done, bytes_present};
  static_cast<void>(wire::TrySend(kChannel, wire::Encode({0, progress}), {}));
}

struct Arenas {
  std::vector<device::Mapping> mappings;
  bool prefault = true;  // their pages are to be made present before they are written
};

// The arenas that the coordinator has made, mapped for writing.
Result<Arenas> ReceiveArenas(const Plan& plan) {
  STICKY_ASSIGN(wire::Received message, Receive(kRoomMs));
  const auto* const request = std::get_if<wire::FillRequest>(&message.message.body);
  const std::vector<std::uint64_t>& sizes = plan.draft.arena_bytes;
  if (request == nullptr || message.fds.size() != sizes.size() ||
      request->arena_bytes != plan.memory_bytes) {
    return Error{Code::kInternal, "expected arenas of the planned sizes"};
  }
  Arenas arenas{{}, request->prefault};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    STICKY_ASSIGN(const device::HostArena arena,
                  device::HostArena::Adopt(std::move(message.fds[i]), sizes[i]));
    STICKY_ASSIGN(device::Mapping mapping, device::Mapping::Writable(arena.fd(), sizes[i]));
    if (arenas.prefault) mapping.PreferHugePages();
    arenas.mappings.push_back(std::move(mapping));
  }
  return arenas;
}

// part: of one of the arenas.
Status Populate(Arenas& arenas, std::span<std::uint8_t> part, ProgressTeller& progress) {
  for (device::Mapping& mapping : arenas.mappings) {
    const std::span<const std::uint8_t> all = mapping.bytes();
    if (part.data() < all.data() || part.data() >= all.data() + all.size()) continue;
    const auto offset = static_cast<std::uint64_t>(part.data() - all.data());
    STICKY_TRY(mapping.Populate(offset, part.size()));
    progress.Present(part.size());
    return Ok{};
  }
  return Error{Code::kInternal, "make pages present: they are of no arena"};
}

Result<FillResult> FillAll(const Job& job, const Plan& plan, Arenas& arenas,
                           ProgressTeller& progress) {
  FillOptions options;
  const Reading reading = ReadingOf(job);
  options.thread_count = reading.thread_count;
  options.piece_bytes = reading.piece_bytes;
  options.maker_count = reading.maker_count;
  if (arenas.prefault) {
    options.make_present = [&arenas, &progress](std::span<std::uint8_t> part) {
      return Populate(arenas, part, progress);
    };
  }
  options.progress = [&progress](std::uint64_t bytes_done) { progress.Filled(bytes_done); };
  if (plan.model) {
    return FillArena(*plan.model, job.files, arenas.mappings[0].writable_bytes(), options);
  }
  std::vector<std::span<std::uint8_t>> parts;
  for (device::Mapping& mapping : arenas.mappings) parts.push_back(mapping.writable_bytes());
  return FillWholeFiles(job.files, parts, options);
}

Status CheckContent(const Job& job, const Digest& found) {
  const std::optional<Digest>& expected = job.request.expect_digest;
  if (!expected || *expected == found) return Ok{};
  return Error{Code::kCorrupt, "check the content: its digest is " + ToHex(found) +
                                   ", but source.expect.digest says " + ToHex(*expected) +
                                   ": other files, another dtype or another version of them"};
}

Result<wire::FillReply> Fill(const Job& job, const Plan& plan) {
  std::uint64_t checked_bytes = 0;
  for (const ExpectedFile& one : job.expected) checked_bytes += one.file.size_bytes;
  ProgressTeller progress({plan.memory_bytes, checked_bytes, kProgressNs}, SayProgress);
  STICKY_ASSIGN(Arenas arenas, ReceiveArenas(plan));
  Sha256Check check(job.expected, CpuCount(),
                    [&progress](std::uint64_t more_bytes) { progress.Checked(more_bytes); });
  STICKY_ASSIGN(const FillResult result, FillAll(job, plan, arenas, progress));
  STICKY_TRY(check.Finish());
  STICKY_TRY(CheckContent(job, result.content_digest));
  std::uint64_t huge_bytes = 0;
  for (const device::Mapping& mapping : arenas.mappings) huge_bytes += mapping.HugeBytes();
  // the mappings end here, so that the coordinator can seal
  return wire::FillReply{result.content_digest, result.bytes_read, huge_bytes};
}

Status Load(const wire::Received& first) {
  STICKY_ASSIGN(const Job job, ReceiveJob(first));
  STICKY_ASSIGN(const Plan plan, MakePlan(job));
  {
    const std::vector<std::uint8_t> draft = wire::EncodeManifest(plan.draft);
    STICKY_ASSIGN(const UniqueFd fd, device::SealedCopy("plan:" + job.request.state, draft));
    STICKY_TRY(Say(wire::PlanReply{plan.memory_bytes}, fd.get()));
  }
  STICKY_ASSIGN(const wire::FillReply reply, Fill(job, plan));
  return Say(reply);
}

// --- help with a build --------------------------------------------------------------------------

Status PrefaultArena(const wire::PrefaultRequest& request, wire::Received& message) {
  if (message.fds.size() != 1) return Error{Code::kInternal, "expected an arena"};
  {  // nothing of it is left here when the reply goes
    STICKY_ASSIGN(const device::HostArena arena,
                  device::HostArena::Adopt(std::move(message.fds[0]), request.arena_bytes));
    STICKY_ASSIGN(device::Mapping mapping,
                  device::Mapping::Writable(arena.fd(), request.arena_bytes));
    ProgressTeller progress({request.arena_bytes, 0, kProgressNs}, SayProgress);
    mapping.PreferHugePages();
    for (std::uint64_t at = 0; at < request.arena_bytes;) {
      const std::uint64_t size_bytes =
          std::min(PresentPages::kStretchBytes, request.arena_bytes - at);
      STICKY_TRY(mapping.Populate(at, size_bytes));
      at += size_bytes;
      progress.Present(size_bytes);
    }
  }
  return Say(wire::PrefaultReply{});
}

// Of sealed arenas, block by block, as a load digests what it fills.
Result<wire::FillReply> DigestArenas(const wire::DigestRequest& request,
                                     const wire::Received& message) {
  if (message.fds.size() != request.arena_bytes.size()) {
    return Error{Code::kInternal, "expected as many arenas as sizes"};
  }
  wire::FillReply reply;
  std::vector<Digest> blocks;
  BlockDigester digester;
  const std::uint64_t all_bytes =
      std::accumulate(request.arena_bytes.begin(), request.arena_bytes.end(), std::uint64_t{0});
  ProgressTeller progress({all_bytes, 0, kProgressNs}, SayProgress);
  for (std::size_t i = 0; i < message.fds.size(); ++i) {
    STICKY_ASSIGN(const device::Mapping mapping,
                  device::Mapping::ReadOnly(message.fds[i].get(), request.arena_bytes[i]));
    for (std::span<const std::uint8_t> left = mapping.bytes(); !left.empty();) {
      const std::size_t size_bytes = std::min<std::size_t>(left.size(), kDigestBlockBytes);
      digester.Update(left.first(size_bytes));
      blocks.push_back(digester.Finish());
      left = left.subspan(size_bytes);
      reply.bytes_read += size_bytes;
      progress.Filled(reply.bytes_read);
    }
    reply.huge_bytes += mapping.HugeBytes();
  }
  reply.content_digest = CombineBlockDigests(blocks);
  return reply;
}

// Until the coordinator closes the channel, or kills this.
Status Help(wire::Received message) {
  for (;;) {
    if (const auto* prefault = std::get_if<wire::PrefaultRequest>(&message.message.body)) {
      STICKY_TRY(PrefaultArena(*prefault, message));
    } else if (const auto* digest = std::get_if<wire::DigestRequest>(&message.message.body)) {
      STICKY_ASSIGN(const wire::FillReply reply, DigestArenas(*digest, message));
      return Say(reply);
    } else {
      return Error{Code::kInternal, "expected an arena to help with"};
    }
    STICKY_ASSIGN(message, Receive(kRoomMs));
  }
}

Status Work() {
  STICKY_ASSIGN(wire::Received first, Receive());
  if (std::holds_alternative<wire::PlanRequest>(first.message.body)) return Load(first);
  return Help(std::move(first));
}

int Main() {
  if (::fcntl(kChannel, F_GETFD) < 0) {
    std::fputs("sticky-loader is started by stickyd only; to load a template: stickyctl load\n",
               stderr);
    return EX_USAGE;
  }
  ::fcntl(kChannel, F_SETFD, FD_CLOEXEC);
  ::signal(SIGPIPE, SIG_IGN);
  // The signals of a terminal are for the daemon, who decides what becomes of its loads.
  ::signal(SIGHUP, SIG_IGN);
  ::signal(SIGINT, SIG_IGN);
  StepBack();
  const Status loaded = Work();
  if (loaded.ok()) return EX_OK;
  const Error& error = loaded.error();
  // When even this cannot be said, the exit status says that the load failed.
  static_cast<void>(Say(wire::Failure{error.code, error.message, error.os_code}));
  return EX_SOFTWARE;
}

}  // namespace
}  // namespace sticky::load

int main() { return sticky::load::Main(); }
