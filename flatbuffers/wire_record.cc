#include "flatbuffers/wire_record.h"

#include <utility>

#include "base/text.h"
#include "flatbuffers/wire_align.h"
#include "flatbuffers/wire_fields.h"
#include "flatbuffers/wire_manifest.h"
#include "flatbuffers/wire_record_generated.h"

namespace sticky::wire {
namespace {

template <typename Table>
std::vector<std::uint8_t> Finish(Builder& builder, Offset<Table> table) {
  builder.FinishSizePrefixed(table, fb::StateRecordIdentifier());
  return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

// Errors: kCorrupt for bytes that are no record, kUnavailable for a layout that is not ours.
template <typename Table>
Result<const Table*> Verified(std::span<const std::uint8_t> bytes) {
  ::flatbuffers::Verifier verifier(bytes.data(), bytes.size());
  if (bytes.size() > kRecordBytesMax ||
      !verifier.VerifySizePrefixedBuffer<Table>(fb::StateRecordIdentifier())) {
    return Error{Code::kCorrupt,
                 Format("read a kept record of %zu bytes: it is not one", bytes.size())};
  }
  const auto* const table = ::flatbuffers::GetSizePrefixedRoot<Table>(bytes.data());
  if (table->layout_version() != kRecordLayoutVersion) {
    return Error{Code::kUnavailable,
                 Format("read a kept record: it has layout %u, this stickyd knows %u; one of "
                        "another version wrote it",
                        table->layout_version(), kRecordLayoutVersion)};
  }
  return table;
}

Status ReadInodes(const ::flatbuffers::Vector<std::uint64_t>* inodes,
                  std::vector<std::uint64_t>& out) {
  if (inodes == nullptr || inodes->size() == 0 || inodes->size() > kArenaCountMax) {
    return Corrupt("arena_inodes", "are none, or more than the maximum");
  }
  if (!IsAligned(*inodes)) return Corrupt("arena_inodes", "are not aligned");
  out.assign(inodes->begin(), inodes->end());
  return Ok{};
}

Status ReadTexts(const fb::StateRecord& table, StateRecord& out) {
  STICKY_TRY(ReadStateName(table.state(), out.state));
  STICKY_TRY(ReadText(table.source(), "source", out.source));
  STICKY_TRY(ReadText(table.huge_pages(), "huge_pages", out.huge_pages));
  STICKY_TRY(ReadText(table.built_by(), "built_by", out.built_by));
  return ReadText(table.base(), "base", out.base);
}

}  // namespace

std::vector<std::uint8_t> EncodeRecord(const StateRecord& record) {
  Builder builder;
  const TextOffset state = PackText(builder, record.state);
  const auto inodes = builder.CreateVector(record.arena_inodes);
  const BytesOffset content_digest = PackDigest(builder, std::optional(record.content_digest));
  const BytesOffset template_digest = PackDigest(builder, std::optional(record.template_digest));
  const Offset<fb::Policy> policy = Pack(builder, record.policy);
  const TextOffset source = PackText(builder, record.source);
  const TextOffset huge_pages = PackText(builder, record.huge_pages);
  const TextOffset built_by = PackText(builder, record.built_by);
  const TextOffset base = PackText(builder, record.base);
  const BytesOffset base_digest = PackDigest(builder, record.base_digest);

  fb::StateRecordBuilder table(builder);
  table.add_layout_version(kRecordLayoutVersion);
  table.add_state(state);
  table.add_epoch(record.epoch);
  table.add_arena_inodes(inodes);
  table.add_content_digest(content_digest);
  table.add_template_digest(template_digest);
  table.add_arena_bytes(record.arena_bytes);
  table.add_tensor_count(record.tensor_count);
  table.add_uid(record.uid);
  table.add_gid(record.gid);
  table.add_policy(policy);
  table.add_source(source);
  table.add_dtype(Pack(record.dtype));
  table.add_huge_pages(huge_pages);
  table.add_asked_ns(record.asked_ns);
  table.add_ready_ns(record.ready_ns);
  table.add_kept_by_holds(record.kept_by_holds);
  table.add_closed(record.closed);
  table.add_ending(record.ending);
  table.add_built_by(built_by);
  table.add_base(base);
  table.add_base_digest(base_digest);
  table.add_base_epoch(record.base_epoch);
  return Finish(builder, table.Finish());
}

std::vector<std::uint8_t> EncodeRecord(const NodeRecord& record) {
  Builder builder;
  return Finish(builder, fb::CreateNodeRecord(builder, kRecordLayoutVersion, record.draining,
                                              record.budget_bytes));
}

Result<StateRecord> DecodeStateRecord(std::span<const std::uint8_t> bytes) {
  STICKY_ASSIGN(const fb::StateRecord* const table, Verified<fb::StateRecord>(bytes));
  StateRecord out;
  STICKY_TRY(ReadTexts(*table, out));
  STICKY_TRY(ReadInodes(table->arena_inodes(), out.arena_inodes));
  STICKY_TRY(ReadDigest(table->content_digest(), "content_digest", out.content_digest));
  STICKY_TRY(ReadDigest(table->template_digest(), "template_digest", out.template_digest));
  STICKY_TRY(ReadDigest(table->base_digest(), "base_digest", out.base_digest));
  STICKY_TRY(ReadArenaBytes(table->arena_bytes(), out.arena_bytes));
  STICKY_ASSIGN(out.policy, ReadPolicy(table->policy()));
  STICKY_TRY(ReadDtype(table->dtype(), out.dtype));
  out.epoch = table->epoch();
  out.tensor_count = table->tensor_count();
  out.uid = table->uid();
  out.gid = table->gid();
  out.asked_ns = table->asked_ns();
  out.ready_ns = table->ready_ns();
  out.kept_by_holds = table->kept_by_holds();
  out.closed = table->closed();
  out.ending = table->ending();
  out.base_epoch = table->base_epoch();
  return out;
}

Result<NodeRecord> DecodeNodeRecord(std::span<const std::uint8_t> bytes) {
  STICKY_ASSIGN(const fb::NodeRecord* const table, Verified<fb::NodeRecord>(bytes));
  return NodeRecord{table->draining(), table->budget_bytes()};
}

}  // namespace sticky::wire
