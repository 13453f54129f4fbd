// Turns messages into frames and back. With wire_manifest, the only code that sees generated
// FlatBuffers types. What each field means is said once, in wire_protocol.fbs.
//
// Bytes from a peer are checked here completely: FlatBuffers' verifier, then presence, lengths and
// ranges, so that a decoded message can be used without further checks of its form.
//
// Thread: any thread.
// Source: flatbuffers/wire_protocol.fbs.

#ifndef STICKY_FLATBUFFERS_WIRE_CODEC_H_
#define STICKY_FLATBUFFERS_WIRE_CODEC_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/digest.h"
#include "base/dtype.h"
#include "base/job.h"
#include "base/policy.h"
#include "base/result.h"

namespace sticky::wire {

// The protocols that this build speaks. A peer whose range does not overlap is refused by name.
inline constexpr std::uint16_t kProtocolMin = 1;
inline constexpr std::uint16_t kProtocolMax = 1;

// A whole frame is at most this many bytes; a longer one is kCorrupt before any allocation. What
// does not fit travels as a sealed memfd beside a Blob.
inline constexpr std::uint32_t kFrameBytesMax = 64 * 1024;
// Most descriptors beside one frame: Linux's SCM_MAX_FD.
inline constexpr std::uint32_t kFdsPerFrameMax = 253;
// Longest state name, in bytes: [A-Za-z0-9] first, then also . _ - and +.
inline constexpr std::uint32_t kStateNameBytesMax = 128;
inline constexpr std::uint32_t kFileCountMax = 4096;
inline constexpr std::uint32_t kFileNameBytesMax = 255;
// Any other text in a message. Encode cuts what is longer, between two characters.
inline constexpr std::uint32_t kTextBytesMax = 4096;
inline constexpr std::uint32_t kListCountMax = 1u << 16;  // states, leases or events in one reply
// Largest envelope inside a Blob's memfd.
inline constexpr std::uint64_t kBlobBytesMax = 64ULL * 1024 * 1024;
// Longest wait, one day. Decode takes a longer one for this.
inline constexpr std::uint32_t kWaitMsMax = 24 * 3600 * 1000;

enum class StatePhase : std::int8_t {
  kPlanning = 0,  // the loader reads headers
  kFilling,       // the loader copies tensors into the arena
  kReady,         // published: may be attached
  kDraining,      // evict was asked: no new leases, freed when the last one ends
  kClosing,       // no lease is left, but someone still maps the arena: memory is not free yet
  kFailed,        // the load failed; kept for a while so that waiters and `show` can say why
  kQueued,        // the load waits for its turn, or for room in memory
};
enum class FileRole : std::int8_t { kWeights = 0, kAsset, kWhole };
enum class Placement : std::int8_t { kJoin = 0, kReplace, kInPlace };
enum class EventKind : std::int8_t {
  kLoad = 0,
  kReady,
  kLoadFailed,
  kAttach,
  kDetach,
  kEvict,
  kGone,
  kRefusal,
  kDrain,
  kResume,
  kShutdown,
  kBudget,
  kAdopt,  // taken over from an earlier daemon
  kLoadCancelled,
};

const char* Name(StatePhase phase);  // "planning", "filling", "ready", ...; static text
const char* Name(EventKind kind);    // "load", "ready", "load-failed", ...; static text

// Errors: kInvalidArgument, naming the rule, unless `name` may name a state.
Status CheckStateName(std::string_view name);

struct Failure {
  Code code = Code::kInternal;
  std::string message;
  std::int32_t os_code = 0;
  bool operator==(const Failure&) const = default;
};
struct StateInfo {
  std::string name;
  StatePhase phase = StatePhase::kPlanning;
  std::string device;
  std::optional<Digest> content_digest;
  std::optional<Digest> template_digest;
  std::uint64_t epoch = 0;
  std::uint64_t arena_bytes = 0;
  std::uint32_t tensor_count = 0;
  std::uint32_t lease_count = 0;
  bool pinned = false;
  std::uint32_t hold_count = 0;
  std::uint64_t bytes_done = 0;
  std::uint64_t age_ms = 0;
  std::uint64_t load_ms = 0;
  std::string source;
  std::string huge_pages;
  DtypeChoice dtype = DtypeChoice::kAuto;
  std::optional<Failure> failure;
  std::uint32_t uid = 0;
  Policy policy = {};
  std::uint64_t idle_ms = 0;
  std::uint32_t queue_place = 0;
  std::uint64_t wanted_bytes = 0;
  bool closed = false;
  std::string base = {};
  std::string builder = {};
  bool kept = false;  // a keeper has it too
  std::uint64_t queued_ms = 0;
  bool cancelled = false;
  bool operator==(const StateInfo&) const = default;
};

struct AttachRequest {
  std::string state;
  std::optional<Digest> digest = {};
  std::uint32_t wait_ms = 0;
  bool hold = false;
  bool progress = false;
  std::string job = {};
  bool operator==(const AttachRequest&) const = default;
};
struct LoadRequest {
  std::string state;
  Digest template_digest;
  std::string source;
  DtypeChoice dtype = DtypeChoice::kAuto;
  bool huge_pages = false;
  std::uint32_t file_count = 0;
  std::uint32_t wait_ms = 0;
  bool hold = false;
  Policy policy = {};
  Placement placement = Placement::kJoin;
  bool prefault = true;
  std::optional<Digest> expect_digest = {};
  bool operator==(const LoadRequest&) const = default;
};
struct SourceFile {
  std::string name;
  FileRole role = FileRole::kWeights;
  std::uint64_t size_bytes = 0;
  std::optional<Sha256> sha256 = {};
  bool operator==(const SourceFile&) const = default;
};
struct FilesPart {
  std::vector<SourceFile> files;
  bool operator==(const FilesPart&) const = default;
};
struct ListRequest {
  bool operator==(const ListRequest&) const = default;
};
struct ShowRequest {
  std::string state;
  bool operator==(const ShowRequest&) const = default;
};
struct StatusRequest {
  bool operator==(const StatusRequest&) const = default;
};
struct LeasesRequest {
  bool operator==(const LeasesRequest&) const = default;
};
struct EvictRequest {
  std::string state;
  std::uint32_t wait_ms = 0;
  bool operator==(const EvictRequest&) const = default;
};
struct BuildRequest {
  std::string state;
  Policy policy = {};
  Placement placement = Placement::kJoin;
  std::optional<Digest> template_digest = {};
  std::string source = {};
  std::optional<std::string> base = {};
  std::string builder = {};
  std::uint32_t deadline_ms = 0;
  bool operator==(const BuildRequest&) const = default;
};
struct BuildArenaRequest {
  std::uint64_t size_bytes = 0;
  std::uint32_t wait_ms = 0;
  bool operator==(const BuildArenaRequest&) const = default;
};
struct BuildCommitRequest {
  std::uint32_t wait_ms = 0;
  bool operator==(const BuildCommitRequest&) const = default;
};
struct DrainRequest {
  std::optional<std::string> state;
  bool resume = false;
  std::uint32_t wait_ms = 0;
  bool operator==(const DrainRequest&) const = default;
};
struct EventsRequest {
  std::uint64_t after = 0;
  std::uint32_t wait_ms = 0;
  bool operator==(const EventsRequest&) const = default;
};

struct AttachReply {
  std::uint64_t lease_id = 0;
  std::uint64_t epoch = 0;
  std::vector<std::uint64_t> arena_bytes;
  bool operator==(const AttachReply&) const = default;
};
struct LoadProgress {
  StateInfo state;
  bool operator==(const LoadProgress&) const = default;
};
struct LoadReply {
  StateInfo state;
  bool joined = false;  // the load or the state was there already
  bool operator==(const LoadReply&) const = default;
};
struct ListReply {
  std::vector<StateInfo> states;
  bool operator==(const ListReply&) const = default;
};
struct ShowReply {
  StateInfo state;
  bool operator==(const ShowReply&) const = default;
};
struct StatusReply {
  std::string version;
  std::uint64_t pid = 0;
  std::uint32_t uid = 0;
  std::uint64_t uptime_ms = 0;
  std::uint64_t nonce = 0;
  std::uint64_t budget_bytes = 0;
  std::uint64_t used_bytes = 0;
  std::uint32_t state_count = 0;
  std::uint32_t lease_count = 0;
  std::uint32_t connection_count = 0;
  std::uint32_t connection_count_max = 0;
  std::string socket_path;
  std::string cgroup;
  bool draining = false;
  std::string device;
  DtypeChoice best_dtype = DtypeChoice::kAuto;
  std::uint32_t queue_count = 0;
  std::uint32_t load_count = 0;
  std::uint64_t attach_total = 0;
  std::uint64_t evict_total = 0;
  std::uint64_t refusal_total = 0;
  std::string keeper = {};  // empty: nobody keeps states for the next daemon
  bool keeper_lost = false;
  std::uint32_t foreign_count = 0;
  std::uint64_t foreign_bytes = 0;
  std::uint64_t own_bytes = 0;
  std::uint64_t own_bytes_max = 0;
  bool operator==(const StatusReply&) const = default;
};
struct LeaseInfo {
  std::uint64_t lease_id = 0;
  std::string state;
  std::uint64_t pid = 0;
  std::uint32_t uid = 0;
  std::uint64_t age_ms = 0;
  std::string command;
  bool hold = false;
  std::uint64_t epoch = 0;
  std::string job = {};
  bool process_ended = false;
  bool operator==(const LeaseInfo&) const = default;
};
struct LeasesReply {
  std::vector<LeaseInfo> leases;
  bool operator==(const LeasesReply&) const = default;
};
struct EvictReply {
  StateInfo state;
  bool freed = false;  // false: draining or closing; `leases` says who holds it
  std::vector<LeaseInfo> leases;
  bool operator==(const EvictReply&) const = default;
};
struct BuildReply {
  StateInfo state;
  std::optional<Digest> base_digest = {};
  bool operator==(const BuildReply&) const = default;
};
struct BuildArenaReply {
  std::uint32_t arena = 0;
  std::uint64_t size_bytes = 0;
  bool operator==(const BuildArenaReply&) const = default;
};
struct DrainReply {
  bool empty = false;  // no lease is left; else `leases` says which are
  std::vector<LeaseInfo> leases;
  bool operator==(const DrainReply&) const = default;
};
struct Event {
  std::uint64_t sequence = 0;
  std::int64_t time_ms = 0;
  EventKind kind = EventKind::kLoad;
  std::string state;
  std::uint64_t epoch = 0;
  std::uint32_t uid = 0;
  std::uint64_t pid = 0;
  std::string text;
  bool operator==(const Event&) const = default;
};
struct EventsReply {
  std::vector<Event> events;
  std::uint64_t last = 0;
  std::uint64_t lost = 0;
  bool operator==(const EventsReply&) const = default;
};
struct BudgetRequest {
  std::uint64_t budget_bytes = 0;
  bool operator==(const BudgetRequest&) const = default;
};
struct ShutdownRequest {
  bool keep_states = false;
  bool operator==(const ShutdownRequest&) const = default;
};
struct ShutdownReply {
  std::uint32_t state_count = 0;  // that are kept, or dropped
  std::uint32_t lease_count = 0;  // that their holders keep
  bool operator==(const ShutdownReply&) const = default;
};
struct TemplatesRequest {
  bool operator==(const TemplatesRequest&) const = default;
};
struct InstalledTemplate {
  std::string name;
  std::string path;
  BuildWhen build = BuildWhen::kManual;
  std::string problem;
  bool operator==(const InstalledTemplate&) const = default;
};
struct TemplatesReply {
  std::vector<InstalledTemplate> templates;
  bool operator==(const TemplatesReply&) const = default;
};
struct Blob {
  std::uint64_t size_bytes = 0;
  bool operator==(const Blob&) const = default;
};

struct PlanRequest {
  std::string state;
  DtypeChoice dtype = DtypeChoice::kAuto;
  std::uint32_t file_count = 0;
  std::optional<Digest> expect_digest = {};
  bool operator==(const PlanRequest&) const = default;
};
struct PlanReply {
  std::uint64_t arena_bytes = 0;
  bool operator==(const PlanReply&) const = default;
};
struct FillRequest {
  std::uint64_t arena_bytes = 0;
  bool prefault = true;
  bool operator==(const FillRequest&) const = default;
};
struct FillProgress {
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes_present = 0;
  bool operator==(const FillProgress&) const = default;
};
struct FillReply {
  Digest content_digest;
  std::uint64_t bytes_read = 0;
  std::uint64_t huge_bytes = 0;
  bool operator==(const FillReply&) const = default;
};

struct PrefaultRequest {
  std::uint64_t arena_bytes = 0;
  bool operator==(const PrefaultRequest&) const = default;
};
struct PrefaultReply {
  bool operator==(const PrefaultReply&) const = default;
};
struct DigestRequest {
  std::vector<std::uint64_t> arena_bytes;
  bool operator==(const DigestRequest&) const = default;
};

using Body =
    std::variant<Failure, AttachRequest, LoadRequest, FilesPart, ListRequest, ShowRequest,
                 StatusRequest, LeasesRequest, EvictRequest, AttachReply, LoadProgress, LoadReply,
                 ListReply, ShowReply, StatusReply, LeasesReply, EvictReply, Blob, PlanRequest,
                 PlanReply, FillRequest, FillProgress, FillReply, DrainRequest, EventsRequest,
                 DrainReply, EventsReply, BuildRequest, BuildArenaRequest, BuildCommitRequest,
                 BuildReply, BuildArenaReply, PrefaultRequest, PrefaultReply, DigestRequest,
                 TemplatesRequest, TemplatesReply, BudgetRequest, ShutdownRequest, ShutdownReply>;

struct Message {
  std::uint32_t request_id = 0;
  Body body;
  bool operator==(const Message&) const = default;
};

// A size-prefixed, self-describing frame. May be longer than kFrameBytesMax (a list of many
// states): the sender then puts it into a sealed memfd beside a Blob.
std::vector<std::uint8_t> Encode(const Message& message);

// `frame`: one whole frame or the content of a Blob's memfd, untrusted, aligned to 8 bytes.
// request_id_out: may be null; set as soon as the envelope could be read, also when the body then
//   fails, so that the failure can be answered.
// Errors: kCorrupt, whatever the bytes; kUnavailable naming both ranges when the peer speaks other
//   protocols.
Result<Message> Decode(std::span<const std::uint8_t> frame,
                       std::uint32_t* request_id_out = nullptr);

}  // namespace sticky::wire

#endif  // STICKY_FLATBUFFERS_WIRE_CODEC_H_
