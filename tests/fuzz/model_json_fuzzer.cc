// The JSON files beside a model's weights. Each input is read as every one of them, which costs
// little: a text that is one of them is soon refused by the others.

#include <algorithm>

#include "tests/fuzz/tokenizer_checks.h"
#include "weights/model_config.h"
#include "weights/shard_index.h"
#include "weights/vocabulary.h"

using namespace sticky;  // NOLINT(google-build-using-namespace): a program of one function

namespace {

void CheckShardIndex(std::string_view text) {
  const auto index = weights::ParseShardIndex(text);
  if (!index.ok()) {
    return fuzz::CheckRefusal(index.error(), {Code::kCorrupt, Code::kInvalidArgument});
  }
  const std::vector<std::string>& shards = index.value().shards;
  FUZZ_CHECK(shards.size() <= weights::kShardCountMax);
  FUZZ_CHECK(std::is_sorted(shards.begin(), shards.end()));
  for (const std::string& shard : shards) FUZZ_CHECK(weights::IsPlainFileName(shard));
  for (const auto& [tensor, shard] : index.value().shard_of) {
    FUZZ_CHECK(std::binary_search(shards.begin(), shards.end(), shard));
  }
}

void CheckModelConfig(std::string_view text, std::string_view generation) {
  const auto parsed = weights::ParseModelConfig(text, generation);
  if (!parsed.ok()) {
    return fuzz::CheckRefusal(parsed.error(), {Code::kCorrupt, Code::kInvalidArgument});
  }
  const weights::ModelConfig& config = parsed.value();
  FUZZ_CHECK(config.vocab_size > 0 && config.hidden_size > 0 && config.layer_count > 0);
  FUZZ_CHECK(config.head_count > 0 && config.kv_head_count > 0 && config.head_dim > 0);
  FUZZ_CHECK(config.intermediate_size > 0 && config.context_length > 0);
  FUZZ_CHECK(config.head_count % config.kv_head_count == 0);
  FUZZ_CHECK(config.norm_epsilon >= 0 && config.rope.theta > 0 && config.rope.factor > 0);
  FUZZ_CHECK(config.bos_token >= -1 && config.bos_token < config.vocab_size);
  for (const int stop : config.stop_tokens) FUZZ_CHECK(stop >= 0 && stop < config.vocab_size);
}

void CheckTokenizerJson(std::string_view text, std::string_view config) {
  const auto source = weights::ParseTokenizerJson(text, config);
  if (!source.ok()) {
    return fuzz::CheckRefusal(source.error(), {Code::kCorrupt, Code::kInvalidArgument});
  }
  const std::vector<std::uint8_t> table = weights::CompileVocabulary(source.value());
  const auto vocabulary = weights::Vocabulary::Open(table);
  FUZZ_CHECK(vocabulary.ok());
  FUZZ_CHECK(vocabulary.value().token_count() == source.value().tokens.size());
  fuzz::CheckTokenizer(vocabulary.value());
}

}  // namespace

// The text, and after a NUL that of the second file, if there is one.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string both(fuzz::Text(bytes, size));
  const std::size_t end = std::min(both.find('\0'), both.size());
  const std::string first = both.substr(0, end);
  const std::string second = both.substr(std::min(end + 1, both.size()));
  CheckShardIndex(both);
  CheckModelConfig(first, second);
  CheckTokenizerJson(first, second);
  return 0;
}
