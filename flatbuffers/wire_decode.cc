// The receiving half of the codec: one Unpack() for each message, and Decode over them. Every
// Unpack checks presence, lengths and ranges, so that nobody after it has to.

#include <algorithm>
#include <type_traits>

#include "flatbuffers/wire_align.h"
#include "flatbuffers/wire_fields.h"
#include "flatbuffers/wire_manifest.h"

namespace sticky::wire {
namespace {

using wire::Unpack;  // of the facts, beside those of the messages below

Status ReadFileCount(std::uint32_t count, std::uint32_t& out) {
  if (count > kFileCountMax) return Corrupt("file_count", "is past the maximum");
  out = count;
  return Ok{};
}

// A wait past the maximum is a long wait, not a broken frame.
std::uint32_t ReadWait(std::uint32_t wait_ms) { return std::min(wait_ms, kWaitMsMax); }

Result<AttachRequest> Unpack(const fb::AttachRequest& table) {
  AttachRequest out;
  STICKY_TRY(ReadStateName(table.state(), out.state));
  STICKY_TRY(ReadDigest(table.digest(), "digest", out.digest));
  out.wait_ms = ReadWait(table.wait_ms());
  out.hold = table.hold();
  out.progress = table.progress();
  STICKY_TRY(ReadText(table.job(), "job", out.job));
  if (out.job.size() > kJobBytesMax) return Corrupt("job", "is too long");
  return out;
}

Result<LoadRequest> Unpack(const fb::LoadRequest& table) {
  LoadRequest out;
  STICKY_TRY(ReadStateName(table.state(), out.state));
  STICKY_TRY(ReadDigest(table.template_digest(), "template_digest", out.template_digest));
  STICKY_TRY(ReadText(table.source(), "source", out.source));
  STICKY_TRY(ReadDtype(table.dtype(), out.dtype));
  out.huge_pages = table.huge_pages();
  STICKY_TRY(ReadFileCount(table.file_count(), out.file_count));
  out.wait_ms = ReadWait(table.wait_ms());
  out.hold = table.hold();
  STICKY_ASSIGN(out.policy, ReadPolicy(table.policy()));
  STICKY_TRY(ReadEnum(table.placement(), fb::Placement::MAX, "placement", out.placement));
  out.prefault = table.prefault();
  STICKY_TRY(ReadDigest(table.expect_digest(), "expect_digest", out.expect_digest));
  return out;
}

Result<FilesPart> Unpack(const fb::FilesPart& table) {
  FilesPart out;
  STICKY_TRY(ReadEach(table.files(), kFdsPerFrameMax, "files", out.files));
  return out;
}

Result<ListRequest> Unpack(const fb::ListRequest&) { return ListRequest{}; }
Result<StatusRequest> Unpack(const fb::StatusRequest&) { return StatusRequest{}; }
Result<LeasesRequest> Unpack(const fb::LeasesRequest&) { return LeasesRequest{}; }

Result<ShowRequest> Unpack(const fb::ShowRequest& table) {
  ShowRequest out;
  STICKY_TRY(ReadStateName(table.state(), out.state));
  return out;
}

Result<EvictRequest> Unpack(const fb::EvictRequest& table) {
  EvictRequest out;
  STICKY_TRY(ReadStateName(table.state(), out.state));
  out.wait_ms = ReadWait(table.wait_ms());
  return out;
}

Result<DrainRequest> Unpack(const fb::DrainRequest& table) {
  DrainRequest out;
  if (table.state() != nullptr) STICKY_TRY(ReadStateName(table.state(), out.state.emplace()));
  out.resume = table.resume();
  out.wait_ms = ReadWait(table.wait_ms());
  return out;
}

Result<EventsRequest> Unpack(const fb::EventsRequest& table) {
  return EventsRequest{table.after(), ReadWait(table.wait_ms())};
}

Result<AttachReply> Unpack(const fb::AttachReply& table) {
  AttachReply out;
  out.lease_id = table.lease_id();
  out.epoch = table.epoch();
  const auto* arenas = table.arena_bytes();
  if (arenas == nullptr || arenas->size() == 0 || arenas->size() > kArenaCountMax) {
    return Corrupt("arena_bytes", "has no entries, or more than the maximum");
  }
  if (!IsAligned(*arenas)) return Corrupt("arena_bytes", "is not aligned");
  out.arena_bytes.resize(arenas->size());
  for (std::uint32_t i = 0; i < arenas->size(); ++i) {
    STICKY_TRY(ReadArenaBytes(arenas->Get(i), out.arena_bytes[i]));
  }
  return out;
}

Result<LoadProgress> Unpack(const fb::LoadProgress& table) {
  LoadProgress out;
  STICKY_ASSIGN(out.state, ReadState(table.state()));
  return out;
}

Result<LoadReply> Unpack(const fb::LoadReply& table) {
  LoadReply out;
  STICKY_ASSIGN(out.state, ReadState(table.state()));
  out.joined = table.joined();
  return out;
}

Result<ListReply> Unpack(const fb::ListReply& table) {
  ListReply out;
  STICKY_TRY(ReadEach(table.states(), kListCountMax, "states", out.states));
  return out;
}

Result<ShowReply> Unpack(const fb::ShowReply& table) {
  ShowReply out;
  STICKY_ASSIGN(out.state, ReadState(table.state()));
  return out;
}

Result<StatusReply> Unpack(const fb::StatusReply& table) {
  StatusReply out;
  STICKY_TRY(ReadText(table.version(), "version", out.version));
  out.pid = table.pid();
  out.uid = table.uid();
  out.uptime_ms = table.uptime_ms();
  out.nonce = table.nonce();
  out.budget_bytes = table.budget_bytes();
  out.used_bytes = table.used_bytes();
  out.state_count = table.state_count();
  out.lease_count = table.lease_count();
  out.connection_count = table.connection_count();
  out.connection_count_max = table.connection_count_max();
  STICKY_TRY(ReadText(table.socket_path(), "socket_path", out.socket_path));
  STICKY_TRY(ReadText(table.cgroup(), "cgroup", out.cgroup));
  out.draining = table.draining();
  STICKY_TRY(ReadText(table.device(), "device", out.device));
  STICKY_TRY(ReadDtype(table.best_dtype(), out.best_dtype));
  out.queue_count = table.queue_count();
  out.load_count = table.load_count();
  out.attach_total = table.attach_total();
  out.evict_total = table.evict_total();
  out.refusal_total = table.refusal_total();
  return out;
}

Result<LeasesReply> Unpack(const fb::LeasesReply& table) {
  LeasesReply out;
  STICKY_TRY(ReadEach(table.leases(), kListCountMax, "leases", out.leases));
  return out;
}

Result<EvictReply> Unpack(const fb::EvictReply& table) {
  EvictReply out;
  STICKY_ASSIGN(out.state, ReadState(table.state()));
  out.freed = table.freed();
  STICKY_TRY(ReadEach(table.leases(), kListCountMax, "leases", out.leases));
  return out;
}

Result<DrainReply> Unpack(const fb::DrainReply& table) {
  DrainReply out;
  out.empty = table.empty();
  STICKY_TRY(ReadEach(table.leases(), kListCountMax, "leases", out.leases));
  return out;
}

Result<EventsReply> Unpack(const fb::EventsReply& table) {
  EventsReply out;
  STICKY_TRY(ReadEach(table.events(), kListCountMax, "events", out.events));
  out.last = table.last();
  out.lost = table.lost();
  return out;
}

Result<Blob> Unpack(const fb::Blob& table) {
  if (table.size_bytes() == 0 || table.size_bytes() > kBlobBytesMax) {
    return Corrupt("blob size_bytes", "is zero or past the maximum");
  }
  return Blob{table.size_bytes()};
}

Result<PlanRequest> Unpack(const fb::PlanRequest& table) {
  PlanRequest out;
  STICKY_TRY(ReadStateName(table.state(), out.state));
  STICKY_TRY(ReadDtype(table.dtype(), out.dtype));
  STICKY_TRY(ReadFileCount(table.file_count(), out.file_count));
  STICKY_TRY(ReadDigest(table.expect_digest(), "expect_digest", out.expect_digest));
  return out;
}

Result<PlanReply> Unpack(const fb::PlanReply& table) {
  PlanReply out;
  STICKY_TRY(ReadArenaBytes(table.arena_bytes(), out.arena_bytes));
  return out;
}

Result<FillRequest> Unpack(const fb::FillRequest& table) {
  FillRequest out;
  STICKY_TRY(ReadArenaBytes(table.arena_bytes(), out.arena_bytes));
  out.prefault = table.prefault();
  return out;
}

Result<FillProgress> Unpack(const fb::FillProgress& table) {
  return FillProgress{table.bytes_done(), table.bytes_present()};
}

Result<FillReply> Unpack(const fb::FillReply& table) {
  FillReply out;
  STICKY_TRY(ReadDigest(table.content_digest(), "content_digest", out.content_digest));
  out.bytes_read = table.bytes_read();
  out.huge_bytes = table.huge_bytes();
  return out;
}

template <typename Table>
Result<Body> Take(const fb::Envelope& envelope) {
  const Table* table = envelope.body_as<Table>();
  if (table == nullptr) return Corrupt("body", "is missing");
  STICKY_ASSIGN(auto body, Unpack(*table));
  return Body(std::move(body));
}

// No default: a message that is added to the schema and forgotten here is a warning.
Result<Body> TakeAny(const fb::Envelope& envelope) {
  switch (envelope.body_type()) {
    case fb::Body::NONE:
      break;
    case fb::Body::Failure:
      return Take<fb::Failure>(envelope);
    case fb::Body::AttachRequest:
      return Take<fb::AttachRequest>(envelope);
    case fb::Body::LoadRequest:
      return Take<fb::LoadRequest>(envelope);
    case fb::Body::FilesPart:
      return Take<fb::FilesPart>(envelope);
    case fb::Body::ListRequest:
      return Take<fb::ListRequest>(envelope);
    case fb::Body::ShowRequest:
      return Take<fb::ShowRequest>(envelope);
    case fb::Body::StatusRequest:
      return Take<fb::StatusRequest>(envelope);
    case fb::Body::LeasesRequest:
      return Take<fb::LeasesRequest>(envelope);
    case fb::Body::EvictRequest:
      return Take<fb::EvictRequest>(envelope);
    case fb::Body::AttachReply:
      return Take<fb::AttachReply>(envelope);
    case fb::Body::LoadProgress:
      return Take<fb::LoadProgress>(envelope);
    case fb::Body::LoadReply:
      return Take<fb::LoadReply>(envelope);
    case fb::Body::ListReply:
      return Take<fb::ListReply>(envelope);
    case fb::Body::ShowReply:
      return Take<fb::ShowReply>(envelope);
    case fb::Body::StatusReply:
      return Take<fb::StatusReply>(envelope);
    case fb::Body::LeasesReply:
      return Take<fb::LeasesReply>(envelope);
    case fb::Body::EvictReply:
      return Take<fb::EvictReply>(envelope);
    case fb::Body::Blob:
      return Take<fb::Blob>(envelope);
    case fb::Body::PlanRequest:
      return Take<fb::PlanRequest>(envelope);
    case fb::Body::PlanReply:
      return Take<fb::PlanReply>(envelope);
    case fb::Body::FillRequest:
      return Take<fb::FillRequest>(envelope);
    case fb::Body::FillProgress:
      return Take<fb::FillProgress>(envelope);
    case fb::Body::FillReply:
      return Take<fb::FillReply>(envelope);
    case fb::Body::DrainRequest:
      return Take<fb::DrainRequest>(envelope);
    case fb::Body::EventsRequest:
      return Take<fb::EventsRequest>(envelope);
    case fb::Body::DrainReply:
      return Take<fb::DrainReply>(envelope);
    case fb::Body::EventsReply:
      return Take<fb::EventsReply>(envelope);
  }
  return Corrupt("body", "is of a kind that this version does not know");
}

// The part of an Envelope that no protocol may change. Verified on its own first, so that a peer
// of another protocol is told so, whatever its messages look like.
class EnvelopeHeader : private ::flatbuffers::Table {
 public:
  bool Verify(::flatbuffers::Verifier& verifier) const {
    return VerifyTableStart(verifier) &&
           VerifyField<std::uint16_t>(verifier, fb::Envelope::VT_PROTOCOL_MIN, 2) &&
           VerifyField<std::uint16_t>(verifier, fb::Envelope::VT_PROTOCOL_MAX, 2) &&
           VerifyField<std::uint32_t>(verifier, fb::Envelope::VT_REQUEST_ID, 4) &&
           verifier.EndTable();
  }
};

Status CheckProtocol(const fb::Envelope& envelope) {
  const unsigned low = envelope.protocol_min();
  const unsigned high = envelope.protocol_max();
  if (low == 0 || low > high) return Corrupt("protocol range", "is empty");
  if (low <= kProtocolMax && high >= kProtocolMin) return Ok{};
  return Error{Code::kUnavailable,
               Format("decode frame: the peer speaks protocols %u to %u, this side %u to %u; "
                      "install the same release on both sides",
                      low, high, kProtocolMin, kProtocolMax)};
}

}  // namespace

Result<Message> Decode(std::span<const std::uint8_t> frame, std::uint32_t* request_id_out) {
  STICKY_CHECK(reinterpret_cast<std::uintptr_t>(frame.data()) % 8 == 0);
  if (frame.size() > kBlobBytesMax) return Corrupt("size", "is past the maximum");
  const char* identifier = fb::EnvelopeIdentifier();
  ::flatbuffers::Verifier header(frame.data(), frame.size());
  if (!header.VerifySizePrefixedBuffer<EnvelopeHeader>(identifier)) {
    return Corrupt("envelope", "does not verify");
  }
  const fb::Envelope& envelope = *fb::GetSizePrefixedEnvelope(frame.data());
  if (request_id_out != nullptr) *request_id_out = envelope.request_id();
  STICKY_TRY(CheckProtocol(envelope));

  ::flatbuffers::Verifier whole(frame.data(), frame.size());
  if (!fb::VerifySizePrefixedEnvelopeBuffer(whole)) return Corrupt("body", "does not verify");
  Message message;
  message.request_id = envelope.request_id();
  STICKY_ASSIGN(message.body, TakeAny(envelope));
  return message;
}

}  // namespace sticky::wire
