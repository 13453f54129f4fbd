#include "tools/stickyctl/lent_files.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "flatbuffers/wire_codec.h"

namespace sticky::stickyctl {
namespace {

constexpr std::size_t kFilesTold = 16;  // names of files that one message tells

bool IsKey(std::string_view text) {
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && !is_digit(text[0]) && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_letter(c) || is_digit(c) || c == '_';
  });
}

Result<AsFile> ParseAsFile(const std::string& text) {
  const Error wanted{Code::kInvalidArgument,
                     "option '--as-file " + Escape(text) +
                         "': want KEY=STATE/FILE, as in model=smollm2/model.gguf; KEY is letters, "
                         "digits and _"};
  const std::size_t equals = text.find('=');
  const std::size_t slash = text.find('/', equals == std::string::npos ? 0 : equals);
  if (equals == std::string::npos || slash == std::string::npos) return wanted;
  AsFile file{text.substr(0, equals), text.substr(equals + 1, slash - equals - 1),
              text.substr(slash + 1)};
  const bool is_file_name = !file.file.empty() && file.file.find('/') == std::string::npos;
  if (!IsKey(file.key) || !is_file_name) return wanted;
  STICKY_TRY(wire::CheckStateName(file.state));
  return file;
}

std::string PlaceOf(const AsFile& file) { return "{" + file.key + "}"; }

std::string FilesOf(const wire::ManifestView& manifest) {
  std::string text;
  for (std::uint32_t i = 0; i < manifest.asset_count(); ++i) {
    if (i == kFilesTold) return text + Format(" and %u more", manifest.asset_count() - i);
    text += (i > 0 ? ", '" : "'") + Escape(manifest.asset(i).name) + "'";
  }
  return text.empty() ? "none" : text;
}

}  // namespace

Result<std::vector<AsFile>> ParseAsFiles(std::span<const std::string> texts) {
  std::vector<AsFile> files;
  std::set<std::string> variables;
  for (const std::string& text : texts) {
    STICKY_ASSIGN(AsFile file, ParseAsFile(text));
    if (!variables.insert(VariableOf(file)).second) {
      return Error{Code::kInvalidArgument, "option '--as-file': two files are called '" + file.key +
                                               "', in whatever case; give each a key of its own"};
    }
    files.push_back(std::move(file));
  }
  return files;
}

std::string VariableOf(const AsFile& file) {
  std::string name = "STICKYINVOC_FILE_";
  for (const char c : file.key) {
    name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

Status CheckAllUsed(std::span<const AsFile> files, std::span<const std::string> words) {
  for (const AsFile& file : files) {
    const bool is_used = std::any_of(words.begin(), words.end(), [&](const std::string& word) {
      return word.find(PlaceOf(file)) != std::string::npos ||
             word.find(VariableOf(file)) != std::string::npos;
    });
    if (is_used) continue;
    return Error{Code::kInvalidArgument, "option '--as-file " + file.key +
                                             "=...': no word of the command has " + PlaceOf(file) +
                                             " (or names $" + VariableOf(file) +
                                             "); write it where the program wants the file's path"};
  }
  return Ok{};
}

std::string PutPaths(const std::string& word, std::span<const AsFile> files,
                     std::span<const std::string> paths) {
  std::string out;
  for (std::size_t at = 0; at < word.size();) {
    std::size_t i = 0;
    while (i < files.size() && word.compare(at, files[i].key.size() + 2, PlaceOf(files[i])) != 0) {
      ++i;
    }
    if (i == files.size()) {
      out += word[at++];
    } else {
      out += paths[i];
      at += files[i].key.size() + 2;
    }
  }
  return out;
}

Result<std::optional<std::uint32_t>> FindLentFile(const AsFile& wanted,
                                                  const wire::ManifestView& manifest) {
  const std::string doing =
      "lend the file '" + Escape(wanted.file) + "' of '" + wanted.state + "': ";
  if (!manifest.whole_files()) {
    return Error{Code::kInvalidArgument,
                 doing +
                     "the state is a model, whose tensors programs attach to; files that any "
                     "program can open are those of a template's source.files"};
  }
  const std::optional<wire::AssetRef> found = manifest.FindAsset(wanted.file);
  if (!found) {
    return Error{Code::kNotFound, doing + "it has no such file; there are " + FilesOf(manifest)};
  }
  if (found->size_bytes == 0) return std::optional<std::uint32_t>();
  return std::optional(found->arena);
}

}  // namespace sticky::stickyctl
