#include "weights/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "weights/json_text.h"
#include "weights/load_plan.h"

namespace sticky::weights {
namespace {

using nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;

unsigned long long Wide(std::uint64_t value) { return value; }

// The closed list of dtypes that the format has had so far.
struct DtypeRow {
  std::string_view name;
  std::uint32_t bits;
  std::optional<Dtype> dtype;  // none: known, not supported
};
constexpr std::array<DtypeRow, 22> kDtypes = {{{"BOOL", 8, Dtype::kBool},
                                               {"U8", 8, Dtype::kU8},
                                               {"I8", 8, Dtype::kI8},
                                               {"U16", 16, Dtype::kU16},
                                               {"I16", 16, Dtype::kI16},
                                               {"U32", 32, Dtype::kU32},
                                               {"I32", 32, Dtype::kI32},
                                               {"U64", 64, Dtype::kU64},
                                               {"I64", 64, Dtype::kI64},
                                               {"F16", 16, Dtype::kF16},
                                               {"BF16", 16, Dtype::kBf16},
                                               {"F32", 32, Dtype::kF32},
                                               {"F64", 64, Dtype::kF64},
                                               {"F4", 4, std::nullopt},
                                               {"F6_E2M3", 6, std::nullopt},
                                               {"F6_E3M2", 6, std::nullopt},
                                               {"F8_E4M3", 8, std::nullopt},
                                               {"F8_E5M2", 8, std::nullopt},
                                               {"F8_E8M0", 8, std::nullopt},
                                               {"F8_E4M3FNUZ", 8, std::nullopt},
                                               {"F8_E5M2FNUZ", 8, std::nullopt},
                                               {"C64", 64, std::nullopt}}};

const DtypeRow* FindDtype(std::string_view name) {
  const auto* row = std::find_if(kDtypes.begin(), kDtypes.end(),
                                 [&](const DtypeRow& candidate) { return candidate.name == name; });
  return row == kDtypes.end() ? nullptr : row;
}

struct Entry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> offsets;
  bool has_shape = false;
  bool negative_offset = false;
};

// Follows the parser's events through the only shape that a header may have, so that a header of
// 100 MB never becomes a tree of many times that.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  bool null() override { return Scalar("null"); }
  bool boolean(bool) override { return Scalar("a boolean"); }
  bool binary(binary_t&) override { return Scalar("binary"); }
  bool number_float(number_float_t, const string_t& text) override {
    return Scalar("the number " + Escape(text) + ", which is not whole or too large");
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (at_ != At::kArray) return Scalar("a number");
    if (Numbers().size() == kRankMax) return Refuse(BadField() + ": too many numbers");
    Numbers().push_back(value);
    return true;
  }
  bool number_integer(number_integer_t) override {  // only negative ones come here
    if (at_ != At::kArray) return Scalar("a number");
    if (field_ == "shape") return Refuse(BadField() + ": a negative dimension");
    entry().negative_offset = true;
    Numbers().push_back(0);
    return true;
  }
  bool string(string_t& value) override {
    if (at_ == At::kMetadata) return true;
    if (at_ != At::kTensor || field_ != "dtype") return Scalar("a string");
    entry().dtype = std::move(value);
    return true;
  }

  bool start_object(std::size_t) override {
    if (at_ == At::kStart) {
      at_ = At::kRoot;
    } else if (at_ == At::kRoot) {
      at_ = key_ == "__metadata__" ? At::kMetadata : At::kTensor;
      if (at_ == At::kTensor) entries_.emplace_back().name = key_;
      fields_.clear();
    } else {
      return Scalar("an object");
    }
    return true;
  }
  bool end_object() override {
    at_ = at_ == At::kRoot ? At::kStart : At::kRoot;
    return true;
  }
  bool start_array(std::size_t) override {
    if (at_ != At::kTensor || (field_ != "shape" && field_ != "data_offsets")) {
      return Scalar("an array");
    }
    at_ = At::kArray;
    if (field_ == "shape") entry().has_shape = true;
    return true;
  }
  bool end_array() override {
    at_ = At::kTensor;
    return true;
  }

