// The tables that tell facts: policies, states, leases, events. Both directions of each stand
// together, since they change together.

#include <algorithm>

#include "flatbuffers/wire_align.h"
#include "flatbuffers/wire_fields.h"

namespace sticky::wire {
namespace {

using Ids = ::flatbuffers::Vector<std::uint32_t>;

Status ReadIds(const Ids* ids, const char* field, std::vector<std::uint32_t>& out) {
  if (ids == nullptr) return Ok{};
  if (ids->size() > kAccessIdsMax) return Corrupt(field, "has more entries than the maximum");
  if (!IsAligned(*ids)) return Corrupt(field, "is not aligned");
  out.assign(ids->begin(), ids->end());
  return Ok{};
}

Result<Access> ReadAccess(const fb::Access* table) {
  Access out;
  if (table == nullptr) return out;
  STICKY_TRY(ReadEnum(table->mode(), fb::AccessMode::MAX, "access mode", out.mode));
  STICKY_TRY(ReadIds(table->users(), "access users", out.users));
  STICKY_TRY(ReadIds(table->groups(), "access groups", out.groups));
  return out;
}

Offset<fb::Access> Pack(Builder& builder, const Access& access) {
  const auto users = builder.CreateVector(access.users);
  const auto groups = builder.CreateVector(access.groups);
  return fb::CreateAccess(builder, static_cast<fb::AccessMode>(access.mode), users, groups);
}

}  // namespace

Offset<fb::Label> Pack(Builder& builder, const Label& label) {
  const TextOffset key = PackText(builder, label.key);
  return fb::CreateLabel(builder, key, PackText(builder, label.value));
}

Result<Label> Unpack(const fb::Label& table) {
  Label out;
  STICKY_TRY(ReadText(table.key(), "label key", out.key));
  STICKY_TRY(ReadText(table.value(), "label value", out.value));
  if (out.key.empty() || out.key.size() > kLabelKeyBytesMax) {
    return Corrupt("label key", "is empty or too long");
  }
  if (out.value.size() > kLabelValueBytesMax) return Corrupt("label value", "is too long");
  return out;
}

Offset<fb::Policy> Pack(Builder& builder, const Policy& policy) {
  const Offset<fb::Access> access = Pack(builder, policy.access);
  const auto labels = PackEach<fb::Label>(builder, policy.labels);
  return fb::CreatePolicy(builder, policy.pin, policy.idle_ms, policy.ttl_ms, policy.priority,
                          access, labels, policy.lease_count_max);
}

Result<Policy> ReadPolicy(const fb::Policy* table) {
  Policy out;
  if (table == nullptr) return out;
  out.pin = table->pin();
  out.idle_ms = std::min(table->idle_ms(), kLifetimeMsMax);
  out.ttl_ms = std::min(table->ttl_ms(), kLifetimeMsMax);
  out.priority = table->priority();
  if (out.priority < kPriorityMin || out.priority > kPriorityMax) {
    return Corrupt("priority", "is out of range");
  }
  STICKY_ASSIGN(out.access, ReadAccess(table->access()));
  STICKY_TRY(ReadEach(table->labels(), kLabelsMax, "labels", out.labels));
  out.lease_count_max = table->lease_count_max();
  return out;
}

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
  const Offset<fb::Policy> policy = Pack(builder, info.policy);
  const TextOffset base = PackText(builder, info.base);
  const TextOffset built_by = PackText(builder, info.builder);
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
  table.add_uid(info.uid);
  table.add_policy(policy);
  table.add_idle_ms(info.idle_ms);
  table.add_queue_place(info.queue_place);
  table.add_wanted_bytes(info.wanted_bytes);
  table.add_closed(info.closed);
  table.add_base(base);
  table.add_builder(built_by);
  table.add_kept(info.kept);
  table.add_queued_ms(info.queued_ms);
  table.add_cancelled(info.cancelled);
  return table.Finish();
}

Offset<fb::LeaseInfo> Pack(Builder& builder, const LeaseInfo& lease) {
  const TextOffset state = PackText(builder, lease.state);
  const TextOffset command = PackText(builder, lease.command);
  const TextOffset job = PackText(builder, lease.job);
  return fb::CreateLeaseInfo(builder, lease.lease_id, state, lease.pid, lease.uid, lease.age_ms,
                             command, lease.hold, lease.epoch, job, lease.process_ended);
}

Offset<fb::SourceFile> Pack(Builder& builder, const SourceFile& file) {
  const TextOffset name = PackText(builder, file.name);
  const BytesOffset sha256 = PackDigest(builder, file.sha256);
  return fb::CreateSourceFile(builder, name, static_cast<fb::FileRole>(file.role), file.size_bytes,
                              sha256);
}

Result<Failure> Unpack(const fb::Failure& table) {
  Failure out;
  const auto code = static_cast<int>(table.code());
  if (code < static_cast<int>(fb::ErrorCode::InvalidArgument) ||
      code > static_cast<int>(fb::ErrorCode::MAX)) {
    return Corrupt("failure code", "is not known");
  }
  out.code = static_cast<Code>(code);
  out.os_code = table.os_code();
  STICKY_TRY(ReadText(table.message(), "failure message", out.message));
  return out;
}

