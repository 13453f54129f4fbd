#include "weights/safetensors_model.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/text.h"
#include "weights/json_text.h"
#include "weights/safetensors.h"
#include "weights/shard_index.h"
#include "weights/small_file.h"
#include "weights/vocabulary.h"

namespace sticky::weights {
namespace {

constexpr std::size_t kReportedMax = 8;  // errors of shards in one message

StoredTensor Stored(SafetensorsTensor tensor, std::uint32_t file) {
  StoredTensor stored;
  if (!tensor.dtype) {
    stored.dtype_trouble = tensor.dtype_known
                               ? "dtype " + tensor.dtype_name + ", which is known but unsupported"
                               : "unknown dtype " + Escape(tensor.dtype_name);
  }
  stored.name = std::move(tensor.name);
  stored.shape = std::move(tensor.shape);
  stored.file = file;
  stored.file_offset = tensor.file_offset;
  stored.stored_bytes = tensor.size_bytes;
  stored.dtype = tensor.dtype;
  return stored;
}

// Reads every shard, and tells of every one that is bad: one trip to the download, not one each.
Result<std::vector<StoredTensor>> ReadShards(std::span<const SourceFile> files,
                                             const std::vector<std::uint32_t>& weight_files) {
  std::vector<StoredTensor> tensors;
  std::optional<Error> first;
  std::size_t bad_count = 0;
  for (const std::uint32_t file : weight_files) {
    auto read = ReadSafetensors(files[file]);
    if (read.ok()) {
      for (SafetensorsTensor& tensor : read.value()) {
        tensors.push_back(Stored(std::move(tensor), file));
      }
      continue;
    }
    ++bad_count;
    if (!first) {
      first = read.error();
    } else if (bad_count <= kReportedMax) {
      first->message += "; " + read.error().message;
    }
  }
  if (!first) return tensors;
  if (bad_count > kReportedMax) {
    first->message += Format("; and %zu more files", bad_count - kReportedMax);
  }
  return *first;
}

// The index and the shards must name the same tensors, each in the same shard.
Status CheckIndex(const ShardIndex& index, std::span<const SourceFile> files,
                  const std::vector<StoredTensor>& tensors) {
  std::map<std::string, std::string> left = index.shard_of;
  for (const StoredTensor& tensor : tensors) {
    const auto named = left.find(tensor.name);
    const std::string& shard = files[tensor.file].name;
    if (named == left.end()) {
      return Error{Code::kCorrupt, "read '" + Escape(shard) + "': tensor '" + Escape(tensor.name) +
                                       "' is not in " + std::string(kShardIndexName)};
    }
    if (named->second != shard) {
      return Error{Code::kCorrupt, "read '" + Escape(shard) + "': tensor '" + Escape(tensor.name) +
                                       "' belongs in '" + Escape(named->second) + "' by " +
                                       std::string(kShardIndexName)};
    }
    left.erase(named);
  }
  if (left.empty()) return Ok{};
  return Error{Code::kCorrupt,
               Format("read '%s': tensor '%s' (and %zu more) is not in its shard '%s'",
                      std::string(kShardIndexName).c_str(), Escape(left.begin()->first).c_str(),
                      left.size() - 1, Escape(left.begin()->second).c_str())};
}

Status CheckUnique(const std::vector<StoredTensor>& tensors, std::span<const SourceFile> files) {
  std::map<std::string_view, std::uint32_t> file_of;
  for (const StoredTensor& tensor : tensors) {
    const auto [place, inserted] = file_of.emplace(tensor.name, tensor.file);
    if (inserted) continue;
    return Error{Code::kCorrupt, "tensor '" + Escape(tensor.name) + "' is both in '" +
                                     Escape(files[place->second].name) + "' and in '" +
                                     Escape(files[tensor.file].name) + "'"};
  }
  return Ok{};
}

// From chat_template.jinja, else tokenizer_config.json: a string, or a list of named templates of
// which the one called "default" counts. Empty: none.
Result<std::string> FindChatTemplate(std::span<const SourceFile> files,
                                     const std::string& tokenizer_config) {
  STICKY_ASSIGN(std::string text, ReadSmallFile(files, "chat_template.jinja"));
  if (!text.empty() || tokenizer_config.empty()) return text;
  STICKY_ASSIGN(const nlohmann::json root, ParseJson(tokenizer_config, "tokenizer_config.json"));
  const auto found = root.is_object() ? root.find("chat_template") : root.end();
  if (found == root.end()) return std::string();
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return std::string();
  for (const auto& entry : *found) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template")) continue;
    if (entry["name"] == "default" && entry["template"].is_string()) {
      return entry["template"].get<std::string>();
    }
  }
  return std::string();
}

// A tokenizer of a kind that is not known is left out with a note: the state can serve programs
// that bring their own, and those that need it say why they refuse.
Status AddVocabulary(const std::string& tokenizer, const std::string& tokenizer_config,
                     StoredModel& model) {
  if (tokenizer.empty()) {
    model.notes.push_back("the model has no tokenizer.json: the state has no vocabulary");
    return Ok{};
  }
  const auto source = ParseTokenizerJson(tokenizer, tokenizer_config);
  if (source.ok()) {
    model.vocabulary = CompileVocabulary(source.value());
  } else if (source.error().code == Code::kInvalidArgument) {
    model.notes.push_back("the tokenizer is left out: " + source.error().message);
  } else {
    return source.error();
  }
  return Ok{};
}

}  // namespace

Result<StoredModel> ReadSafetensorsModel(std::span<const SourceFile> files,
                                         const std::vector<std::uint32_t>& weight_files) {
  StoredModel model;
  STICKY_ASSIGN(model.tensors, ReadShards(files, weight_files));
  STICKY_ASSIGN(const std::string index_text, ReadSmallFile(files, kShardIndexName));
  if (!index_text.empty()) {
    STICKY_ASSIGN(const ShardIndex index, ParseShardIndex(index_text));
    STICKY_TRY(CheckIndex(index, files, model.tensors));
  }
  STICKY_TRY(CheckUnique(model.tensors, files));
  STICKY_ASSIGN(model.config_json, ReadSmallFile(files, "config.json"));
  if (model.config_json.empty()) return model;

  STICKY_ASSIGN(model.generation_config_json, ReadSmallFile(files, "generation_config.json"));
  STICKY_ASSIGN(const std::string tokenizer, ReadSmallFile(files, "tokenizer.json"));
  STICKY_ASSIGN(const std::string tokenizer_config, ReadSmallFile(files, "tokenizer_config.json"));
  STICKY_ASSIGN(model.chat_template, FindChatTemplate(files, tokenizer_config));
  STICKY_TRY(AddVocabulary(tokenizer, tokenizer_config, model));
  return model;
}

}  // namespace sticky::weights
