#include "weights/gguf_vocabulary.h"

#include <array>
#include <bit>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "weights/byte_alphabet.h"
#include "weights/split_pattern.h"

namespace sticky::weights {
namespace {

// tokenizer.ggml.token_type
enum TokenType : std::int64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

constexpr std::string_view kGpt2Split =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Split =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Split =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

// What a value of tokenizer.ggml.pre stands for: nothing else in the file tells.
struct PreTokenizer {
  std::string_view name;
  std::array<std::string_view, 2> splits;  // empty: none
  bool normalize_nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;  // when the file does not say
};
constexpr PreTokenizer kPreTokenizers[] = {
    {.name = "smollm", .splits = {R"(\p{N})", kGpt2Split}},
    {.name = "gpt-2", .splits = {kGpt2Split, {}}},
    {.name = "llama-bpe", .splits = {kLlama3Split, {}}, .ignore_merges = true, .add_bos = true},
    {.name = "llama3", .splits = {kLlama3Split, {}}, .ignore_merges = true, .add_bos = true},
    {.name = "llama-v3", .splits = {kLlama3Split, {}}, .ignore_merges = true, .add_bos = true},
    {.name = "qwen2", .splits = {kQwen2Split, {}}, .normalize_nfc = true},
    {.name = "deepseek-r1-qwen", .splits = {kQwen2Split, {}}, .normalize_nfc = true},
};

Error Refused(const std::string& reason, Code code = Code::kCorrupt) {
  return Error{code, "read the GGUF tokenizer: " + reason};
}

Result<const PreTokenizer*> FindPreTokenizer(const GgufFile& file) {
  STICKY_ASSIGN(const auto name, file.FindString("tokenizer.ggml.pre"));
  std::string choices;
  for (const PreTokenizer& pre : kPreTokenizers) {
    if (name == pre.name) return &pre;
    choices += (choices.empty() ? "" : ", ") + std::string(pre.name);
  }
  const std::string what =
      name ? "pre-tokenizer '" + Escape(*name) + "' (tokenizer.ggml.pre) is not known"
           : std::string("tokenizer.ggml.pre is missing");
  return Refused(what + "; known: " + choices, Code::kInvalidArgument);
}

Status ReadTokens(const GgufFile& file, const std::vector<std::string_view>& texts,
                  VocabularySource& source) {
  STICKY_ASSIGN(const auto types, file.FindInts("tokenizer.ggml.token_type"));
  if (types && types->size() != texts.size()) {
    return Refused(Format("%zu tokens, but %zu token types", texts.size(), types->size()));
  }
  source.tokens.resize(texts.size());
  for (std::size_t id = 0; id < texts.size(); ++id) {
    VocabularySource::Token& token = source.tokens[id];
    const std::int64_t type = types ? (*types)[id] : kNormal;
    token.special = type == kControl || type == kUnknown;
    token.added = token.special || type == kUserDefined;
    if (type == kNormal) {
      if (!DecodeByteAlphabet(texts[id], token.bytes)) {
        return Refused(Format("token %zu '%s' is not in the byte-level alphabet", id,
                              Escape(texts[id]).c_str()),
                       Code::kInvalidArgument);
      }
    } else {
      token.bytes = std::string(texts[id]);
    }
  }
  return Ok{};
}

// Token ids by text, in one flat table: three look-ups a merge are most of what a tokenizer costs.
class TextIndex {
 public:
  explicit TextIndex(const std::vector<std::string_view>& texts)
      : texts_(texts), slots_(std::bit_ceil(2 * texts.size())) {
    for (std::uint32_t id = 0; id < texts.size(); ++id) {
      Slot& slot = slots_[Place(texts[id])];
      if (slot.id_plus_1 == 0) slot = {Hash(texts[id]), id + 1};  // of equals the first counts
    }
  }

  std::optional<std::uint32_t> Find(std::string_view text) const {
    const std::uint32_t id_plus_1 = slots_[Place(text)].id_plus_1;
    if (id_plus_1 == 0) return std::nullopt;
    return id_plus_1 - 1;
  }

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t id_plus_1 = 0;  // 0: free
  };

  static std::uint32_t Hash(std::string_view text) {
    return static_cast<std::uint32_t>(std::hash<std::string_view>{}(text));
  }
  // The slot of `text`, or the free one where it would go. At least half of them are free.
  std::size_t Place(std::string_view text) const {
    const std::uint32_t hash = Hash(text);
    for (std::size_t i = hash & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[i];
      if (slot.id_plus_1 == 0) return i;
      if (slot.hash == hash && texts_[slot.id_plus_1 - 1] == text) return i;
    }
  }

