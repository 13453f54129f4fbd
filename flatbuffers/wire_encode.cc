// The sending half of the codec: one Pack() for each message, and Encode over them.

#include <algorithm>

#include "flatbuffers/wire_codec.h"
#include "flatbuffers/wire_protocol_generated.h"

namespace sticky::wire {
namespace {

using Builder = ::flatbuffers::FlatBufferBuilder;
template <typename T>
using Offset = ::flatbuffers::Offset<T>;
using TextOffset = Offset<::flatbuffers::String>;
using BytesOffset = Offset<::flatbuffers::Vector<std::uint8_t>>;

// A peer refuses longer texts, and an overlong path or error message is no reason to lose the
// whole answer: it is cut, between two characters.
TextOffset PackText(Builder& builder, const std::string& text) {
  std::size_t size = std::min<std::size_t>(text.size(), kTextBytesMax);
  const auto continues = [&] { return (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80; };
  while (size > 0 && size < text.size() && continues()) --size;
  return builder.CreateString(text.data(), size);
}

BytesOffset PackDigest(Builder& builder, const std::optional<Digest>& digest) {
  if (!digest.has_value()) return 0;
  return builder.CreateVector(digest->bytes.data(), digest->bytes.size());
}

fb::DtypeChoice Pack(DtypeChoice choice) { return static_cast<fb::DtypeChoice>(choice); }

Offset<fb::Failure> Pack(Builder& builder, const Failure& failure) {
  const TextOffset message = PackText(builder, failure.message);
  return fb::CreateFailure(builder, static_cast<fb::ErrorCode>(failure.code), message,
                           failure.os_code);
}

Offset<fb::StateInfo> Pack(Builder& builder, const StateInfo& info) {
  const TextOffset name = PackText(builder, info.name);
  const TextOffset device = PackText(builder, info.device);
  const TextOffset source = PackText(builder, info.source);
  const TextOffset huge_pages = PackText(builder, info.huge_pages);
  const BytesOffset content_digest = PackDigest(builder, info.content_digest);
  const BytesOffset template_digest = PackDigest(builder, info.template_digest);
  Offset<fb::Failure> failure;
  if (info.failure.has_value()) failure = Pack(builder, *info.failure);

  fb::StateInfoBuilder table(builder);
  table.add_name(name);
  table.add_phase(static_cast<fb::StatePhase>(info.phase));
  table.add_device(device);
  table.add_content_digest(content_digest);
  table.add_template_digest(template_digest);
  table.add_epoch(info.epoch);
  table.add_arena_bytes(info.arena_bytes);
  table.add_tensor_count(info.tensor_count);
  table.add_lease_count(info.lease_count);
  table.add_pinned(info.pinned);
  table.add_hold_count(info.hold_count);
  table.add_bytes_done(info.bytes_done);
  table.add_age_ms(info.age_ms);
  table.add_load_ms(info.load_ms);
  table.add_source(source);
  table.add_huge_pages(huge_pages);
  table.add_dtype(Pack(info.dtype));
  table.add_failure(failure);
  return table.Finish();
}

Offset<fb::LeaseInfo> Pack(Builder& builder, const LeaseInfo& lease) {
  const TextOffset state = PackText(builder, lease.state);
  const TextOffset command = PackText(builder, lease.command);
  return fb::CreateLeaseInfo(builder, lease.lease_id, state, lease.pid, lease.uid, lease.age_ms,
                             command, lease.hold, lease.epoch);
}

Offset<fb::SourceFile> Pack(Builder& builder, const SourceFile& file) {
  const TextOffset name = PackText(builder, file.name);
  return fb::CreateSourceFile(builder, name, static_cast<fb::FileRole>(file.role), file.size_bytes);
}

template <typename Table, typename Value>
Offset<::flatbuffers::Vector<Offset<Table>>> PackEach(Builder& builder,
                                                      const std::vector<Value>& values) {
  std::vector<Offset<Table>> offsets;
  offsets.reserve(values.size());
  for (const Value& value : values) offsets.push_back(Pack(builder, value));
  return builder.CreateVector(offsets);
}

Offset<fb::AttachRequest> Pack(Builder& builder, const AttachRequest& request) {
  const TextOffset state = PackText(builder, request.state);
  const BytesOffset digest = PackDigest(builder, request.digest);
  return fb::CreateAttachRequest(builder, state, digest, request.wait_ms, request.hold);
}

Offset<fb::LoadRequest> Pack(Builder& builder, const LoadRequest& request) {
  const TextOffset state = PackText(builder, request.state);
  const TextOffset source = PackText(builder, request.source);
  const BytesOffset template_digest = PackDigest(builder, request.template_digest);
  return fb::CreateLoadRequest(builder, state, template_digest, source, Pack(request.dtype),
                               request.pin, request.huge_pages, request.file_count, request.wait_ms,
                               request.hold);
}

Offset<fb::FilesPart> Pack(Builder& builder, const FilesPart& part) {
  return fb::CreateFilesPart(builder, PackEach<fb::SourceFile>(builder, part.files));
}

Offset<fb::ListRequest> Pack(Builder& builder, const ListRequest&) {
  return fb::CreateListRequest(builder);
}

Offset<fb::ShowRequest> Pack(Builder& builder, const ShowRequest& request) {
  return fb::CreateShowRequest(builder, PackText(builder, request.state));
}

Offset<fb::StatusRequest> Pack(Builder& builder, const StatusRequest&) {
  return fb::CreateStatusRequest(builder);
}

Offset<fb::LeasesRequest> Pack(Builder& builder, const LeasesRequest&) {
  return fb::CreateLeasesRequest(builder);
}

Offset<fb::EvictRequest> Pack(Builder& builder, const EvictRequest& request) {
  return fb::CreateEvictRequest(builder, PackText(builder, request.state), request.wait_ms);
}

Offset<fb::AttachReply> Pack(Builder& builder, const AttachReply& reply) {
  return fb::CreateAttachReply(builder, reply.lease_id, reply.epoch,
                               builder.CreateVector(reply.arena_bytes));
}

Offset<fb::LoadProgress> Pack(Builder& builder, const LoadProgress& progress) {
  return fb::CreateLoadProgress(builder, Pack(builder, progress.state));
}

Offset<fb::LoadReply> Pack(Builder& builder, const LoadReply& reply) {
  return fb::CreateLoadReply(builder, Pack(builder, reply.state), reply.joined);
}

Offset<fb::ListReply> Pack(Builder& builder, const ListReply& reply) {
  return fb::CreateListReply(builder, PackEach<fb::StateInfo>(builder, reply.states));
}

Offset<fb::ShowReply> Pack(Builder& builder, const ShowReply& reply) {
  return fb::CreateShowReply(builder, Pack(builder, reply.state));
}

Offset<fb::StatusReply> Pack(Builder& builder, const StatusReply& reply) {
  const TextOffset version = PackText(builder, reply.version);
  const TextOffset socket_path = PackText(builder, reply.socket_path);
  const TextOffset cgroup = PackText(builder, reply.cgroup);
  const TextOffset device = PackText(builder, reply.device);

  fb::StatusReplyBuilder table(builder);
  table.add_version(version);
  table.add_pid(reply.pid);
  table.add_uid(reply.uid);
  table.add_uptime_ms(reply.uptime_ms);
  table.add_nonce(reply.nonce);
  table.add_budget_bytes(reply.budget_bytes);
  table.add_used_bytes(reply.used_bytes);
  table.add_state_count(reply.state_count);
  table.add_lease_count(reply.lease_count);
  table.add_connection_count(reply.connection_count);
  table.add_connection_count_max(reply.connection_count_max);
  table.add_socket_path(socket_path);
  table.add_cgroup(cgroup);
  table.add_draining(reply.draining);
  table.add_device(device);
  table.add_best_dtype(Pack(reply.best_dtype));
  return table.Finish();
}

Offset<fb::LeasesReply> Pack(Builder& builder, const LeasesReply& reply) {
  return fb::CreateLeasesReply(builder, PackEach<fb::LeaseInfo>(builder, reply.leases));
}

Offset<fb::EvictReply> Pack(Builder& builder, const EvictReply& reply) {
  const auto state = Pack(builder, reply.state);
  return fb::CreateEvictReply(builder, state, reply.freed,
                              PackEach<fb::LeaseInfo>(builder, reply.leases));
}

Offset<fb::Blob> Pack(Builder& builder, const Blob& blob) {
  return fb::CreateBlob(builder, blob.size_bytes);
}

Offset<fb::PlanRequest> Pack(Builder& builder, const PlanRequest& request) {
  const TextOffset state = PackText(builder, request.state);
  return fb::CreatePlanRequest(builder, state, Pack(request.dtype), request.file_count);
}

Offset<fb::PlanReply> Pack(Builder& builder, const PlanReply& reply) {
  return fb::CreatePlanReply(builder, reply.arena_bytes);
}

Offset<fb::FillRequest> Pack(Builder& builder, const FillRequest& request) {
  return fb::CreateFillRequest(builder, request.arena_bytes);
}

Offset<fb::FillProgress> Pack(Builder& builder, const FillProgress& progress) {
  return fb::CreateFillProgress(builder, progress.bytes_done, progress.bytes_present);
}

Offset<fb::FillReply> Pack(Builder& builder, const FillReply& reply) {
  return fb::CreateFillReply(builder, PackDigest(builder, reply.content_digest), reply.bytes_read,
                             reply.huge_bytes);
}

struct PackedBody {
  fb::Body type;
  Offset<void> offset;
};

struct BodyPacker {
  Builder& builder;

  template <typename Value>
  PackedBody operator()(const Value& value) const {
    return Typed(Pack(builder, value));
  }
  template <typename Table>
  static PackedBody Typed(Offset<Table> table) {
    return {fb::BodyTraits<Table>::enum_value, table.Union()};
  }
};

}  // namespace

std::vector<std::uint8_t> Encode(const Message& message) {
  static_assert(std::variant_size_v<Body> == static_cast<std::size_t>(fb::Body::MAX),
                "a message has no place in Body");
  Builder builder(/*initial_size=*/512);
  const PackedBody body = std::visit(BodyPacker{builder}, message.body);
  fb::FinishSizePrefixedEnvelopeBuffer(
      builder, fb::CreateEnvelope(builder, kProtocolMin, kProtocolMax, message.request_id,
                                  body.type, body.offset));
  return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

}  // namespace sticky::wire