  bool key(string_t& value) override {
    auto& seen = at_ == At::kRoot ? names_ : fields_;
    if (!seen.insert(value).second) return Refuse("duplicate key '" + Escape(value) + "'");
    if (at_ == At::kRoot && (value.empty() || value.size() > kTensorNameBytesMax ||
                             value.find('\0') != string_t::npos)) {
      return Refuse(
          Format("a tensor has the name '%s' of %zu bytes, allowed are 1 to %zu without "
                 "a NUL",
                 Escape(value).c_str(), value.size(), kTensorNameBytesMax));
    }
    if (at_ == At::kTensor && value != "dtype" && value != "shape" && value != "data_offsets") {
      return Refuse("tensor '" + Escape(entry().name) + "' has a key '" + Escape(value) +
                    "' that the format does not know");
    }
    (at_ == At::kRoot ? key_ : field_) = std::move(value);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    return Refuse(Format("header not JSON (at its byte %zu)", position));
  }

  const std::string& reason() const { return reason_; }
  std::vector<Entry>& entries() { return entries_; }

 private:
  enum class At : std::int8_t { kStart, kRoot, kMetadata, kTensor, kArray };

  Entry& entry() { return entries_.back(); }
  std::vector<std::uint64_t>& Numbers() {
    return field_ == "shape" ? entry().shape : entry().offsets;
  }
  std::string BadField() { return "bad " + field_ + " of tensor '" + Escape(entry().name) + "'"; }
  bool Refuse(std::string reason) {
    if (reason_.empty()) reason_ = std::move(reason);
    return false;
  }
  // A value of a kind that may not stand here.
  bool Scalar(const std::string& kind) {
    switch (at_) {
      case At::kStart:
        return Refuse(std::string("header not an object but ") + kind);
      case At::kRoot:
        return Refuse("'" + Escape(key_) + "' is " + kind + ", not an object");
      case At::kMetadata:
        return Refuse("metadata value of '" + Escape(field_) + "' is " + kind + ", not a string");
      default:
        return Refuse(BadField() + ": " + kind);
    }
  }

  At at_ = At::kStart;
  std::string key_;    // of the root object
  std::string field_;  // of the object within it
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> fields_;
  std::vector<Entry> entries_;
  std::string reason_;
};

Error Refused(const SourceFile& file, const std::string& reason, Code code = Code::kCorrupt) {
  return Error{code, "read '" + Escape(file.name) + "': " + reason};
}

// The header's text. Errors: kCorrupt, kInvalidArgument past the limit.
Result<std::vector<std::uint8_t>> ReadHeaderText(const SourceFile& file) {
  if (file.size_bytes < kLengthBytes) {
    return Refused(file, Format("shorter than 8 bytes (has %llu)", Wide(file.size_bytes)));
  }
  std::array<std::uint8_t, kLengthBytes> raw{};
  STICKY_TRY(file.bytes->ReadAt(0, raw));
  std::uint64_t length = 0;
  std::memcpy(&length, raw.data(), sizeof length);  // little-endian, as this machine
  if (length > file.size_bytes - kLengthBytes) {
    return Refused(file, Format("header length %llu exceeds file of %llu bytes", Wide(length),
                                Wide(file.size_bytes)));
  }
  if (length > kSafetensorsHeaderBytesMax) {
    return Refused(file,
                   Format("header length %llu exceeds the limit of %llu bytes", Wide(length),
                          Wide(kSafetensorsHeaderBytesMax)),
                   Code::kInvalidArgument);
  }
  std::vector<std::uint8_t> text(static_cast<std::size_t>(length));
  STICKY_TRY(file.bytes->ReadAt(kLengthBytes, text));
  return text;
}

// Multiplies up the shape. Empty when it does not fit 63 bits.
std::optional<std::uint64_t> ElementCount(const std::vector<std::uint64_t>& shape) {
  std::uint64_t count = 1;
  for (const std::uint64_t dim : shape) {
    if (dim > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
        __builtin_mul_overflow(count, dim, &count)) {
      return std::nullopt;
    }
  }
  return count;
}