  const std::vector<std::string_view>& texts_;
  std::vector<Slot> slots_;
};

Status ReadMerges(const GgufFile& file, const std::vector<std::string_view>& texts,
                  VocabularySource& source) {
  STICKY_ASSIGN(const auto merges, file.FindStrings("tokenizer.ggml.merges"));
  if (!merges) return Refused("tokenizer.ggml.merges is missing");
  const TextIndex index(texts);
  source.merges.reserve(merges->size());
  std::string joined;
  for (const std::string_view merge : *merges) {
    const std::size_t space = merge.find(' ');
    if (space == std::string_view::npos) {
      return Refused("merge '" + Escape(merge) + "' is not two tokens");
    }
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = merge.substr(space + 1);
    joined.assign(left).append(right);
    const auto left_id = index.Find(left);
    const auto right_id = index.Find(right);
    const auto result_id = index.Find(joined);
    if (!left_id || !right_id || !result_id) {
      return Refused("merge '" + Escape(merge) + "' names a token that is not in the vocabulary");
    }
    source.merges.push_back({*left_id, *right_id, *result_id});
  }
  return Ok{};
}

Result<std::optional<std::uint32_t>> ReadTokenId(const GgufFile& file, std::string_view key,
                                                 std::size_t token_count) {
  STICKY_ASSIGN(const auto id, file.FindUint(key));
  if (!id) return std::optional<std::uint32_t>();
  if (*id >= token_count) {
    return Refused(Format("%s is %llu, the vocabulary has %zu tokens", std::string(key).c_str(),
                          static_cast<unsigned long long>(*id), token_count));
  }
  return std::optional(static_cast<std::uint32_t>(*id));
}

Status ReadSettings(const GgufFile& file, const PreTokenizer& pre, VocabularySource& source) {
  for (const std::string_view split : pre.splits) {
    if (split.empty()) continue;
    STICKY_ASSIGN(std::string pattern, SplitPattern(split));
    source.splits.push_back({std::move(pattern)});
  }
  source.normalize_nfc = pre.normalize_nfc;
  source.ignore_merges = pre.ignore_merges;
  STICKY_ASSIGN(const auto add_space, file.FindBool("tokenizer.ggml.add_space_prefix"));
  STICKY_ASSIGN(const auto add_bos, file.FindBool("tokenizer.ggml.add_bos_token"));
  STICKY_ASSIGN(const auto add_eos, file.FindBool("tokenizer.ggml.add_eos_token"));
  source.add_prefix_space = add_space.value_or(false);
  source.add_bos = add_bos.value_or(pre.add_bos);
  source.add_eos = add_eos.value_or(false);
  const std::size_t count = source.tokens.size();
  STICKY_ASSIGN(source.bos, ReadTokenId(file, "tokenizer.ggml.bos_token_id", count));
  STICKY_ASSIGN(source.eos, ReadTokenId(file, "tokenizer.ggml.eos_token_id", count));
  if (source.add_bos && !source.bos) {
    return Refused("a beginning-of-text token is to be added, but bos_token_id is missing");
  }
  return Ok{};
}

}  // namespace

Result<VocabularySource> ReadGgufVocabulary(const GgufFile& file) {
  STICKY_ASSIGN(const auto model, file.FindString("tokenizer.ggml.model"));
  if (!model) return Refused("tokenizer.ggml.model is missing", Code::kNotFound);
  if (*model != "gpt2") {
    return Refused("tokenizer model '" + Escape(*model) + "' is not supported; supported: gpt2",
                   Code::kInvalidArgument);
  }
  STICKY_ASSIGN(const PreTokenizer* pre, FindPreTokenizer(file));
  STICKY_ASSIGN(const auto texts, file.FindStrings("tokenizer.ggml.tokens"));
  if (!texts || texts->empty()) return Refused("tokenizer.ggml.tokens is missing or empty");
  VocabularySource source;
  STICKY_TRY(ReadTokens(file, *texts, source));
  STICKY_TRY(ReadMerges(file, *texts, source));
  STICKY_TRY(ReadSettings(file, *pre, source));
  return source;
}

}  // namespace sticky::weights
