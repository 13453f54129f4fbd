#include "weights/gguf.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <unordered_set>
#include <utility>

#include "base/text.h"

namespace sticky::weights {
namespace {

enum ValueType : std::uint32_t {
  kUint8 = 0,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
  kValueTypeCount,
};
constexpr const char* kValueTypeNames[kValueTypeCount] = {
    "uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
    "bool",  "string", "array",  "uint64", "int64",  "float64"};
// Bytes of a scalar; 0 for strings and arrays, whose length is in the file.
constexpr std::uint64_t kScalarBytes[kValueTypeCount] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

constexpr std::uint64_t kFirstReadBytes = 64u << 10;
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kAlignmentMax = 1u << 20;
// The least that a key with its value, a tensor's entry, and an array's string take.
constexpr std::uint64_t kKeyBytesMin = 8 + 4 + 1;
constexpr std::uint64_t kTensorEntryBytesMin = 8 + 4 + 4 + 8;
constexpr std::uint64_t kStringBytesMin = 8;

unsigned long long Wide(std::uint64_t value) { return value; }

template <typename T>
T Load(const std::uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);  // little-endian, as this machine
  return value;
}

std::uint64_t AlignUp(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

bool IsInteger(std::uint32_t type) { return type <= kInt32 || type == kUint64 || type == kInt64; }

}  // namespace

// Walks over the header once, reading the file in growing steps.
class GgufReader {
 public:
  explicit GgufReader(const SourceFile& file) : file_(file) { out_.name_ = file.name; }

  Result<GgufFile> Read();

 private:
  Error Refused(const std::string& reason, Code code = Code::kCorrupt) const {
    return Error{code, "read '" + Escape(file_.name) + "': " + reason};
  }
  std::uint64_t left() const { return file_.size_bytes - position_; }

  // Makes the next `count` bytes readable. `what`: whose bytes they are.
  Status Need(std::uint64_t count, const std::string& what);
  template <typename T>
  Result<T> Number(const std::string& what);
  // The next string, where it lies in the header: valid until more is read.
  Result<std::string_view> String(const std::string& what);

  Status ReadCounts();
  Status ReadEntry(std::uint64_t index);
  Status ReadValue(const std::string& key, GgufFile::Value& value);
  Status ReadArray(const std::string& key, GgufFile::Value& value);
  Status ReadTensor(std::uint64_t index);
  Result<GgufTensor> ReadShapeAndType(std::string name);
  Status SetSize(GgufTensor& tensor) const;
  Status ReadAlignment();
  Status PlaceTensors();
  Status CheckEnd(std::uint64_t data_end) const;

