// Reads tokenizer.json, the file of Hugging Face's tokenizers library: of its many parts, those
// that byte-level BPE models use. Any other part is refused by name rather than passed over.

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "weights/byte_alphabet.h"
#include "weights/json_text.h"
#include "weights/split_pattern.h"
#include "weights/vocabulary.h"

namespace sticky::weights {
namespace {

using nlohmann::json;

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::uint32_t kTokenCountMax = 1u << 24;

Error Unsupported(const std::string& what) {
  return Error{Code::kInvalidArgument, "read tokenizer.json: " + what};
}
Error Corrupt(const std::string& what) {
  return Error{Code::kCorrupt, "read tokenizer.json: " + what};
}

std::string TextOf(const json& node, const char* key) {
  if (!node.is_object()) return {};
  const auto found = node.find(key);
  return found != node.end() && found->is_string() ? found->get<std::string>() : std::string();
}
bool FlagOf(const json& node, const char* key, bool otherwise) {
  if (!node.is_object()) return otherwise;
  const auto found = node.find(key);
  return found != node.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}
json PartOf(const json& node, const char* key) {
  return node.is_object() ? node.value(key, json()) : json();
}

using Ids = std::unordered_map<std::string, std::uint32_t>;

Status ReadNormalizer(const json& node, VocabularySource& source) {
  const std::string type = TextOf(node, "type");
  if (node.is_null()) return Ok{};
  if (type == "NFC") {
    source.normalize_nfc = true;
    return Ok{};
  }
  if (type == "Sequence") {
    for (const json& step : PartOf(node, "normalizers")) STICKY_TRY(ReadNormalizer(step, source));
    return Ok{};
  }
  return Unsupported("normalizer '" + Escape(type) + "' is not supported; supported: NFC");
}

Status AddSplit(std::string_view oniguruma, VocabularySource& source) {
  const Result<std::string> pattern = SplitPattern(oniguruma);
  if (!pattern.ok()) return Unsupported(pattern.error().message);
  source.splits.push_back({pattern.value()});
  return Ok{};
}

Status ReadSplit(const json& node, VocabularySource& source) {
  const std::string behaviour = TextOf(node, "behavior");
  if (behaviour != "Isolated" || FlagOf(node, "invert", false)) {
    return Unsupported("split behaviour '" + Escape(behaviour) +
                       "' is not supported; supported: Isolated");
  }
  const json pattern = PartOf(node, "pattern");
  const std::string regex = TextOf(pattern, "Regex");
  if (!regex.empty()) return AddSplit(regex, source);
  const std::string text = TextOf(pattern, "String");
  if (text.empty()) return Corrupt("a split has no pattern");
  source.splits.push_back({LiteralPattern(text)});
  return Ok{};
}

Status ReadPreTokenizer(const json& node, VocabularySource& source, bool& byte_level) {
  const std::string type = TextOf(node, "type");
  if (type == "Sequence") {
    for (const json& step : PartOf(node, "pretokenizers")) {
      STICKY_TRY(ReadPreTokenizer(step, source, byte_level));
    }
    return Ok{};
  }
  if (type == "Split") return ReadSplit(node, source);
  if (type == "Digits") {
    const bool individual = FlagOf(node, "individual_digits", false);
    return AddSplit(individual ? R"(\p{N})" : R"(\p{N}+)", source);
  }
  if (type == "Punctuation" && TextOf(node, "behavior") == "Isolated") {
    return AddSplit(R"([\p{P}!-/:-@\[-`{-~])", source);
  }
  if (type == "ByteLevel") {
    byte_level = true;
    source.add_prefix_space = FlagOf(node, "add_prefix_space", false);
    return FlagOf(node, "use_regex", true) ? AddSplit(kGpt2Pattern, source) : Ok{};
  }
  return Unsupported("pre-tokenizer '" + Escape(type) +
                     "' is not supported; supported: Sequence, Split, Digits, Punctuation "
                     "(isolated), ByteLevel");
}

Result<Ids> ReadTokens(const json& root, const json& model, VocabularySource& source) {
  Ids ids;
  const json vocab = PartOf(model, "vocab");
  const json added = PartOf(root, "added_tokens");
  if (!vocab.is_object() || vocab.empty()) return Corrupt("model.vocab is missing");
  std::uint64_t count = 0;
  const auto id_of = [](const json& value) {
    const std::uint64_t none = kTokenCountMax;
    return value.is_number_unsigned() ? std::min(value.get<std::uint64_t>(), none) : none;
  };
  for (const auto& [text, id] : vocab.items()) count = std::max(count, id_of(id) + 1);
  for (const json& token : added) count = std::max(count, id_of(PartOf(token, "id")) + 1);
  if (count > kTokenCountMax) return Corrupt("a token's id is missing or out of range");
  source.tokens.resize(count);
  std::vector<bool> seen(count, false);
  for (const json& token : added) {
    const std::uint64_t id = id_of(PartOf(token, "id"));
    source.tokens[id].bytes = TextOf(token, "content");
    source.tokens[id].added = true;
    source.tokens[id].special = FlagOf(token, "special", false);
    if (source.tokens[id].bytes.empty()) return Corrupt("an added token has no content");
    for (const char* const strip : {"lstrip", "rstrip", "single_word"}) {
      if (!FlagOf(token, strip, false)) continue;
      return Unsupported(Format("added token '%s' with %s is not supported",
                                Escape(source.tokens[id].bytes).c_str(), strip));
    }
    ids[source.tokens[id].bytes] = static_cast<std::uint32_t>(id);
    seen[id] = true;
  }
  for (const auto& [text, value] : vocab.items()) {
    const std::uint64_t id = id_of(value);
    if (source.tokens[id].added) continue;
    if (seen[id])
      return Corrupt(Format("token id %llu stands twice", static_cast<unsigned long long>(id)));
    seen[id] = true;
    ids[text] = static_cast<std::uint32_t>(id);
    if (!DecodeByteAlphabet(text, source.tokens[id].bytes)) {
      return Unsupported("token '" + Escape(text) + "' is not in the byte-level alphabet");
    }
  }
  return ids;
}

Status ReadMerges(const json& model, const Ids& ids, VocabularySource& source) {
  for (const json& entry : PartOf(model, "merges")) {
    std::string left;
    std::string right;
    if (entry.is_string()) {  // "a b", as written before tokenizers 0.20
      const std::string text = entry.get<std::string>();
      const std::size_t space = text.find(' ');
      if (space == std::string::npos) return Corrupt("merge '" + Escape(text) + "' has no space");
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
               entry[1].is_string()) {
      left = entry[0].get<std::string>();
      right = entry[1].get<std::string>();
    } else {
      return Corrupt("a merge is neither a string nor a pair of strings");
    }
    const auto found_left = ids.find(left);
    const auto found_right = ids.find(right);
    const auto found = ids.find(left + right);
    if (found_left == ids.end() || found_right == ids.end() || found == ids.end()) {
      return Corrupt("merge of '" + Escape(left) + "' and '" + Escape(right) +
                     "' names a token that is not in the vocabulary");
    }
    source.merges.push_back({found_left->second, found_right->second, found->second});
  }
  return Ok{};
}

// What stands around a text: TemplateProcessing's single sequence, or ByteLevel, which adds
// nothing.
Status ReadPostProcessor(const json& node, const Ids& ids, VocabularySource& source) {
  const std::string type = TextOf(node, "type");
  if (node.is_null() || type == "ByteLevel") return Ok{};
  if (type == "Sequence") {
    for (const json& step : PartOf(node, "processors")) {
      STICKY_TRY(ReadPostProcessor(step, ids, source));
    }
    return Ok{};
  }
  if (type != "TemplateProcessing") {
    return Unsupported("post-processor '" + Escape(type) +
                       "' is not supported; supported: ByteLevel, TemplateProcessing");
  }
  bool before_text = true;
  for (const json& step : PartOf(node, "single")) {
    if (step.contains("Sequence")) {
      before_text = false;
      continue;
    }
    const std::string text = TextOf(PartOf(step, "SpecialToken"), "id");
    const auto found = ids.find(text);
    if (found == ids.end()) return Corrupt("the template names token '" + Escape(text) + "'");
    (before_text ? source.bos : source.eos) = found->second;
    (before_text ? source.add_bos : source.add_eos) = true;
  }
  return Ok{};
}

// A token of tokenizer_config.json is a string, null, or an object with `content`.
std::optional<std::uint32_t> NamedToken(const json& config, const char* key, const Ids& ids) {
  const json node = PartOf(config, key);
  const std::string text = node.is_string() ? node.get<std::string>() : TextOf(node, "content");
  const auto found = ids.find(text);
  return found == ids.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

Result<VocabularySource> ParseTokenizerJson(std::string_view tokenizer_json,
                                            std::string_view tokenizer_config_json) {
  STICKY_ASSIGN(const json root, ParseJson(tokenizer_json, "tokenizer.json"));
  json config = json::object();
  if (!tokenizer_config_json.empty()) {
    STICKY_ASSIGN(config, ParseJson(tokenizer_config_json, "tokenizer_config.json"));
  }
  const json model = PartOf(root, "model");
  const std::string type = TextOf(model, "type");
  if (type != "BPE" || FlagOf(model, "byte_fallback", false)) {
    return Unsupported("model '" + Escape(type) + (type == "BPE" ? "' with byte fallback" : "'") +
                       " is not supported; supported: byte-level BPE");
  }
  VocabularySource source;
  bool byte_level = false;
  STICKY_TRY(ReadNormalizer(PartOf(root, "normalizer"), source));
  STICKY_TRY(ReadPreTokenizer(PartOf(root, "pre_tokenizer"), source, byte_level));
  if (!byte_level) return Unsupported("it is not byte-level BPE (no ByteLevel pre-tokenizer)");
  source.ignore_merges = FlagOf(model, "ignore_merges", false);
  STICKY_ASSIGN(const Ids ids, ReadTokens(root, model, source));
  STICKY_TRY(ReadMerges(model, ids, source));
  STICKY_TRY(ReadPostProcessor(PartOf(root, "post_processor"), ids, source));
  // The tokenizer's own file decides what is added; its configuration names the tokens, and may
  // add or take away the BOS.
  if (const auto bos = NamedToken(config, "bos_token", ids)) source.bos = bos;
  if (const auto eos = NamedToken(config, "eos_token", ids)) source.eos = eos;
  source.add_bos = FlagOf(config, "add_bos_token", source.add_bos) && source.bos.has_value();
  source.add_eos = FlagOf(config, "add_eos_token", source.add_eos) && source.eos.has_value();
  return source;
}

}  // namespace sticky::weights
