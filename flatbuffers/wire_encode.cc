// The sending half of the codec: one Pack() for each message, and Encode over them.

#include "flatbuffers/wire_fields.h"

namespace sticky::wire {
namespace {

using wire::Pack;  // of the facts, beside those of the messages below

Offset<fb::AttachRequest> Pack(Builder& builder, const AttachRequest& request) {
  const TextOffset state = PackText(builder, request.state);
  const BytesOffset digest = PackDigest(builder, request.digest);
  const TextOffset job = PackText(builder, request.job);
  return fb::CreateAttachRequest(builder, state, digest, request.wait_ms, request.hold,
                                 request.progress, job);
}

Offset<fb::LoadRequest> Pack(Builder& builder, const LoadRequest& request) {
  const TextOffset state = PackText(builder, request.state);
  const TextOffset source = PackText(builder, request.source);
  const BytesOffset template_digest = PackDigest(builder, request.template_digest);
  const Offset<fb::Policy> policy = Pack(builder, request.policy);
  const BytesOffset expect_digest = PackDigest(builder, request.expect_digest);
  return fb::CreateLoadRequest(builder, state, template_digest, source, Pack(request.dtype),
                               request.huge_pages, request.file_count, request.wait_ms,
                               request.hold, policy, static_cast<fb::Placement>(request.placement),
                               request.prefault, expect_digest);
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

Offset<fb::DrainRequest> Pack(Builder& builder, const DrainRequest& request) {
  TextOffset state;
  if (request.state) state = PackText(builder, *request.state);
  return fb::CreateDrainRequest(builder, state, request.resume, request.wait_ms);
}

Offset<fb::BuildRequest> Pack(Builder& builder, const BuildRequest& request) {
  const TextOffset state = PackText(builder, request.state);
  const Offset<fb::Policy> policy = Pack(builder, request.policy);
  const BytesOffset template_digest = PackDigest(builder, request.template_digest);
  const TextOffset source = PackText(builder, request.source);
  TextOffset base;
  if (request.base) base = PackText(builder, *request.base);
  const TextOffset built_by = PackText(builder, request.builder);
  return fb::CreateBuildRequest(builder, state, policy,
                                static_cast<fb::Placement>(request.placement), template_digest,
                                source, base, built_by, request.deadline_ms);
}

Offset<fb::BuildArenaRequest> Pack(Builder& builder, const BuildArenaRequest& request) {
  return fb::CreateBuildArenaRequest(builder, request.size_bytes, request.wait_ms);
}

Offset<fb::BuildCommitRequest> Pack(Builder& builder, const BuildCommitRequest& request) {
  return fb::CreateBuildCommitRequest(builder, request.wait_ms);
}

Offset<fb::BuildReply> Pack(Builder& builder, const BuildReply& reply) {
  const auto state = Pack(builder, reply.state);
  return fb::CreateBuildReply(builder, state, PackDigest(builder, reply.base_digest));
}

Offset<fb::BuildArenaReply> Pack(Builder& builder, const BuildArenaReply& reply) {
  return fb::CreateBuildArenaReply(builder, reply.arena, reply.size_bytes);
}

Offset<fb::PrefaultRequest> Pack(Builder& builder, const PrefaultRequest& request) {
  return fb::CreatePrefaultRequest(builder, request.arena_bytes);
}

Offset<fb::PrefaultReply> Pack(Builder& builder, const PrefaultReply&) {
  return fb::CreatePrefaultReply(builder);
}

Offset<fb::DigestRequest> Pack(Builder& builder, const DigestRequest& request) {
  return fb::CreateDigestRequest(builder, builder.CreateVector(request.arena_bytes));
}

Offset<fb::EventsRequest> Pack(Builder& builder, const EventsRequest& request) {
  return fb::CreateEventsRequest(builder, request.after, request.wait_ms);
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
  const TextOffset keeper = PackText(builder, reply.keeper);

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
  table.add_queue_count(reply.queue_count);
  table.add_load_count(reply.load_count);
  table.add_attach_total(reply.attach_total);
  table.add_evict_total(reply.evict_total);
  table.add_refusal_total(reply.refusal_total);
  table.add_keeper(keeper);
  table.add_keeper_lost(reply.keeper_lost);
  table.add_foreign_count(reply.foreign_count);
  table.add_foreign_bytes(reply.foreign_bytes);
  table.add_own_bytes(reply.own_bytes);
  table.add_own_bytes_max(reply.own_bytes_max);
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

Offset<fb::DrainReply> Pack(Builder& builder, const DrainReply& reply) {
  return fb::CreateDrainReply(builder, reply.empty, PackEach<fb::LeaseInfo>(builder, reply.leases));
}

Offset<fb::EventsReply> Pack(Builder& builder, const EventsReply& reply) {
  return fb::CreateEventsReply(builder, PackEach<fb::Event>(builder, reply.events), reply.last,
                               reply.lost);
}

Offset<fb::BudgetRequest> Pack(Builder& builder, const BudgetRequest& request) {
  return fb::CreateBudgetRequest(builder, request.budget_bytes);
}

Offset<fb::ShutdownRequest> Pack(Builder& builder, const ShutdownRequest& request) {
  return fb::CreateShutdownRequest(builder, request.keep_states);
}

Offset<fb::ShutdownReply> Pack(Builder& builder, const ShutdownReply& reply) {
  return fb::CreateShutdownReply(builder, reply.state_count, reply.lease_count);
}

Offset<fb::TemplatesRequest> Pack(Builder& builder, const TemplatesRequest&) {
  return fb::CreateTemplatesRequest(builder);
}

Offset<fb::TemplatesReply> Pack(Builder& builder, const TemplatesReply& reply) {
  return fb::CreateTemplatesReply(builder,
                                  PackEach<fb::InstalledTemplate>(builder, reply.templates));
}

Offset<fb::Blob> Pack(Builder& builder, const Blob& blob) {
  return fb::CreateBlob(builder, blob.size_bytes);
}

Offset<fb::PlanRequest> Pack(Builder& builder, const PlanRequest& request) {
  const TextOffset state = PackText(builder, request.state);
  const BytesOffset expect_digest = PackDigest(builder, request.expect_digest);
  return fb::CreatePlanRequest(builder, state, Pack(request.dtype), request.file_count,
                               expect_digest);
}

Offset<fb::PlanReply> Pack(Builder& builder, const PlanReply& reply) {
  return fb::CreatePlanReply(builder, reply.arena_bytes);
}

Offset<fb::FillRequest> Pack(Builder& builder, const FillRequest& request) {
  return fb::CreateFillRequest(builder, request.arena_bytes, request.prefault);
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