  const SourceFile& file_;
  GgufFile out_;
  std::uint64_t position_ = 0;
  std::uint64_t key_count_ = 0;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t alignment_ = kDefaultAlignment;
};

Status GgufReader::Need(std::uint64_t count, const std::string& what) {
  if (count > left()) {
    return Refused(Format("%s needs %llu bytes at %llu, file ends at %llu", what.c_str(),
                          Wide(count), Wide(position_), Wide(file_.size_bytes)));
  }
  const std::uint64_t end = position_ + count;
  if (end > kGgufHeaderBytesMax) {
    return Refused(
        Format("header is longer than the limit of %llu bytes", Wide(kGgufHeaderBytesMax)),
        Code::kInvalidArgument);
  }
  const std::uint64_t have = out_.header_.size();
  if (end <= have) return Ok{};
  const std::uint64_t want = std::min(file_.size_bytes, std::max({end, 2 * have, kFirstReadBytes}));
  out_.header_.resize(static_cast<std::size_t>(want));
  return file_.bytes->ReadAt(have, std::span(out_.header_).subspan(have));
}

template <typename T>
Result<T> GgufReader::Number(const std::string& what) {
  STICKY_TRY(Need(sizeof(T), what));
  const T value = Load<T>(out_.header_.data() + position_);
  position_ += sizeof(T);
  return value;
}

Result<std::string_view> GgufReader::String(const std::string& what) {
  STICKY_ASSIGN(const std::uint64_t size, Number<std::uint64_t>(what));
  STICKY_TRY(Need(size, what));
  const std::string_view text(reinterpret_cast<const char*>(out_.header_.data() + position_),
                              static_cast<std::size_t>(size));
  if (!IsUtf8(text)) return Refused("string not UTF-8 in " + what + ": '" + Escape(text) + "'");
  position_ += size;
  return text;
}

Status GgufReader::ReadCounts() {
  STICKY_ASSIGN(const std::uint32_t magic, Number<std::uint32_t>("magic"));
  if (magic != 0x46554747) {
    return Refused(Format("magic is %08x, not 46554747 ('GGUF'): not a GGUF file", magic));
  }
  STICKY_ASSIGN(const std::uint32_t version, Number<std::uint32_t>("version"));
  if ((version & 0xFFFF) == 0 && version != 0) {
    return Refused("written for the other byte order (big-endian); get the little-endian file",
                   Code::kInvalidArgument);
  }
  if (version != 2 && version != 3) {
    return Refused(Format("GGUF version %u is not supported; supported: 2, 3", version),
                   Code::kInvalidArgument);
  }
  STICKY_ASSIGN(tensor_count_, Number<std::uint64_t>("tensor count"));
  STICKY_ASSIGN(key_count_, Number<std::uint64_t>("key count"));
  if (key_count_ > left() / kKeyBytesMin) {
    return Refused(Format("%llu keys: more keys than bytes left in the file (%llu)",
                          Wide(key_count_), Wide(left())));
  }
  if (tensor_count_ > left() / kTensorEntryBytesMin) {
    return Refused(Format("%llu tensors: more tensors than bytes left in the file (%llu)",
                          Wide(tensor_count_), Wide(left())));
  }
  if (tensor_count_ > kTensorCountMax) {
    return Refused(Format("%llu tensors, limit %u", Wide(tensor_count_), kTensorCountMax),
                   Code::kInvalidArgument);
  }
  return Ok{};
}

Status GgufReader::ReadEntry(std::uint64_t index) {
  STICKY_ASSIGN(const std::string_view text, String(Format("key %llu", Wide(index))));
  const std::string key(text);
  if (key.empty()) return Refused(Format("empty key (number %llu)", Wide(index)));
  const std::string what = "key '" + Escape(key) + "'";
  GgufFile::Value value;
  STICKY_ASSIGN(value.type, Number<std::uint32_t>(what));
  STICKY_TRY(ReadValue(key, value));
  if (!out_.values_.emplace(key, value).second) return Refused("duplicate " + what);
  return Ok{};
}

Status GgufReader::ReadValue(const std::string& key, GgufFile::Value& value) {
  const std::string what = "key '" + Escape(key) + "'";
  if (value.type >= kValueTypeCount) {
    return Refused(Format("%s has value type %u, known are 0 to 12", what.c_str(), value.type));
  }
  value.offset = position_;
  if (value.type == kArray) return ReadArray(key, value);
  if (value.type == kString) {
    STICKY_TRY(String(what));
    return Ok{};
  }
  STICKY_TRY(Need(kScalarBytes[value.type], what));
  if (value.type == kBool && out_.header_[position_] > 1) {
    return Refused(Format("%s is a bool of value %u", what.c_str(), out_.header_[position_]));
  }
  position_ += kScalarBytes[value.type];
  return Ok{};
}

Status GgufReader::ReadArray(const std::string& key, GgufFile::Value& value) {
  const std::string what = "array '" + Escape(key) + "'";
  STICKY_ASSIGN(value.element_type, Number<std::uint32_t>(what));
  STICKY_ASSIGN(value.count, Number<std::uint64_t>(what));
  if (value.element_type >= kValueTypeCount || value.element_type == kArray) {
    return Refused(Format("%s has elements of value type %u", what.c_str(), value.element_type));
  }
  const bool strings = value.element_type == kString;
  const std::uint64_t element_bytes = strings ? kStringBytesMin : kScalarBytes[value.element_type];
  if (value.count > left() / element_bytes) {
    return Refused(Format("%s of %llu elements is longer than the file (%llu bytes left)",
                          what.c_str(), Wide(value.count), Wide(left())));
  }
  value.offset = position_;
  if (!strings) {
    STICKY_TRY(Need(value.count * element_bytes, what));
    position_ += value.count * element_bytes;
    return Ok{};
  }
  for (std::uint64_t i = 0; i < value.count; ++i) STICKY_TRY(String(what));
  return Ok{};
}

Status GgufReader::ReadTensor(std::uint64_t index) {
  const std::string what = Format("tensor %llu", Wide(index));
  STICKY_ASSIGN(const std::string_view text, String(what));
  std::string name(text);
  if (name.empty() || name.size() > kTensorNameBytesMax || name.find('\0') != std::string::npos) {
    return Refused(Format("%s has the name '%s' of %zu bytes, allowed are 1 to %zu without a NUL",
                          what.c_str(), Escape(name).c_str(), name.size(), kTensorNameBytesMax));
  }
  STICKY_ASSIGN(GgufTensor tensor, ReadShapeAndType(std::move(name)));
  STICKY_ASSIGN(tensor.file_offset, Number<std::uint64_t>(what));  // still into the data
  STICKY_TRY(SetSize(tensor));
  out_.tensors_.push_back(std::move(tensor));
  return Ok{};
}

Result<GgufTensor> GgufReader::ReadShapeAndType(std::string name) {
  const std::string what = "tensor '" + Escape(name) + "'";
  GgufTensor tensor;
  tensor.name = std::move(name);
  STICKY_ASSIGN(const std::uint32_t rank, Number<std::uint32_t>(what));
  if (rank > kGgufRankMax) {
    return Refused(Format("%s has %u dims, limit %u", what.c_str(), rank, kGgufRankMax));
  }
  std::uint64_t elements = 1;
  for (std::uint32_t i = 0; i < rank; ++i) {
    STICKY_ASSIGN(const std::uint64_t dim, Number<std::uint64_t>(what));
    if (dim == 0) return Refused(what + " has a zero dimension");
    if (__builtin_mul_overflow(elements, dim, &elements) ||
        elements > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return Refused("shape overflows 64 bits in " + what);
    }
    tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(dim));
  }
  STICKY_ASSIGN(const std::uint32_t type, Number<std::uint32_t>(what));
  tensor.type = FindGgmlType(type);
  if (tensor.type == nullptr) {
    return Refused(Format("%s: ggml type %u unsupported (not known); supported: %s", what.c_str(),
                          type, SupportedGgmlTypes().c_str()),
                   Code::kInvalidArgument);
  }
  return tensor;
}

