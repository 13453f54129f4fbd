#include "weights/sniff.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/text.h"

namespace sticky::weights {
namespace {

constexpr std::size_t kSniffedBytes = 64;

bool IsText(char c) { return (c >= 0x20 && c < 0x7F) || c == '\n' || c == '\r' || c == '\t'; }

// Eight printable bytes in front: as a header's length they would be past 2^56, so no safetensors
// file starts like this, whatever its first byte.
bool StartsAsText(std::string_view head) {
  return head.size() >= 8 && std::all_of(head.begin(), head.begin() + 8, IsText);
}

Error NotWeights(const SourceFile& file, const char* what, Code code = Code::kCorrupt) {
  return Error{code, Format("read '%s' (%llu bytes): %s", Escape(file.name).c_str(),
                            static_cast<unsigned long long>(file.size_bytes), what)};
}

}  // namespace

Result<WeightFormat> SniffFormat(const SourceFile& file) {
  std::array<std::uint8_t, kSniffedBytes> bytes{};
  const std::size_t size =
      static_cast<std::size_t>(std::min<std::uint64_t>(file.size_bytes, bytes.size()));
  STICKY_TRY(file.bytes->ReadAt(0, std::span(bytes).first(size)));
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), size);

  if (head.starts_with("GGUF")) return WeightFormat::kGguf;
  if (head.starts_with("version https://git-lfs")) {
    return NotWeights(file,
                      "this is a Git-LFS pointer, not the weights; fetch the real file "
                      "(git lfs pull)");
  }
  if (StartsAsText(head) && head[0] == '<') {
    return NotWeights(file, "this is a web page, not the weights; download the real file");
  }
  if (StartsAsText(head)) {
    return NotWeights(file, "it begins as text: this is neither GGUF nor safetensors");
  }
  if (head.starts_with("PK\x03\x04") || head.starts_with("\x80\x02")) {
    return NotWeights(file,
                      "this is a PyTorch checkpoint, which is not read; convert it to safetensors",
                      Code::kInvalidArgument);
  }
  return file.name.ends_with(".gguf") ? WeightFormat::kGguf : WeightFormat::kSafetensors;
}

}  // namespace sticky::weights
