#include "weights/model_config.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/text.h"
#include "weights/json_text.h"

namespace sticky::weights {
namespace {

using nlohmann::json;

constexpr const char* kSupportedFamilies = "llama";
constexpr std::string_view kConfigName = "config.json";
constexpr std::string_view kGenerationName = "generation_config.json";

// Far beyond any model there is; small enough that products of two of them fit 63 bits.
constexpr std::int64_t kVocabMax = 1 << 24;
constexpr std::int64_t kHiddenMax = 1 << 20;
constexpr std::int64_t kLayersMax = 1024;
constexpr std::int64_t kHeadsMax = 1 << 14;
constexpr std::int64_t kHeadDimMax = 1 << 13;
constexpr std::int64_t kContextMax = 1 << 28;
constexpr std::size_t kStopTokensMax = 64;

struct Range {
  std::int64_t least, most;
};

// Typed look-ups in one JSON object, with errors that name the file and the key.
class Keys {
 public:
  Keys(const json& object, std::string_view where) : object_(object), where_(where) {}

  // Null when the key is absent or null.
  const json* Find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  bool Has(const char* key) const { return Find(key) != nullptr; }

  Error Refused(const std::string& reason, Code code = Code::kCorrupt) const {
    return Error{code, "read '" + where_ + "': " + reason};
  }

  Result<int> Int(const char* key, Range range, std::optional<std::int64_t> otherwise = {}) const {
    const json* value = Find(key);
    if (value == nullptr && otherwise) return static_cast<int>(*otherwise);
    if (value == nullptr) return Refused(Format("'%s' is missing", key));
    if (!value->is_number_integer() || value->get<std::int64_t>() < range.least ||
        value->get<std::int64_t>() > range.most) {
      return Refused(Format("'%s' is %s, expected an integer from %lld to %lld", key,
                            Escape(value->dump()).c_str(), static_cast<long long>(range.least),
                            static_cast<long long>(range.most)));
    }
    return value->get<int>();
  }

  Result<bool> Bool(const char* key, bool otherwise) const {
    const json* value = Find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) return Refused(Format("'%s' is not true or false", key));
    return value->get<bool>();
  }

  // A finite number above zero.
  Result<double> Positive(const char* key) const {
    const json* value = Find(key);
    if (value == nullptr) return Refused(Format("'%s' is missing", key));
    if (!value->is_number() || !(value->get<double>() > 0) ||
        !std::isfinite(value->get<double>())) {
      return Refused(
          Format("'%s' is %s, expected a number above 0", key, Escape(value->dump()).c_str()));
    }
    return value->get<double>();
  }

  // Empty when absent.
  Result<std::string> Text(const char* key) const {
    const json* value = Find(key);
    if (value == nullptr) return std::string();
    if (!value->is_string()) return Refused(Format("'%s' is not a string", key));
    return value->get<std::string>();
  }