Status GgufReader::SetSize(GgufTensor& tensor) const {
  const std::string what = "tensor '" + Escape(tensor.name) + "'";
  const GgmlType& type = *tensor.type;
  std::uint64_t row = tensor.shape.empty() ? 1 : static_cast<std::uint64_t>(tensor.shape.back());
  if (row % type.block_elements != 0) {
    return Refused(Format("%s (ggml type %u, %s): row of %llu is not a multiple of the block of %u",
                          what.c_str(), type.id, type.name, Wide(row), type.block_elements));
  }
  if (!type.supported) {
    return Refused(Format("%s: ggml type %u unsupported (%s); supported: %s", what.c_str(), type.id,
                          type.name, SupportedGgmlTypes().c_str()),
                   Code::kInvalidArgument);
  }
  std::uint64_t elements = 1;
  for (const std::int64_t dim : tensor.shape) elements *= static_cast<std::uint64_t>(dim);
  if (__builtin_mul_overflow(elements / type.block_elements, type.block_bytes,
                             &tensor.size_bytes)) {
    return Refused("shape overflows 64 bits in " + what);
  }
  return Ok{};
}

Status GgufReader::ReadAlignment() {
  STICKY_ASSIGN(const std::optional<std::uint64_t> alignment, out_.FindUint("general.alignment"));
  if (!alignment) return Ok{};
  if (!std::has_single_bit(*alignment) || *alignment > kAlignmentMax) {
    return Refused(Format("general.alignment is %llu, expected a power of two up to %llu",
                          Wide(*alignment), Wide(kAlignmentMax)));
  }
  alignment_ = *alignment;
  return Ok{};
}

