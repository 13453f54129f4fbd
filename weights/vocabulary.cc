// The compiled table: a header, then sections, each aligned to 8, all numbers little-endian.
//
//   token ends       u32[token_count]      end of each token's bytes; it starts where the last
//   ended token flags      u8[token_count]       bit 0 special, bit 1 added token bytes      u8[]
//   token slots      u32[token_slots]      open addressing: id + 1 by hash of the bytes; 0 is empty
//   merge slots      MergeSlot[merge_slots] open addressing by hash of the pair; rank ~0 is empty
//   added tokens     u32[added_count]
//   split ends       u32[split_count]
//   split bytes      u8[]

#include "weights/vocabulary.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/text.h"

namespace sticky::weights {
namespace {

constexpr std::uint64_t kMagic = 0x31304d4c4f565453;  // "STVOLM01"
constexpr std::uint32_t kNone = 0xFFFFFFFF;
constexpr std::uint32_t kTokenCountMax = 1u << 24;
constexpr std::uint32_t kSplitCountMax = 64;
constexpr std::uint8_t kSpecial = 1;
constexpr std::uint8_t kAdded = 2;

enum Flag : std::uint32_t {
  kNormalizeNfc = 1,
  kIgnoreMerges = 2,
  kAddPrefixSpace = 4,
  kAddBos = 8,
  kAddEos = 16,
};

struct MergeSlot {
  std::uint32_t left, right, rank, result;
};

// Source: Fowler, Noll and Vo, FNV-1a, 64 bits.
std::uint64_t HashOf(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash ^ (hash >> 29);
}

// Source: Knuth, The Art of Computer Programming, volume 3, section 6.4, multiplicative hashing.
std::uint64_t HashOf(std::uint32_t left, std::uint32_t right) {
  const std::uint64_t key = static_cast<std::uint64_t>(left) << 32 | right;
  const std::uint64_t hash = key * 0x9e3779b97f4a7c15;
  return hash ^ (hash >> 32);
}

// A power of two with at most half of its slots used.
std::uint32_t SlotCount(std::size_t used) {
  return static_cast<std::uint32_t>(std::bit_ceil(2 * used + 2));
}

class Writer {
 public:
  template <typename T>
  std::uint64_t Append(const std::vector<T>& values) {
    bytes_.resize((bytes_.size() + 7) / 8 * 8);
    const std::uint64_t offset = bytes_.size();
    if (values.empty()) return offset;
    bytes_.resize(bytes_.size() + values.size() * sizeof(T));
    std::memcpy(bytes_.data() + offset, values.data(), values.size() * sizeof(T));
    return offset;
  }
  std::vector<std::uint8_t>& bytes() { return bytes_; }

