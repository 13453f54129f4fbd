#include "weights/small_file.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "weights/shard_index.h"

namespace sticky::weights {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"config.json",         "generation_config.json",
                                                    "tokenizer.json",      "tokenizer_config.json",
                                                    "chat_template.jinja", kShardIndexName};

}  // namespace

std::span<const std::string_view> SmallFileNames() { return kNames; }

bool IsSmallFileName(std::string_view name) {
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

Result<std::string> ReadSmallFile(std::span<const SourceFile> files, std::string_view name) {
  const auto file = std::find_if(files.begin(), files.end(), [&](const SourceFile& candidate) {
    return candidate.name == name;
  });
  if (file == files.end()) return std::string();
  if (file->size_bytes > kSmallFileBytesMax) {
    return Error{Code::kInvalidArgument,
                 Format("read '%s': %llu bytes, limit %llu", Escape(name).c_str(),
                        static_cast<unsigned long long>(file->size_bytes),
                        static_cast<unsigned long long>(kSmallFileBytesMax))};
  }
  std::string text(static_cast<std::size_t>(file->size_bytes), '\0');
  const std::span<char> chars(text);
  STICKY_TRY(file->bytes->ReadAt(
      0, std::span(reinterpret_cast<std::uint8_t*>(chars.data()), chars.size())));
  if (text.starts_with("version https://git-lfs")) {
    return Error{Code::kCorrupt, "read '" + Escape(name) +
                                     "': this is a Git-LFS pointer; fetch the real file "
                                     "(git lfs pull)"};
  }
  return text;
}

}  // namespace sticky::weights