Status GgufReader::PlaceTensors() {
  const std::uint64_t header_end = position_;
  const std::uint64_t data_begin = AlignUp(header_end, alignment_);
  for (GgufTensor& tensor : out_.tensors_) {
    const std::string what = "tensor '" + Escape(tensor.name) + "'";
    const std::uint64_t offset = tensor.file_offset;
    if (offset % alignment_ != 0) {
      return Refused(Format("%s: offset not aligned: %llu, alignment %llu", what.c_str(),
                            Wide(offset), Wide(alignment_)));
    }
    const std::uint64_t data_bytes = file_.size_bytes - std::min(file_.size_bytes, data_begin);
    if (offset > data_bytes || tensor.size_bytes > data_bytes - offset) {
      return Refused(Format(
          "tensor data beyond file: '%s' needs %llu bytes at %llu of the data, "
          "which has %llu: incomplete download?",
          Escape(tensor.name).c_str(), Wide(tensor.size_bytes), Wide(offset), Wide(data_bytes)));
    }
    tensor.file_offset = data_begin + offset;
  }
  std::sort(out_.tensors_.begin(), out_.tensors_.end(),
            [](const auto& a, const auto& b) { return a.file_offset < b.file_offset; });
  std::uint64_t covered = data_begin;
  std::uint64_t data_end = header_end;
  for (const GgufTensor& tensor : out_.tensors_) {
    if (tensor.file_offset != covered) {
      return Refused(
          Format("tensor '%s' begins at byte %llu of the file, expected %llu: tensors "
                 "overlap or leave a gap",
                 Escape(tensor.name).c_str(), Wide(tensor.file_offset), Wide(covered)));
    }
    data_end = tensor.file_offset + tensor.size_bytes;
    covered = AlignUp(data_end, alignment_);
  }
  return CheckEnd(data_end);
}

Status GgufReader::CheckEnd(std::uint64_t data_end) const {
  const std::uint64_t padded_end = AlignUp(data_end, alignment_);
  STICKY_ASSIGN(const auto part, out_.FindUint("split.no"));
  STICKY_ASSIGN(const auto parts, out_.FindUint("split.count"));
  const bool split = parts.value_or(1) > 1;
  if (file_.size_bytes > padded_end) {
    const std::string extra = Format("%llu bytes after data", Wide(file_.size_bytes - padded_end));
    return Refused(split ? extra + Format(": parts joined? It is one of %llu parts of a split "
                                          "GGUF; use the parts as they were",
                                          Wide(*parts))
                         : extra + " of the last tensor");
  }
  if (split) {
    return Refused(Format("part %llu of %llu of a split GGUF, which is not read yet; merge the "
                          "parts first (llama-gguf-split --merge)",
                          Wide(part.value_or(0) + 1), Wide(*parts)),
                   Code::kInvalidArgument);
  }
  return Ok{};
}

Result<GgufFile> GgufReader::Read() {
  STICKY_TRY(ReadCounts());
  for (std::uint64_t i = 0; i < key_count_; ++i) STICKY_TRY(ReadEntry(i));
  STICKY_TRY(ReadAlignment());
  std::unordered_set<std::string> names;
  for (std::uint64_t i = 0; i < tensor_count_; ++i) {
    STICKY_TRY(ReadTensor(i));
    const std::string& name = out_.tensors_.back().name;
    if (!names.insert(name).second) return Refused("duplicate tensor '" + Escape(name) + "'");
  }
  STICKY_TRY(PlaceTensors());
  return std::move(out_);
}

Result<GgufFile> GgufFile::Read(const SourceFile& file) { return GgufReader(file).Read(); }

const GgufFile::Value* GgufFile::Find(std::string_view key) const {
  const auto found = values_.find(std::string(key));
  return found == values_.end() ? nullptr : &found->second;
}