Result<StateInfo> Unpack(const fb::StateInfo& table) {
  StateInfo out;
  STICKY_TRY(ReadStateName(table.name(), out.name));
  STICKY_TRY(ReadEnum(table.phase(), fb::StatePhase::MAX, "phase", out.phase));
  STICKY_TRY(ReadText(table.device(), "device", out.device));
  STICKY_TRY(ReadDigest(table.content_digest(), "content_digest", out.content_digest));
  STICKY_TRY(ReadDigest(table.template_digest(), "template_digest", out.template_digest));
  out.epoch = table.epoch();
  STICKY_TRY(ReadArenaBytes(table.arena_bytes(), out.arena_bytes));
  out.tensor_count = table.tensor_count();
  out.lease_count = table.lease_count();
  out.pinned = table.pinned();
  out.hold_count = table.hold_count();
  out.bytes_done = table.bytes_done();
  out.age_ms = table.age_ms();
  out.load_ms = table.load_ms();
  STICKY_TRY(ReadText(table.source(), "source", out.source));
  STICKY_TRY(ReadText(table.huge_pages(), "huge_pages", out.huge_pages));
  STICKY_TRY(ReadDtype(table.dtype(), out.dtype));
  if (table.failure() != nullptr) {
    STICKY_ASSIGN(out.failure, Unpack(*table.failure()));
  }
  out.uid = table.uid();
  STICKY_ASSIGN(out.policy, ReadPolicy(table.policy()));
  out.idle_ms = table.idle_ms();
  out.queue_place = table.queue_place();
  STICKY_TRY(ReadArenaBytes(table.wanted_bytes(), out.wanted_bytes));
  out.closed = table.closed();
  STICKY_TRY(ReadText(table.base(), "base", out.base));
  STICKY_TRY(ReadText(table.builder(), "builder", out.builder));
  out.kept = table.kept();
  out.queued_ms = table.queued_ms();
  out.cancelled = table.cancelled();
  return out;
}

Result<LeaseInfo> Unpack(const fb::LeaseInfo& table) {
  LeaseInfo out;
  out.lease_id = table.lease_id();
  STICKY_TRY(ReadStateName(table.state(), out.state));
  out.pid = table.pid();
  out.uid = table.uid();
  out.age_ms = table.age_ms();
  STICKY_TRY(ReadText(table.command(), "command", out.command));
  out.hold = table.hold();
  out.epoch = table.epoch();
  STICKY_TRY(ReadText(table.job(), "job", out.job));
  out.process_ended = table.process_ended();
  return out;
}

Result<SourceFile> Unpack(const fb::SourceFile& table) {
  SourceFile out;
  STICKY_TRY(ReadFileName(table.name(), out.name));
  STICKY_TRY(ReadEnum(table.role(), fb::FileRole::MAX, "file role", out.role));
  out.size_bytes = table.size_bytes();
  STICKY_TRY(ReadDigest(table.sha256(), "sha256", out.sha256));
  return out;
}

Offset<fb::Event> Pack(Builder& builder, const Event& event) {
  const TextOffset state = PackText(builder, event.state);
  const TextOffset text = PackText(builder, event.text);
  return fb::CreateEvent(builder, event.sequence, event.time_ms,
                         static_cast<fb::EventKind>(event.kind), state, event.epoch, event.uid,
                         event.pid, text);
}

Result<Event> Unpack(const fb::Event& table) {
  Event out;
  out.sequence = table.sequence();
  out.time_ms = table.time_ms();
  STICKY_TRY(ReadEnum(table.kind(), fb::EventKind::MAX, "event kind", out.kind));
  STICKY_TRY(ReadText(table.state(), "event state", out.state));
  out.epoch = table.epoch();
  out.uid = table.uid();
  out.pid = table.pid();
  STICKY_TRY(ReadText(table.text(), "event text", out.text));
  return out;
}

Offset<fb::InstalledTemplate> Pack(Builder& builder, const InstalledTemplate& installed) {
  const TextOffset name = PackText(builder, installed.name);
  const TextOffset path = PackText(builder, installed.path);
  const TextOffset problem = PackText(builder, installed.problem);
  return fb::CreateInstalledTemplate(builder, name, path,
                                     static_cast<fb::BuildWhen>(installed.build), problem);
}

Result<InstalledTemplate> Unpack(const fb::InstalledTemplate& table) {
  InstalledTemplate out;
  STICKY_TRY(ReadText(table.name(), "template name", out.name));
  STICKY_TRY(ReadText(table.path(), "template path", out.path));
  STICKY_TRY(ReadEnum(table.build(), fb::BuildWhen::MAX, "build", out.build));
  STICKY_TRY(ReadText(table.problem(), "template problem", out.problem));
  return out;
}

Result<StateInfo> ReadState(const fb::StateInfo* table) {
  if (table == nullptr) return Corrupt("state", "is missing");
  return Unpack(*table);
}

std::uint64_t TextBytes(const InstalledTemplate& entry) {
  return entry.name.size() + entry.path.size() + entry.problem.size();
}

std::uint64_t TextBytes(const StateInfo& entry) {
  std::uint64_t sum = entry.name.size() + entry.device.size() + entry.source.size() +
                      entry.huge_pages.size() + entry.base.size() + entry.builder.size();
  if (entry.failure) sum += entry.failure->message.size();
  for (const Label& label : entry.policy.labels) sum += TextBytes(label);
  const Access& access = entry.policy.access;
  return sum + sizeof(std::uint32_t) * (access.users.size() + access.groups.size());
}

std::uint64_t TextBytes(const LeaseInfo& entry) {
  return entry.state.size() + entry.command.size() + entry.job.size();
}

std::uint64_t TextBytes(const Event& entry) { return entry.state.size() + entry.text.size(); }

std::uint64_t TextBytes(const SourceFile& entry) { return entry.name.size(); }

std::uint64_t TextBytes(const Label& entry) { return entry.key.size() + entry.value.size(); }

}  // namespace sticky::wire
