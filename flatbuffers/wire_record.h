// Records: what a keeper keeps of a state beside its manifest and its arenas, so that the next
// daemon can take it over; and what it keeps of the daemon itself.
//
// Thread: any thread (plain values).
// Source: flatbuffers/wire_record.fbs.

#ifndef STICKY_FLATBUFFERS_WIRE_RECORD_H_
#define STICKY_FLATBUFFERS_WIRE_RECORD_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/dtype.h"
#include "base/policy.h"
#include "base/result.h"

namespace sticky::wire {

inline constexpr std::uint16_t kRecordLayoutVersion = 1;
inline constexpr std::uint64_t kRecordBytesMax = 64u << 10;

// The fields mean what they mean in wire_record.fbs.
struct StateRecord {
  std::string state;
  std::uint64_t epoch = 0;
  std::vector<std::uint64_t> arena_inodes;
  Digest content_digest;
  Digest template_digest;
  std::uint64_t arena_bytes = 0;
  std::uint32_t tensor_count = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  Policy policy;
  std::string source;
  DtypeChoice dtype = DtypeChoice::kAuto;
  std::string huge_pages;
  std::int64_t asked_ns = 0;
  std::int64_t ready_ns = 0;
  bool kept_by_holds = false;
  bool closed = false;
  bool ending = false;
  std::string built_by;
  std::string base;
  std::optional<Digest> base_digest;
  std::uint64_t base_epoch = 0;
  bool operator==(const StateRecord&) const = default;
};

struct NodeRecord {
  bool draining = false;
  std::uint64_t budget_bytes = 0;
  bool operator==(const NodeRecord&) const = default;
};

// A size-prefixed buffer of at most kRecordBytesMax: texts that are too long are cut.
std::vector<std::uint8_t> EncodeRecord(const StateRecord& record);
std::vector<std::uint8_t> EncodeRecord(const NodeRecord& record);

// `bytes`: aligned to 8. Checks them completely.
// Errors: kUnavailable for a layout that this program does not know; kCorrupt with the reason.
Result<StateRecord> DecodeStateRecord(std::span<const std::uint8_t> bytes);
Result<NodeRecord> DecodeNodeRecord(std::span<const std::uint8_t> bytes);

}  // namespace sticky::wire

#endif  // STICKY_FLATBUFFERS_WIRE_RECORD_H_
