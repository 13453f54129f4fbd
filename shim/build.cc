#include "shim/build.h"

#include <cerrno>
#include <cstdlib>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>

#include "base/deadline.h"
#include "base/text.h"
#include "flatbuffers/wire_socket.h"

namespace sticky::shim {
namespace {

constexpr std::uint32_t kConnectMsDefault = 5000;
// For the digest of a large state; the daemon ends a build that does not move much earlier.
constexpr std::int64_t kCommitMs = 3'600'000;

// Bytes of a tensor. Nothing when it is malformed.
std::optional<std::uint64_t> TensorBytes(const wire::ManifestTensor& tensor) {
  if (!IsKnown(tensor.dtype) || tensor.shape.size() > wire::kRankMax) return std::nullopt;
  std::uint64_t size_bytes = SizeBytes(tensor.dtype);
  for (const std::int64_t extent : tensor.shape) {
    if (extent < 0 ||
        __builtin_mul_overflow(size_bytes, static_cast<std::uint64_t>(extent), &size_bytes)) {
      return std::nullopt;
    }
  }
  return size_bytes;
}

// How long `stickyctl build --wait` lets every arena of its builder wait for room; 0: it did not
// say.
std::uint32_t LeastWaitMs() {
  const char* const text = std::getenv("STICKYINVOC_BUILD_WAIT_MS");
  if (text == nullptr) return 0;
  const unsigned long ms = std::strtoul(text, nullptr, /*base=*/10);
  return static_cast<std::uint32_t>(std::min<unsigned long>(ms, wire::kWaitMsMax));
}

}  // namespace

Result<ArenaMemory> ArenaMemory::Map(int fd, std::uint64_t size_bytes) {
  void* const at = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return ErrnoError("map an arena for building", errno);
  return ArenaMemory({static_cast<std::uint8_t*>(at), static_cast<std::size_t>(size_bytes)});
}

ArenaMemory::~ArenaMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

void ArenaMemory::LetGo() {
  constexpr int kPlace = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  // Where the kernel counts every page that may be written (overcommit_memory 2), it may have no
  // room for as many; pages that are only read always have.
  for (const int protection : {PROT_READ | PROT_WRITE, PROT_READ}) {
    if (::mmap(bytes_.data(), bytes_.size(), protection, kPlace, -1, 0) != MAP_FAILED) return;
  }
  ::munmap(bytes_.data(), bytes_.size());  // no more mappings are allowed: the commit comes first
  bytes_ = {};
}

Result<Build> Build::Adopt() {
  const char* const number = std::getenv("STICKYINVOC_BUILD");
  const char* const state = std::getenv("STICKYINVOC_STATE");
  if (number == nullptr || state == nullptr) {
    return Error{Code::kInvalidArgument,
                 "begin a build: no state was named, and none came from `stickyctl build`"};
  }
  char* end = nullptr;
  const long fd = std::strtol(number, &end, /*base=*/10);
  const bool whole = end != number && *end == '\0' && fd >= 0 && fd <= INT32_MAX;
  UniqueFd copy(whole ? ::fcntl(static_cast<int>(fd), F_DUPFD_CLOEXEC, 0) : -1);
  if (!copy.valid()) {
    return Error{Code::kCorrupt, "begin a build: STICKYINVOC_BUILD is '" + Escape(number) +
                                     "', which is no open descriptor"};
  }
  // The child's own children must not keep the build alive.
  static_cast<void>(::fcntl(static_cast<int>(fd), F_SETFD, FD_CLOEXEC));
  Build build(std::move(copy), kConnectMsDefault);
  build.draft_.state = state;
  build.least_wait_ms_ = LeastWaitMs();
  return build;
}

Result<Build> Build::Begin(const std::optional<BuildOptions>& options) {
  if (!options || options->request.state.empty()) {
    STICKY_ASSIGN(Build build, Adopt());
    if (options) build.draft_.cpu = options->cpu;
    return build;
  }
  const std::uint32_t connect_ms =
      options->connect_ms != 0 ? options->connect_ms : kConnectMsDefault;
  STICKY_TRY(wire::CheckStateName(options->request.state));
  std::string path;
  if (options->socket_path.has_value()) {
    path = *options->socket_path;
  } else {
    STICKY_ASSIGN(path, wire::DefaultSocketPath());
  }
  STICKY_ASSIGN(UniqueFd connection, wire::Connect(path, Deadline::AfterMs(connect_ms)));
  Build build(std::move(connection), connect_ms);
  STICKY_ASSIGN(const wire::Received answer, build.Ask(options->request, {}, /*wait_ms=*/0));
  const auto* const reply = std::get_if<wire::BuildReply>(&answer.message.body);
  if (reply == nullptr) return Error{Code::kCorrupt, "begin a build: the answer is to another"};
  build.is_there_ = reply->state.phase == wire::StatePhase::kReady;
  build.draft_.state = options->request.state;
  build.draft_.cpu = options->cpu;
  return build;
}

Result<wire::Received> Build::Ask(wire::Body request, std::span<const int> fds,
                                  std::int64_t wait_ms) {
  const std::uint32_t id = next_request_++;
  STICKY_TRY(wire::SendMessage(connection_.get(), {id, std::move(request)}, fds,
                               Deadline::AfterMs(connect_ms_)));
  const Deadline deadline = Deadline::AfterMs(wait_ms + connect_ms_);
  for (;;) {
    STICKY_ASSIGN(wire::Received got, wire::ReceiveMessage(connection_.get(), deadline));
    if (std::holds_alternative<wire::LoadProgress>(got.message.body)) continue;
    if (got.message.request_id != id) {
      return Error{Code::kCorrupt, "read the daemon's answer: it is to another request"};
    }
    if (const auto* failure = std::get_if<wire::Failure>(&got.message.body)) {
      return Error{failure->code, failure->message, failure->os_code};
    }
    return got;
  }
}

Status Build::CheckOpen() const {
  if (!is_committed_ && !is_given_up_) return Ok{};
  return Error{Code::kInvalidArgument, "use the build of '" + draft_.state + "': it was " +
                                           (is_committed_ ? "committed" : "given up")};
}

Result<Build::Arena> Build::AddArena(std::uint64_t size_bytes, std::uint32_t wait_ms) {
  // Making pages present takes its time, which is not the caller's wait for room.
  constexpr std::int64_t kPresentMs = 600'000;
  STICKY_TRY(CheckOpen());
  if (size_bytes == 0 || size_bytes > wire::kArenaBytesMax) {
    return Error{Code::kInvalidArgument,
                 Format("ask for an arena of %llu bytes: want 1 to %llu",
                        static_cast<unsigned long long>(size_bytes),
                        static_cast<unsigned long long>(wire::kArenaBytesMax))};
  }
  wait_ms = std::min(std::max(wait_ms, least_wait_ms_), wire::kWaitMsMax);
  STICKY_ASSIGN(const wire::Received answer,
                Ask(wire::BuildArenaRequest{size_bytes, wait_ms}, {}, wait_ms + kPresentMs));
  const auto* const reply = std::get_if<wire::BuildArenaReply>(&answer.message.body);
  const bool fits = reply != nullptr && answer.fds.size() == 1 && reply->arena == memory_.size() &&
                    reply->size_bytes == size_bytes;
  if (!fits) return Error{Code::kCorrupt, "ask for an arena: the answer is to another question"};
  STICKY_ASSIGN(ArenaMemory memory, ArenaMemory::Map(answer.fds[0].get(), size_bytes));
  void* const data = memory.data();
  memory_.push_back(std::move(memory));
  draft_.arena_bytes.push_back(size_bytes);
  return Arena{reply->arena, data};
}

Status Build::CheckPlace(const std::string& name, std::uint32_t arena, std::uint64_t offset,
                         std::uint64_t size_bytes) const {
  const std::string doing = "add '" + Escape(name) + "' to the build of '" + draft_.state + "': ";
  if (name.empty() || name.size() > wire::kTensorNameBytesMax) {
    return Error{Code::kInvalidArgument,
                 doing + Format("a name has 1 to %u bytes", wire::kTensorNameBytesMax)};
  }
  if (arena >= draft_.arena_bytes.size()) {
    return Error{Code::kInvalidArgument, doing + Format("there is no arena %u, but %zu of them",
                                                        arena, draft_.arena_bytes.size())};
  }
  if (offset % wire::kTensorAlignment != 0) {
    return Error{Code::kInvalidArgument, doing + Format("offset %llu is not a multiple of 256",
                                                        static_cast<unsigned long long>(offset))};
  }
  const std::uint64_t arena_bytes = draft_.arena_bytes[arena];
  if (offset > arena_bytes || size_bytes > arena_bytes - offset) {
    return Error{Code::kInvalidArgument,
                 doing + Format("%llu bytes at offset %llu do not lie in arena %u of %llu bytes",
                                static_cast<unsigned long long>(size_bytes),
                                static_cast<unsigned long long>(offset), arena,
                                static_cast<unsigned long long>(arena_bytes))};
  }
  return Ok{};
}

Status Build::AddTensor(wire::ManifestTensor tensor) {
  const std::optional<std::uint64_t> size_bytes = TensorBytes(tensor);
  if (!size_bytes) {
    return Error{Code::kInvalidArgument,
                 "add '" + Escape(tensor.name) + "': its dtype, rank or shape is not allowed"};
  }
  STICKY_TRY(CheckPlace(tensor.name, tensor.arena, tensor.offset, *size_bytes));
  tensor.size_bytes = *size_bytes;
  draft_.tensors.push_back(std::move(tensor));
  return Ok{};
}

Status Build::AddAsset(wire::ManifestAsset asset) {
  STICKY_TRY(CheckPlace(asset.name, asset.arena, asset.offset, asset.size_bytes));
  draft_.assets.push_back(std::move(asset));
  return Ok{};
}

Status Build::Commit() {
  if (is_there_ || is_committed_) return Ok{};
  STICKY_TRY(CheckOpen());
  // The daemon cannot seal what is mapped writable.
  for (ArenaMemory& memory : memory_) memory.LetGo();
  draft_.device = "host";
  STICKY_ASSIGN(const UniqueFd table, wire::MakeBlob(wire::EncodeManifest(draft_)));
  const int fds[] = {table.get()};
  STICKY_ASSIGN(const wire::Received answer,
                Ask(wire::BuildCommitRequest{wire::kWaitMsMax}, fds, kCommitMs));
  if (!std::holds_alternative<wire::BuildReply>(answer.message.body)) {
    return Error{Code::kCorrupt, "commit a build: the answer is to another question"};
  }
  is_committed_ = true;
  connection_.Reset();
  return Ok{};
}

void Build::GiveUp() {
  if (is_committed_) return;
  for (ArenaMemory& memory : memory_) memory.LetGo();
  connection_.Reset();
  is_given_up_ = true;
}

}  // namespace sticky::shim