 private:
  std::vector<std::uint8_t> bytes_;
};

std::vector<std::uint32_t> TokenSlots(const VocabularySource& source) {
  std::vector<std::uint32_t> slots(SlotCount(source.tokens.size()), 0);
  const std::uint64_t mask = slots.size() - 1;
  for (std::uint32_t id = 0; id < source.tokens.size(); ++id) {
    const VocabularySource::Token& token = source.tokens[id];
    if (token.added || token.bytes.empty()) continue;
    std::uint64_t at = HashOf(token.bytes) & mask;
    while (slots[at] != 0) at = (at + 1) & mask;
    slots[at] = id + 1;
  }
  return slots;
}

std::vector<MergeSlot> MergeSlots(const VocabularySource& source) {
  std::vector<MergeSlot> slots(SlotCount(source.merges.size()), MergeSlot{0, 0, kNone, 0});
  const std::uint64_t mask = slots.size() - 1;
  for (std::uint32_t rank = 0; rank < source.merges.size(); ++rank) {
    const VocabularySource::Merge& merge = source.merges[rank];
    std::uint64_t at = HashOf(merge.left, merge.right) & mask;
    while (slots[at].rank != kNone) at = (at + 1) & mask;
    slots[at] = MergeSlot{merge.left, merge.right, rank, merge.result};
  }
  return slots;
}

}  // namespace

struct Vocabulary::Header {
  std::uint64_t magic;
  std::uint64_t size_bytes;  // of the whole table
  std::uint32_t flags, token_count, token_slots, merge_slots;
  std::uint32_t added_count, split_count, bos, eos;
  std::uint64_t ends_at, flags_at, text_at, token_slots_at, merge_slots_at, added_at;
  std::uint64_t split_ends_at, split_text_at;
};

std::vector<std::uint8_t> CompileVocabulary(const VocabularySource& source) {
  std::vector<std::uint32_t> ends;
  std::vector<std::uint8_t> flags;
  std::vector<char> text;
  std::vector<std::uint32_t> added;
  for (std::uint32_t id = 0; id < source.tokens.size(); ++id) {
    const VocabularySource::Token& token = source.tokens[id];
    text.insert(text.end(), token.bytes.begin(), token.bytes.end());
    ends.push_back(static_cast<std::uint32_t>(text.size()));
    flags.push_back(
        static_cast<std::uint8_t>((token.special ? kSpecial : 0) | (token.added ? kAdded : 0)));
    if (token.added) added.push_back(id);
  }
  std::vector<std::uint32_t> split_ends;
  std::vector<char> split_text;
  for (const VocabularySource::Split& split : source.splits) {
    split_text.insert(split_text.end(), split.pattern.begin(), split.pattern.end());
    split_ends.push_back(static_cast<std::uint32_t>(split_text.size()));
  }
  const std::vector<std::uint32_t> token_slots = TokenSlots(source);
  const std::vector<MergeSlot> merge_slots = MergeSlots(source);

  Writer writer;
  writer.bytes().resize(sizeof(Vocabulary::Header));
  Vocabulary::Header header{};
  header.magic = kMagic;
  header.flags = (source.normalize_nfc ? kNormalizeNfc : 0u) |
                 (source.ignore_merges ? kIgnoreMerges : 0u) |
                 (source.add_prefix_space ? kAddPrefixSpace : 0u) |
                 (source.add_bos ? kAddBos : 0u) | (source.add_eos ? kAddEos : 0u);
  header.token_count = static_cast<std::uint32_t>(source.tokens.size());
  header.token_slots = static_cast<std::uint32_t>(token_slots.size());
  header.merge_slots = static_cast<std::uint32_t>(merge_slots.size());
  header.added_count = static_cast<std::uint32_t>(added.size());
  header.split_count = static_cast<std::uint32_t>(source.splits.size());
  header.bos = source.bos.value_or(kNone);
  header.eos = source.eos.value_or(kNone);
  header.ends_at = writer.Append(ends);
  header.flags_at = writer.Append(flags);
  header.text_at = writer.Append(text);
  header.token_slots_at = writer.Append(token_slots);
  header.merge_slots_at = writer.Append(merge_slots);
  header.added_at = writer.Append(added);
  header.split_ends_at = writer.Append(split_ends);
  header.split_text_at = writer.Append(split_text);
  header.size_bytes = writer.bytes().size();
  std::memcpy(writer.bytes().data(), &header, sizeof header);
  return std::move(writer.bytes());
}

const Vocabulary::Header& Vocabulary::header() const {
  return *reinterpret_cast<const Header*>(bytes_.data());
}

template <typename T>
const T* Vocabulary::Section(std::uint64_t offset) const {
  return reinterpret_cast<const T*>(bytes_.data() + offset);
}

Result<Vocabulary> Vocabulary::Open(std::span<const std::uint8_t> bytes) {
  const auto corrupt = [](const char* reason) {
    return Error{Code::kCorrupt, std::string("open a compiled vocabulary: ") + reason};
  };
  if (bytes.size() < sizeof(Header)) return corrupt("shorter than its header");
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % 8 != 0) return corrupt("not aligned to 8");
  const Vocabulary made(bytes);
  const Header& header = made.header();
  if (header.magic != kMagic) return corrupt("other magic; it was made by another version");
  if (header.size_bytes != bytes.size()) return corrupt("another size than it says");
  if (header.token_count > kTokenCountMax || header.split_count > kSplitCountMax ||
      header.added_count > header.token_count) {
    return corrupt("a count is past its maximum");
  }
  if (!std::has_single_bit(header.token_slots) || !std::has_single_bit(header.merge_slots)) {
    return corrupt("a hash table's size is not a power of two");
  }
  const auto inside = [&](std::uint64_t at, std::uint64_t count, std::uint64_t item_bytes) {
    return at % 8 == 0 && at <= bytes.size() && count <= (bytes.size() - at) / item_bytes;
  };
  if (!inside(header.ends_at, header.token_count, 4) ||
      !inside(header.flags_at, header.token_count, 1) ||
      !inside(header.token_slots_at, header.token_slots, 4) ||
      !inside(header.merge_slots_at, header.merge_slots, sizeof(MergeSlot)) ||
      !inside(header.added_at, header.added_count, 4) ||
      !inside(header.split_ends_at, header.split_count, 4) || !inside(header.text_at, 0, 1) ||
      !inside(header.split_text_at, 0, 1)) {
    return corrupt("a section lies outside");
  }
  const auto rising = [&](std::uint64_t ends_at, std::uint32_t count, std::uint64_t text_at) {
    const auto* const ends = made.Section<std::uint32_t>(ends_at);
    return std::is_sorted(ends, ends + count) &&
           (count == 0 || inside(text_at, ends[count - 1], 1));
  };
  if (!rising(header.ends_at, header.token_count, header.text_at) ||
      !rising(header.split_ends_at, header.split_count, header.split_text_at)) {
    return corrupt("token offsets are not in order");
  }
  for (const std::uint32_t id : made.added_tokens()) {
    if (id >= header.token_count) return corrupt("an added token's id is out of range");
  }
  const auto known = [&](std::uint32_t id) { return id == kNone || id < header.token_count; };
  if (!known(header.bos) || !known(header.eos)) return corrupt("bos or eos is out of range");
  if (made.add_bos() && !made.bos()) return corrupt("a bos is to be added, but there is none");
  return made;
}