 private:
  const json& object_;
  std::string where_;
};

Result<json> ParseObject(std::string_view text, std::string_view name) {
  STICKY_ASSIGN(json root, ParseJson(text, std::string(name)));
  if (!root.is_object()) {
    return Error{Code::kCorrupt, "read '" + std::string(name) + "': not an object"};
  }
  return root;
}

// Configurations of transformers before 4.33 have no rope_theta: the base was the constant 10000.
// From then on it is always written, and its absence would mean wrong frequencies in silence.
bool WrittenBeforeRopeTheta(const std::string& version) {
  int major = 0;
  int minor = 0;
  const int found = std::sscanf(version.c_str(), "%d.%d", &major, &minor);
  return found < 2 || major < 4 || (major == 4 && minor < 33);
}

Status ReadLlama3(const Keys& keys, RopeConfig& rope) {
  rope.kind = RopeKind::kLlama3;
  STICKY_ASSIGN(rope.factor, keys.Positive("factor"));
  STICKY_ASSIGN(rope.low_freq_factor, keys.Positive("low_freq_factor"));
  STICKY_ASSIGN(rope.high_freq_factor, keys.Positive("high_freq_factor"));
  STICKY_ASSIGN(rope.original_context, keys.Positive("original_max_position_embeddings"));
  if (!(rope.high_freq_factor > rope.low_freq_factor)) {
    return keys.Refused(Format("'high_freq_factor' %g is not above 'low_freq_factor' %g",
                               rope.high_freq_factor, rope.low_freq_factor));
  }
  return Ok{};
}

// `scaling`: rope_parameters, or rope_scaling of older files.
Status ReadScaling(const Keys& scaling, RopeConfig& rope) {
  STICKY_ASSIGN(std::string type, scaling.Text("rope_type"));
  if (type.empty()) {
    STICKY_ASSIGN(type, scaling.Text("type"));
  }
  if (type == "llama3") return ReadLlama3(scaling, rope);
  if (type.empty() || type == "default") return Ok{};
  return scaling.Refused(
      "rotary scaling '" + Escape(type) + "' is not supported; supported: default, llama3",
      Code::kInvalidArgument);
}

Result<RopeConfig> ReadRope(const Keys& config) {
  RopeConfig rope;
  const json* parameters = config.Find("rope_parameters");
  const json* scaling = parameters != nullptr ? parameters : config.Find("rope_scaling");
  if (scaling != nullptr && !scaling->is_object()) {
    return config.Refused("rope_parameters or rope_scaling is not an object");
  }
  if (parameters != nullptr && parameters->contains("rope_theta")) {
    STICKY_ASSIGN(rope.theta, Keys(*parameters, kConfigName).Positive("rope_theta"));
  } else if (config.Has("rope_theta")) {
    STICKY_ASSIGN(rope.theta, config.Positive("rope_theta"));
  } else {
    STICKY_ASSIGN(const std::string version, config.Text("transformers_version"));
    if (parameters != nullptr || !WrittenBeforeRopeTheta(version)) {
      return config.Refused("'rope_theta' is missing, at top level and in rope_parameters");
    }
  }
  if (scaling != nullptr) STICKY_TRY(ReadScaling(Keys(*scaling, kConfigName), rope));
  const json* partial = config.Find("partial_rotary_factor");
  if (partial != nullptr && *partial != 1.0) {
    return config.Refused("'partial_rotary_factor' other than 1 is not supported",
                          Code::kInvalidArgument);
  }
  return rope;
}

// Adds the ids under `eos_token_id`: a number, or a list of them.
Status AddStopTokens(const Keys& keys, ModelConfig& config) {
  const json* value = keys.Find("eos_token_id");
  if (value == nullptr) return Ok{};
  const json list = value->is_array() ? *value : json::array({*value});
  for (const json& id : list) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
        id.get<std::int64_t>() >= config.vocab_size) {
      return keys.Refused(Format("'eos_token_id' %s is not a token of a vocabulary of %d",
                                 Escape(id.dump()).c_str(), config.vocab_size));
    }
    const int token = id.get<int>();
    if (std::find(config.stop_tokens.begin(), config.stop_tokens.end(), token) ==
        config.stop_tokens.end()) {
      config.stop_tokens.push_back(token);
    }
  }
  if (config.stop_tokens.size() > kStopTokensMax) {
    return keys.Refused(Format("more than %zu stop tokens", kStopTokensMax));
  }
  return Ok{};
}

