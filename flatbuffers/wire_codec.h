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
inline constexpr std::uint32_t kTextBytesMax = 4096;  // any other text in a message
// Largest envelope inside a Blob's memfd.
inline constexpr std::uint64_t kBlobBytesMax = 64ULL * 1024 * 1024;
inline constexpr std::uint32_t kWaitMsMax = 24 * 3600 * 1000;

enum class StatePhase : std::int8_t {
  kPlanning = 0,  // the loader reads headers
  kFilling,       // the loader copies tensors into the arena
  kReady,         // published: may be attached
  kDraining,      // evict was asked: no new leases, freed when the last one ends
  kClosing,       // no lease is left, but someone still maps the arena: memory is not free yet
  kFailed,        // the load failed; kept for a while so that waiters and `show` can say why
};
enum class FileRole : std::int8_t { kWeights = 0, kAsset };

const char* Name(StatePhase phase);    // "planning", "filling", "ready", ...; static text

// Errors: kInvalidArgument, naming the rule, unless `name` may name a state.
Status CheckStateName(std::string_view name);

struct Failure {
  Code code = Code::kInternal;
  std::string message;
  std::int32_t os_code = 0;
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
};

struct AttachRequest {
  std::string state;
  std::optional<Digest> digest;
  std::uint32_t wait_ms = 0;
  bool hold = false;
};
struct LoadRequest {
  std::string state;
  Digest template_digest;
  std::string source;
  DtypeChoice dtype = DtypeChoice::kAuto;
  bool pin = false;
  bool huge_pages = false;
  std::uint32_t file_count = 0;
  std::uint32_t wait_ms = 0;
  bool hold = false;
};
struct SourceFile {
  std::string name;
  FileRole role = FileRole::kWeights;
  std::uint64_t size_bytes = 0;
};
struct FilesPart {
  std::vector<SourceFile> files;
};
struct ListRequest {};
struct ShowRequest {
  std::string state;
};
struct StatusRequest {};
struct LeasesRequest {};
struct EvictRequest {
  std::string state;
  std::uint32_t wait_ms = 0;
};

struct AttachReply {
  std::uint64_t lease_id = 0;
  std::uint64_t epoch = 0;
  std::vector<std::uint64_t> arena_bytes;
};
struct LoadProgress {
  StateInfo state;
};
struct LoadReply {
  StateInfo state;
  bool joined = false;  // the load or the state was there already
};
struct ListReply {
  std::vector<StateInfo> states;
};
struct ShowReply {
  StateInfo state;
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
};
struct LeasesReply {
  std::vector<LeaseInfo> leases;
};
struct EvictReply {
  StateInfo state;
  bool freed = false;  // false: draining or closing; `leases` says who holds it
  std::vector<LeaseInfo> leases;
};
struct Blob {
  std::uint64_t size_bytes = 0;
};

struct PlanRequest {
  std::string state;
  DtypeChoice dtype = DtypeChoice::kAuto;
  std::uint32_t file_count = 0;
};
struct PlanReply {
  std::uint64_t arena_bytes = 0;
};
struct FillRequest {
  std::uint64_t arena_bytes = 0;
};
struct FillProgress {
  std::uint64_t bytes_done = 0;
};
struct FillReply {
  Digest content_digest;
  std::uint64_t bytes_read = 0;
};

using Body = std::variant<Failure, AttachRequest, LoadRequest, FilesPart, ListRequest, ShowRequest,
                          StatusRequest, LeasesRequest, EvictRequest, AttachReply, LoadProgress,
                          LoadReply, ListReply, ShowReply, StatusReply, LeasesReply, EvictReply,
                          Blob, PlanRequest, PlanReply, FillRequest, FillProgress, FillReply>;

struct Message {
  std::uint32_t request_id = 0;
  Body body;
};

// A size-prefixed, self-describing frame. May be longer than kFrameBytesMax (a list of many
// states): the sender then puts it into a sealed memfd beside a Blob.
std::vector<std::uint8_t> Encode(const Message& message);

// `frame`: one whole frame or the content of a Blob's memfd, untrusted, aligned to 8 bytes.
// Errors: kCorrupt, whatever the bytes; kUnavailable naming both ranges when the peer speaks other
// protocols (the frame's request_id is then in `request_id_out`, when that is not null).
Result<Message> Decode(std::span<const std::uint8_t> frame,
                       std::uint32_t* request_id_out = nullptr);

}  // namespace sticky::wire

#endif  // STICKY_FLATBUFFERS_WIRE_CODEC_H_
