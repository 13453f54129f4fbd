// What the two halves of the codec share: how fields of the kinds that many messages have are
// written and checked, and the tables that tell facts (a state, a lease, an event, a policy). Only
// the wire_*.cc files of the codec include this: it sees generated types.
//
// Thread: any thread.
// Source: flatbuffers/wire_protocol.fbs.

#ifndef STICKY_FLATBUFFERS_WIRE_FIELDS_H_
#define STICKY_FLATBUFFERS_WIRE_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "flatbuffers/wire_codec.h"
#include "flatbuffers/wire_protocol_generated.h"

namespace sticky::wire {

using Builder = ::flatbuffers::FlatBufferBuilder;
template <typename T>
using Offset = ::flatbuffers::Offset<T>;
using TextOffset = Offset<::flatbuffers::String>;
using BytesOffset = Offset<::flatbuffers::Vector<std::uint8_t>>;
using Text = ::flatbuffers::String;
using Bytes = ::flatbuffers::Vector<std::uint8_t>;
template <typename T>
using Tables = ::flatbuffers::Vector<::flatbuffers::Offset<T>>;

// --- writing ------------------------------------------------------------------------------------

// A peer refuses longer texts, and an overlong path or error message is no reason to lose the
// whole answer: it is cut, between two characters.
TextOffset PackText(Builder& builder, const std::string& text);
BytesOffset PackDigest(Builder& builder, const std::optional<Digest>& digest);
BytesOffset PackDigest(Builder& builder, const std::optional<Sha256>& sha256);
inline fb::DtypeChoice Pack(DtypeChoice choice) { return static_cast<fb::DtypeChoice>(choice); }
Offset<fb::Failure> Pack(Builder& builder, const Failure& failure);
Offset<fb::Policy> Pack(Builder& builder, const Policy& policy);
Offset<fb::StateInfo> Pack(Builder& builder, const StateInfo& info);
Offset<fb::LeaseInfo> Pack(Builder& builder, const LeaseInfo& lease);
Offset<fb::Event> Pack(Builder& builder, const Event& event);
Offset<fb::InstalledTemplate> Pack(Builder& builder, const InstalledTemplate& installed);
Offset<fb::SourceFile> Pack(Builder& builder, const SourceFile& file);
Offset<fb::Label> Pack(Builder& builder, const Label& label);

template <typename Table, typename Value>
Offset<::flatbuffers::Vector<Offset<Table>>> PackEach(Builder& builder,
                                                      const std::vector<Value>& values) {
  std::vector<Offset<Table>> offsets;
  offsets.reserve(values.size());
  for (const Value& value : values) offsets.push_back(Pack(builder, value));
  return builder.CreateVector(offsets);
}

// --- reading: every one checks presence, lengths and ranges, so that nobody after it has to
// -------

Error Corrupt(const char* field, const char* reason);
// Absent text is empty: older senders do not have every field.
Status ReadText(const Text* text, const char* field, std::string& out);
Status ReadStateName(const Text* text, std::string& out);
// A plain name: whoever looks it up in a folder must not leave that folder.
Status ReadFileName(const Text* text, std::string& out);
Status ReadDigest(const Bytes* bytes, const char* field, std::optional<Digest>& out);
Status ReadDigest(const Bytes* bytes, const char* field, Digest& out);
Status ReadDigest(const Bytes* bytes, const char* field, std::optional<Sha256>& out);
Status ReadDtype(fb::DtypeChoice value, DtypeChoice& out);
Status ReadArenaBytes(std::uint64_t bytes, std::uint64_t& out);
Result<StateInfo> ReadState(const fb::StateInfo* table);
Result<Policy> ReadPolicy(const fb::Policy* table);  // absent: every default

Result<Failure> Unpack(const fb::Failure& table);
Result<InstalledTemplate> Unpack(const fb::InstalledTemplate& table);
Result<StateInfo> Unpack(const fb::StateInfo& table);
Result<LeaseInfo> Unpack(const fb::LeaseInfo& table);
Result<Event> Unpack(const fb::Event& table);
Result<SourceFile> Unpack(const fb::SourceFile& table);
Result<Label> Unpack(const fb::Label& table);

template <typename Ours, typename Theirs>
Status ReadEnum(Theirs value, Theirs last, const char* field, Ours& out) {
  const int number = static_cast<int>(value);
  if (number < 0 || number > static_cast<int>(last)) return Corrupt(field, "is not known");
  out = static_cast<Ours>(number);
  return Ok{};
}

// The bytes of text and lists within one entry of a list.
std::uint64_t TextBytes(const InstalledTemplate& entry);
std::uint64_t TextBytes(const StateInfo& entry);
std::uint64_t TextBytes(const LeaseInfo& entry);
std::uint64_t TextBytes(const Event& entry);
std::uint64_t TextBytes(const SourceFile& entry);
std::uint64_t TextBytes(const Label& entry);

// Absent vectors are empty. Entries may share one table, and tables one text, which no sender of
// ours does: what they unpack to is held against the largest message that there can be, or a small
// frame would fill the memory of whoever reads it.
template <typename Table, typename Value>
Status ReadEach(const Tables<Table>* tables, std::uint32_t count_max, const char* field,
                std::vector<Value>& out) {
  if (tables == nullptr) return Ok{};
  if (tables->size() > count_max) return Corrupt(field, "has more entries than the maximum");
  out.reserve(tables->size());
  std::uint64_t text_bytes = 0;
  for (std::uint32_t i = 0; i < tables->size(); ++i) {
    STICKY_ASSIGN(Value value, Unpack(*tables->Get(i)));
    text_bytes += TextBytes(value);
    if (text_bytes > kBlobBytesMax) return Corrupt(field, "have more text than any message");
    out.push_back(std::move(value));
  }
  return Ok{};
}

}  // namespace sticky::wire

#endif  // STICKY_FLATBUFFERS_WIRE_FIELDS_H_