std::uint32_t Vocabulary::token_count() const { return header().token_count; }

std::string_view Vocabulary::token_bytes(std::uint32_t id) const {
  STICKY_CHECK(id < header().token_count);
  const auto* const ends = Section<std::uint32_t>(header().ends_at);
  const std::uint32_t begin = id == 0 ? 0 : ends[id - 1];
  return {Section<char>(header().text_at) + begin, ends[id] - begin};
}

bool Vocabulary::is_special(std::uint32_t id) const {
  STICKY_CHECK(id < header().token_count);
  return (Section<std::uint8_t>(header().flags_at)[id] & kSpecial) != 0;
}

bool Vocabulary::is_added(std::uint32_t id) const {
  STICKY_CHECK(id < header().token_count);
  return (Section<std::uint8_t>(header().flags_at)[id] & kAdded) != 0;
}

std::optional<std::uint32_t> Vocabulary::Find(std::string_view bytes) const {
  const auto* const slots = Section<std::uint32_t>(header().token_slots_at);
  const std::uint64_t mask = header().token_slots - 1;
  std::uint64_t at = HashOf(bytes) & mask;
  for (std::uint64_t probes = 0; probes <= mask && slots[at] != 0; ++probes) {
    const std::uint32_t id = slots[at] - 1;
    if (id < header().token_count && token_bytes(id) == bytes) return id;
    at = (at + 1) & mask;
  }
  return std::nullopt;
}

std::optional<Vocabulary::Merge> Vocabulary::FindMerge(std::uint32_t left,
                                                       std::uint32_t right) const {
  const auto* const slots = Section<MergeSlot>(header().merge_slots_at);
  const std::uint64_t mask = header().merge_slots - 1;
  std::uint64_t at = HashOf(left, right) & mask;
  for (std::uint64_t probes = 0; probes <= mask && slots[at].rank != kNone; ++probes) {
    const MergeSlot& slot = slots[at];
    if (slot.left == left && slot.right == right && slot.result < header().token_count) {
      return Merge{slot.rank, slot.result};
    }
    at = (at + 1) & mask;
  }
  return std::nullopt;
}

std::span<const std::uint32_t> Vocabulary::added_tokens() const {
  return {Section<std::uint32_t>(header().added_at), header().added_count};
}

std::uint32_t Vocabulary::split_count() const { return header().split_count; }

std::string_view Vocabulary::split_pattern(std::uint32_t index) const {
  STICKY_CHECK(index < header().split_count);
  const auto* const ends = Section<std::uint32_t>(header().split_ends_at);
  const std::uint32_t begin = index == 0 ? 0 : ends[index - 1];
  return {Section<char>(header().split_text_at) + begin, ends[index] - begin};
}

bool Vocabulary::normalize_nfc() const { return (header().flags & kNormalizeNfc) != 0; }
bool Vocabulary::ignore_merges() const { return (header().flags & kIgnoreMerges) != 0; }
bool Vocabulary::add_prefix_space() const { return (header().flags & kAddPrefixSpace) != 0; }
bool Vocabulary::add_bos() const { return (header().flags & kAddBos) != 0; }
bool Vocabulary::add_eos() const { return (header().flags & kAddEos) != 0; }

std::optional<std::uint32_t> Vocabulary::bos() const {
  return header().bos == kNone ? std::nullopt : std::optional(header().bos);
}
std::optional<std::uint32_t> Vocabulary::eos() const {
  return header().eos == kNone ? std::nullopt : std::optional(header().eos);
}

}  // namespace sticky::weights
