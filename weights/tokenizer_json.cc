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
constexpr std::size_t kSplitCountMax = 64;

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

// Of a split, matches and gaps both become pieces; so `invert`, which changes the two, changes
// nothing.
Status ReadSplit(const json& node, VocabularySource& source) {
  const std::string behaviour = TextOf(node, "behavior");
  if (behaviour != "Isolated") {
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

// ByteLevel writes every byte as a character of its own alphabet and puts its space before each
// piece: what comes after it, and the space after other steps, would not mean what it does here.
Status ReadByteLevel(const json& node, VocabularySource& source) {
  source.add_prefix_space = FlagOf(node, "add_prefix_space", false);
  if (source.add_prefix_space && !source.splits.empty()) {
    return Unsupported(
        "ByteLevel with add_prefix_space after another pre-tokenizer is not "
        "supported");
  }
  return FlagOf(node, "use_regex", true) ? AddSplit(kGpt2Pattern, source) : Ok{};
}

Status ReadPreTokenizer(const json& node, VocabularySource& source, bool& byte_level) {
  const std::string type = TextOf(node, "type");
  if (type == "Sequence") {
    for (const json& step : PartOf(node, "pretokenizers")) {
      STICKY_TRY(ReadPreTokenizer(step, source, byte_level));
    }
    return Ok{};
  }
  if (byte_level) {
    return Unsupported("pre-tokenizer '" + Escape(type) + "' after ByteLevel is not supported");
  }
  if (source.splits.size() >= kSplitCountMax) {
    return Unsupported(Format("more than %zu pre-tokenizers are not supported", kSplitCountMax));
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
    return ReadByteLevel(node, source);
  }
  return Unsupported("pre-tokenizer '" + Escape(type) +
                     "' is not supported; supported: Sequence, Split, Digits, Punctuation "
                     "(isolated), ByteLevel");
}

// kTokenCountMax for what is no id.
std::uint32_t IdOf(const json& value) {
  if (!value.is_number_unsigned()) return kTokenCountMax;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(value.get<std::uint64_t>(), kTokenCountMax));
}

// Numbers that contradict each other are refused: the tokenizers library would give out others.
Error TwoIds(const std::string& text, std::uint32_t a, std::uint32_t b) {
  return Corrupt(Format("token '%s' has two ids, %u and %u", Escape(text).c_str(), a, b));
}
Error TwoTokens(std::uint32_t id, const std::string& a, const std::string& b) {
  return Corrupt(Format("token id %u stands twice, for '%s' and '%s'", id, Escape(a).c_str(),
                        Escape(b).c_str()));
}

Status ReadAddedTokens(const json& added, VocabularySource& source, Ids& ids) {
  for (const json& entry : added) {
    const std::uint32_t id = IdOf(PartOf(entry, "id"));
    const std::string content = TextOf(entry, "content");
    if (content.empty()) return Corrupt("an added token has no content");
    for (const char* const strip : {"lstrip", "rstrip", "single_word"}) {
      if (!FlagOf(entry, strip, false)) continue;
      return Unsupported(
          Format("added token '%s' with %s is not supported", Escape(content).c_str(), strip));
    }
    VocabularySource::Token& token = source.tokens[id];
    if (token.added && token.bytes != content) return TwoTokens(id, token.bytes, content);
    const auto [place, is_new] = ids.emplace(content, id);
    if (!is_new && place->second != id) return TwoIds(content, place->second, id);
    token = {content, FlagOf(entry, "special", false), /*added=*/true};
  }
  return Ok{};
}

Status ReadVocabulary(const json& vocab, VocabularySource& source, Ids& ids) {
  std::vector<bool> seen(source.tokens.size(), false);
  for (const auto& [text, value] : vocab.items()) {
    const std::uint32_t id = IdOf(value);
    VocabularySource::Token& token = source.tokens[id];
    if (token.added && token.bytes != text) return TwoTokens(id, token.bytes, text);
    if (seen[id]) return TwoTokens(id, token.bytes, text);
    seen[id] = true;
    const auto [place, is_new] = ids.emplace(text, id);
    if (!is_new && place->second != id) return TwoIds(text, place->second, id);
    if (!token.added && !DecodeByteAlphabet(text, token.bytes)) {
      return Unsupported("token '" + Escape(text) + "' is not in the byte-level alphabet");
    }
  }
  return Ok{};
}

Result<Ids> ReadTokens(const json& root, const json& model, VocabularySource& source) {
  const json vocab = PartOf(model, "vocab");
  const json added = PartOf(root, "added_tokens");
  if (!vocab.is_object() || vocab.empty()) return Corrupt("model.vocab is missing");
  std::uint32_t count = 0;
  for (const auto& [text, id] : vocab.items()) count = std::max(count, IdOf(id) + 1);
  for (const json& token : added) count = std::max(count, IdOf(PartOf(token, "id")) + 1);
  if (count > kTokenCountMax) return Corrupt("a token's id is missing or out of range");
  source.tokens.resize(count);
  Ids ids;
  STICKY_TRY(ReadAddedTokens(added, source, ids));
  STICKY_TRY(ReadVocabulary(vocab, source, ids));
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
    bool& added = before_text ? source.add_bos : source.add_eos;
    if (added) {
      return Unsupported("a template with two tokens before a text, or after it, is not supported");
    }
    added = true;
    (before_text ? source.bos : source.eos) = found->second;
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

Status CheckModel(const json& model) {
  const std::string type = TextOf(model, "type");
  if (type != "BPE" || FlagOf(model, "byte_fallback", false)) {
    return Unsupported("model '" + Escape(type) + (type == "BPE" ? "' with byte fallback" : "'") +
                       " is not supported; supported: byte-level BPE");
  }
  for (const char* const affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (TextOf(model, affix).empty()) continue;
    return Unsupported(std::string("a BPE model with ") + affix + " is not supported");
  }
  const json dropout = PartOf(model, "dropout");
  if (dropout.is_null() || dropout == 0) return Ok{};
  return Unsupported("a BPE model with dropout is not supported: its merges are random");
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
  STICKY_TRY(CheckModel(model));
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