Status ReadShape(const Keys& keys, ModelConfig& config) {
  STICKY_ASSIGN(config.vocab_size, keys.Int("vocab_size", {1, kVocabMax}));
  STICKY_ASSIGN(config.hidden_size, keys.Int("hidden_size", {1, kHiddenMax}));
  STICKY_ASSIGN(config.layer_count, keys.Int("num_hidden_layers", {1, kLayersMax}));
  STICKY_ASSIGN(config.head_count, keys.Int("num_attention_heads", {1, kHeadsMax}));
  STICKY_ASSIGN(config.kv_head_count,
                keys.Int("num_key_value_heads", {1, config.head_count}, config.head_count));
  STICKY_ASSIGN(config.intermediate_size, keys.Int("intermediate_size", {1, kHiddenMax}));
  STICKY_ASSIGN(config.context_length, keys.Int("max_position_embeddings", {1, kContextMax}));
  if (config.head_count % config.kv_head_count != 0) {
    return keys.Refused(
        Format("'num_attention_heads' %d is not a multiple of "
               "'num_key_value_heads' %d",
               config.head_count, config.kv_head_count));
  }
  if (!keys.Has("head_dim") && config.hidden_size % config.head_count != 0) {
    return keys.Refused(
        Format("'hidden_size' %d is not a multiple of 'num_attention_heads' %d, "
               "and there is no 'head_dim'",
               config.hidden_size, config.head_count));
  }
  STICKY_ASSIGN(config.head_dim,
                keys.Int("head_dim", {2, kHeadDimMax}, config.hidden_size / config.head_count));
  if (config.head_dim % 2 != 0 || config.head_dim < 2) {
    return keys.Refused(Format("head_dim %d is not an even number", config.head_dim));
  }
  return Ok{};
}

Status RefuseWhatIsNotComputed(const Keys& keys) {
  STICKY_ASSIGN(const std::string activation, keys.Text("hidden_act"));
  if (!activation.empty() && activation != "silu") {
    return keys.Refused(
        "'hidden_act' is '" + Escape(activation) + "', which is not supported; supported: silu",
        Code::kInvalidArgument);
  }
  const json* quantization = keys.Find("quantization_config");
  if (quantization != nullptr) {
    std::string method;
    if (quantization->is_object()) {
      STICKY_ASSIGN(method, Keys(*quantization, kConfigName).Text("quant_method"));
    }
    return keys.Refused("weights are quantised ('quantization_config', method '" + Escape(method) +
                            "'), which is not supported; use the unquantised model or a GGUF file",
                        Code::kInvalidArgument);
  }
  return Ok{};
}

}  // namespace

Result<ModelConfig> ParseModelConfig(std::string_view config_json,
                                     std::string_view generation_config_json) {
  STICKY_ASSIGN(const json root, ParseObject(config_json, kConfigName));
  const Keys keys(root, kConfigName);
  ModelConfig config;
  STICKY_ASSIGN(config.family, keys.Text("model_type"));
  if (config.family.empty()) return keys.Refused("'model_type' is missing");
  if (config.family != "llama") {
    return keys.Refused("model family '" + Escape(config.family) +
                            "' is not supported; supported: " + kSupportedFamilies,
                        Code::kInvalidArgument);
  }
  STICKY_TRY(RefuseWhatIsNotComputed(keys));
  STICKY_TRY(ReadShape(keys, config));
  STICKY_ASSIGN(config.norm_epsilon, keys.Positive("rms_norm_eps"));
  STICKY_ASSIGN(config.tied_output, keys.Bool("tie_word_embeddings", false));
  STICKY_ASSIGN(config.attention_bias, keys.Bool("attention_bias", false));
  STICKY_ASSIGN(config.mlp_bias, keys.Bool("mlp_bias", false));
  STICKY_ASSIGN(config.rope, ReadRope(keys));
  STICKY_ASSIGN(config.bos_token, keys.Int("bos_token_id", {0, config.vocab_size - 1}, -1));
  STICKY_TRY(AddStopTokens(keys, config));
  if (!generation_config_json.empty()) {
    STICKY_ASSIGN(const json generation, ParseObject(generation_config_json, kGenerationName));
    STICKY_TRY(AddStopTokens(Keys(generation, kGenerationName), config));
  }
  return config;
}

}  // namespace sticky::weights