// Checks one entry by itself, against `data_bytes` of data that begin at `data_offset`.
Result<SafetensorsTensor> CheckEntry(const SourceFile& file, Entry& entry,
                                     std::uint64_t data_offset, std::uint64_t data_bytes) {
  const std::string name = "'" + Escape(entry.name) + "'";
  if (entry.dtype.empty()) return Refused(file, "tensor " + name + " has no dtype");
  if (!entry.has_shape) return Refused(file, "tensor " + name + " has no shape");
  if (entry.offsets.size() != 2) {
    return Refused(file, Format("bad data_offsets of tensor %s: %zu numbers, expected 2",
                                name.c_str(), entry.offsets.size()));
  }
  const std::uint64_t begin = entry.offsets[0];
  const std::uint64_t end = entry.offsets[1];
  if (entry.negative_offset || begin > end) {
    return Refused(file, "offsets reversed or negative in tensor " + name);
  }
  if (end > data_bytes) {
    return Refused(file, Format("tensor %s ends at %llu, data has %llu bytes: incomplete download?",
                                name.c_str(), Wide(end), Wide(data_bytes)));
  }
  const std::optional<std::uint64_t> count = ElementCount(entry.shape);
  const DtypeRow* row = FindDtype(entry.dtype);
  std::uint64_t bits = 0;
  if (!count || (row != nullptr && __builtin_mul_overflow(*count, row->bits, &bits))) {
    return Refused(file, "shape overflows 64 bits in tensor " + name);
  }
  if (row != nullptr && (bits % 8 != 0 || bits / 8 != end - begin)) {
    return Refused(file, Format("tensor %s needs %llu bytes, has %llu", name.c_str(),
                                Wide((bits + 7) / 8), Wide(end - begin)));
  }
  SafetensorsTensor tensor;
  tensor.name = std::move(entry.name);
  tensor.dtype_name = std::move(entry.dtype);
  if (row != nullptr) tensor.dtype = row->dtype;
  tensor.dtype_known = row != nullptr;
  for (const std::uint64_t dim : entry.shape) {
    tensor.shape.push_back(static_cast<std::int64_t>(dim));
  }
  tensor.file_offset = data_offset + begin;
  tensor.size_bytes = end - begin;
  return tensor;
}

// Every data byte must belong to exactly one tensor. `tensors` are in order of their bytes.
Status CheckCoverage(const SourceFile& file, const std::vector<SafetensorsTensor>& tensors,
                     std::uint64_t data_offset) {
  std::uint64_t covered = data_offset;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.file_offset < covered) {
      return Refused(file, "tensor '" + Escape(tensor.name) + "' overlaps the one before it");
    }
    if (tensor.file_offset > covered) {
      return Refused(file, Format("%llu bytes before tensor '%s' belong to no tensor",
                                  Wide(tensor.file_offset - covered), Escape(tensor.name).c_str()));
    }
    covered += tensor.size_bytes;
  }
  if (covered < file.size_bytes) {
    return Refused(file, Format("%llu bytes after last tensor", Wide(file.size_bytes - covered)));
  }
  return Ok{};
}

}  // namespace

Result<std::vector<SafetensorsTensor>> ReadSafetensors(const SourceFile& file) {
  STICKY_ASSIGN(const std::vector<std::uint8_t> text, ReadHeaderText(file));
  const std::string_view header(reinterpret_cast<const char*>(text.data()), text.size());
  if (const std::string reason = NotJsonReason(header); !reason.empty()) {
    return Refused(file, "header " + reason);
  }
  HeaderReader reader;
  bool parsed = false;
  try {
    parsed = json::sax_parse(text.begin(), text.end(), &reader);
  } catch (const json::exception& error) {
    return Refused(file, "header not JSON: " + Escape(error.what()));
  }
  if (!parsed) {
    return Refused(file, reader.reason().empty() ? "header not JSON" : reader.reason());
  }
  const std::uint64_t data_offset = kLengthBytes + text.size();
  std::vector<SafetensorsTensor> tensors;
  tensors.reserve(reader.entries().size());
  for (Entry& entry : reader.entries()) {
    STICKY_ASSIGN(SafetensorsTensor tensor,
                  CheckEntry(file, entry, data_offset, file.size_bytes - data_offset));
    tensors.push_back(std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.file_offset, a.size_bytes) < std::pair(b.file_offset, b.size_bytes);
  });
  STICKY_TRY(CheckCoverage(file, tensors, data_offset));
  return tensors;
}

}  // namespace sticky::weights
