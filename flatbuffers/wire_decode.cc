// The receiving half of the codec: one Unpack() for each message, and Decode over them. Every
// Unpack checks presence, lengths and ranges, so that nobody after it has to.

#include <algorithm>
#include <iterator>
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

Result<BuildRequest> Unpack(const fb::BuildRequest& table) {
  BuildRequest out;
  STICKY_TRY(ReadStateName(table.state(), out.state));
  STICKY_ASSIGN(out.policy, ReadPolicy(table.policy()));
  STICKY_TRY(ReadEnum(table.placement(), fb::Placement::MAX, "placement", out.placement));
  STICKY_TRY(ReadDigest(table.template_digest(), "template_digest", out.template_digest));
  STICKY_TRY(ReadText(table.source(), "source", out.source));
  if (table.base() != nullptr) STICKY_TRY(ReadStateName(table.base(), out.base.emplace()));
  STICKY_TRY(ReadText(table.builder(), "builder", out.builder));
  out.deadline_ms = ReadWait(table.deadline_ms());
  return out;
}

Result<BuildArenaRequest> Unpack(const fb::BuildArenaRequest& table) {
  BuildArenaRequest out;
  STICKY_TRY(ReadArenaBytes(table.size_bytes(), out.size_bytes));
  out.wait_ms = ReadWait(table.wait_ms());
  return out;
}

Result<BuildCommitRequest> Unpack(const fb::BuildCommitRequest& table) {
  return BuildCommitRequest{ReadWait(table.wait_ms())};
}

Result<BuildReply> Unpack(const fb::BuildReply& table) {
  BuildReply out;
  STICKY_ASSIGN(out.state, ReadState(table.state()));
  STICKY_TRY(ReadDigest(table.base_digest(), "base_digest", out.base_digest));
  return out;
}

Result<BuildArenaReply> Unpack(const fb::BuildArenaReply& table) {
  BuildArenaReply out;
  out.arena = table.arena();
  STICKY_TRY(ReadArenaBytes(table.size_bytes(), out.size_bytes));
  return out;
}

Result<PrefaultRequest> Unpack(const fb::PrefaultRequest& table) {
  PrefaultRequest out;
  STICKY_TRY(ReadArenaBytes(table.arena_bytes(), out.arena_bytes));
  return out;
}

Result<PrefaultReply> Unpack(const fb::PrefaultReply&) { return PrefaultReply{}; }

using Sizes = ::flatbuffers::Vector<std::uint64_t>;

Status ReadArenaSizes(const Sizes* arenas, std::vector<std::uint64_t>& out) {
  if (arenas == nullptr || arenas->size() == 0 || arenas->size() > kArenaCountMax) {
    return Corrupt("arena_bytes", "has no entries, or more than the maximum");
  }
  if (!IsAligned(*arenas)) return Corrupt("arena_bytes", "is not aligned");
  out.resize(arenas->size());
  for (std::uint32_t i = 0; i < arenas->size(); ++i) {
    STICKY_TRY(ReadArenaBytes(arenas->Get(i), out[i]));
  }
  return Ok{};
}

Result<DigestRequest> Unpack(const fb::DigestRequest& table) {
  DigestRequest out;
  STICKY_TRY(ReadArenaSizes(table.arena_bytes(), out.arena_bytes));
  return out;
}

Result<AttachReply> Unpack(const fb::AttachReply& table) {
  AttachReply out;
  out.lease_id = table.lease_id();
  out.epoch = table.epoch();
  STICKY_TRY(ReadArenaSizes(table.arena_bytes(), out.arena_bytes));
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
  STICKY_TRY(ReadText(table.keeper(), "keeper", out.keeper));
  out.keeper_lost = table.keeper_lost();
  out.foreign_count = table.foreign_count();
  out.foreign_bytes = table.foreign_bytes();
  out.own_bytes = table.own_bytes();
  out.own_bytes_max = table.own_bytes_max();
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

Result<BudgetRequest> Unpack(const fb::BudgetRequest& table) {
  return BudgetRequest{table.budget_bytes()};
}

Result<ShutdownRequest> Unpack(const fb::ShutdownRequest& table) {
  return ShutdownRequest{table.keep_states()};
}

Result<ShutdownReply> Unpack(const fb::ShutdownReply& table) {
  return ShutdownReply{table.state_count(), table.lease_count()};
}

Result<TemplatesRequest> Unpack(const fb::TemplatesRequest&) { return TemplatesRequest{}; }

Result<TemplatesReply> Unpack(const fb::TemplatesReply& table) {
  TemplatesReply out;
  STICKY_TRY(ReadEach(table.templates(), kListCountMax, "templates", out.templates));
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

using Taker = Result<Body> (*)(const fb::Envelope&);
// In the order of fb::Body, after its NONE.
constexpr Taker kTakers[] = {
    Take<fb::Failure>,        Take<fb::AttachRequest>,     Take<fb::LoadRequest>,
    Take<fb::FilesPart>,      Take<fb::ListRequest>,       Take<fb::ShowRequest>,
    Take<fb::StatusRequest>,  Take<fb::LeasesRequest>,     Take<fb::EvictRequest>,
    Take<fb::AttachReply>,    Take<fb::LoadProgress>,      Take<fb::LoadReply>,
    Take<fb::ListReply>,      Take<fb::ShowReply>,         Take<fb::StatusReply>,
    Take<fb::LeasesReply>,    Take<fb::EvictReply>,        Take<fb::Blob>,
    Take<fb::PlanRequest>,    Take<fb::PlanReply>,         Take<fb::FillRequest>,
    Take<fb::FillProgress>,   Take<fb::FillReply>,         Take<fb::DrainRequest>,
    Take<fb::EventsRequest>,  Take<fb::DrainReply>,        Take<fb::EventsReply>,
    Take<fb::BuildRequest>,   Take<fb::BuildArenaRequest>, Take<fb::BuildCommitRequest>,
    Take<fb::BuildReply>,     Take<fb::BuildArenaReply>,   Take<fb::PrefaultRequest>,
    Take<fb::PrefaultReply>,  Take<fb::DigestRequest>,     Take<fb::TemplatesRequest>,
    Take<fb::TemplatesReply>, Take<fb::BudgetRequest>,     Take<fb::ShutdownRequest>,
    Take<fb::ShutdownReply>,
};
static_assert(std::size(kTakers) == static_cast<std::size_t>(fb::Body::MAX),
              "a message of the schema is missing above");

Result<Body> TakeAny(const fb::Envelope& envelope) {
  const auto type = static_cast<std::size_t>(envelope.body_type());
  if (type == 0 || type > std::size(kTakers)) {
    return Corrupt("body", "is of a kind that this version does not know");
  }
  return kTakers[type - 1](envelope);
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