Error GgufFile::WrongType(std::string_view key, const Value& value, const char* expected) const {
  std::string type = kValueTypeNames[value.type];
  if (value.type == kArray) type += std::string(" of ") + kValueTypeNames[value.element_type];
  return Error{Code::kCorrupt, "read '" + Escape(name_) + "': key '" + Escape(key) +
                                   "' is of type " + type + ", expected " + expected};
}

std::int64_t GgufFile::IntAt(std::uint32_t type, std::uint64_t offset) const {
  const std::uint8_t* bytes = header_.data() + offset;
  switch (type) {
    case kUint8:
      return Load<std::uint8_t>(bytes);
    case kInt8:
      return Load<std::int8_t>(bytes);
    case kUint16:
      return Load<std::uint16_t>(bytes);
    case kInt16:
      return Load<std::int16_t>(bytes);
    case kUint32:
      return Load<std::uint32_t>(bytes);
    case kInt32:
      return Load<std::int32_t>(bytes);
    default:
      return Load<std::int64_t>(bytes);
  }
}

std::string_view GgufFile::StringAt(std::uint64_t offset) const {
  const std::uint64_t size = Load<std::uint64_t>(header_.data() + offset);
  return {reinterpret_cast<const char*>(header_.data() + offset + 8),
          static_cast<std::size_t>(size)};
}

Result<std::optional<std::uint64_t>> GgufFile::FindUint(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::uint64_t>();
  if (!IsInteger(value->type)) return WrongType(key, *value, "an integer");
  const std::int64_t number = IntAt(value->type, value->offset);
  if (number < 0) {  // negative, or an absurd uint64
    return Error{Code::kCorrupt,
                 Format("read '%s': key '%s' is %lld, out of range", Escape(name_).c_str(),
                        Escape(key).c_str(), static_cast<long long>(number))};
  }
  return std::optional(static_cast<std::uint64_t>(number));
}

Result<std::optional<double>> GgufFile::FindFloat(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<double>();
  if (value->type == kFloat64) return std::optional(Load<double>(header_.data() + value->offset));
  if (value->type != kFloat32) return WrongType(key, *value, "a float");
  // 1e-5f is meant to be 0.00001, which the configuration of the same model elsewhere says.
  const float number = Load<float>(header_.data() + value->offset);
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, number).ptr;
  double shortest = number;
  std::from_chars(text, end, shortest);
  return std::optional(shortest);
}

Result<std::optional<bool>> GgufFile::FindBool(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<bool>();
  if (value->type != kBool) return WrongType(key, *value, "a bool");
  return std::optional(header_[value->offset] != 0);
}

Result<std::optional<std::string_view>> GgufFile::FindString(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::string_view>();
  if (value->type != kString) return WrongType(key, *value, "a string");
  return std::optional(StringAt(value->offset));
}

Result<std::optional<std::vector<std::string_view>>> GgufFile::FindStrings(
    std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::vector<std::string_view>>();
  if (value->type != kArray || value->element_type != kString) {
    return WrongType(key, *value, "an array of strings");
  }
  std::vector<std::string_view> strings;
  strings.reserve(static_cast<std::size_t>(value->count));
  std::uint64_t offset = value->offset;
  for (std::uint64_t i = 0; i < value->count; ++i) {
    strings.push_back(StringAt(offset));
    offset += 8 + strings.back().size();
  }
  return std::optional(std::move(strings));
}

Result<std::optional<std::vector<std::int64_t>>> GgufFile::FindInts(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::optional<std::vector<std::int64_t>>();
  if (value->type != kArray || !IsInteger(value->element_type)) {
    return WrongType(key, *value, "an array of integers");
  }
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(value->count));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::uint64_t at = value->offset + i * kScalarBytes[value->element_type];
    numbers[i] = IntAt(value->element_type, at);
  }
  return std::optional(std::move(numbers));
}

bool GgufFile::HasKeyWithPrefix(std::string_view prefix) const {
  return std::any_of(values_.begin(), values_.end(),
                     [&](const auto& entry) { return entry.first.starts_with(prefix); });
}

}  // namespace sticky::weights
