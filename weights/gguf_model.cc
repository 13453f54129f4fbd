#include "weights/gguf_model.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "weights/gguf.h"
#include "weights/gguf_vocabulary.h"
#include "weights/json_text.h"
#include "weights/llama_tensors.h"
#include "weights/rope_factors.h"

namespace sticky::weights {
namespace {

using nlohmann::json;

constexpr std::uint64_t kLayersMax = 1024;
constexpr std::uint64_t kHeadsMax = 1 << 14;
constexpr std::uint64_t kSizeMax = 1 << 28;
constexpr std::string_view kRopeFactorsName = "rope_freqs.weight";

// blk.N.<first>.weight is model.layers.N.<second>.weight, and so with .bias.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kLayerNames = {
    {{"attn_norm", "input_layernorm"},
     {"attn_q", "self_attn.q_proj"},
     {"attn_k", "self_attn.k_proj"},
     {"attn_v", "self_attn.v_proj"},
     {"attn_output", "self_attn.o_proj"},
     {"ffn_norm", "post_attention_layernorm"},
     {"ffn_gate", "mlp.gate_proj"},
     {"ffn_up", "mlp.up_proj"},
     {"ffn_down", "mlp.down_proj"}}};
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kTopNames = {
    {{"token_embd.weight", kEmbeddingName},
     {"output_norm.weight", "model.norm.weight"},
     {"output.weight", kHeadName}}};

StoredTensor Stored(const GgufTensor& tensor, std::uint32_t file) {
  StoredTensor stored;
  stored.name = tensor.name;
  stored.shape = tensor.shape;
  stored.file = file;
  stored.file_offset = tensor.file_offset;
  stored.stored_bytes = tensor.size_bytes;
  stored.encoding = tensor.type->encoding;
  stored.dtype = tensor.type->dtype;
  return stored;
}

class LlamaReader {
 public:
  LlamaReader(std::span<const SourceFile> files, std::uint32_t index, const GgufFile& gguf)
      : source_(files[index]), index_(index), gguf_(gguf) {}

  Result<StoredModel> Read();

 private:
  struct Sizes {
    std::uint64_t layers, hidden, inner, heads, kv_heads, head_dim, context, vocab;
  };

  Error Refused(const std::string& reason, Code code = Code::kCorrupt) const {
    return Error{code, "read '" + Escape(source_.name) + "': " + reason};
  }
  // llama.<key>, from 1 to `most`. `otherwise`: when it is absent; none: then it is an error.
  Result<std::uint64_t> Uint(const char* key, std::uint64_t most,
                             std::optional<std::uint64_t> otherwise = {}) const;
  bool HasTensor(std::string_view name) const;

  Result<Sizes> ReadSizes() const;
  Status RefuseWhatIsNotComputed(const Sizes& sizes) const;
  Result<RopeConfig> ReadRope(const Sizes& sizes);
  Result<std::vector<float>> ReadRopeFactors(const GgufTensor& tensor) const;
  Result<json> MakeConfig(const Sizes& sizes);
  Status AddTokens(json& config) const;
  Result<std::string> CanonicalName(const std::string& name) const;
  Status AddTensors(const Sizes& sizes);
  Status AddAssets();

  const SourceFile& source_;
  const std::uint32_t index_;
  const GgufFile& gguf_;
  StoredModel model_;
};

Result<std::uint64_t> LlamaReader::Uint(const char* key, std::uint64_t most,
                                        std::optional<std::uint64_t> otherwise) const {
  const std::string name = std::string("llama.") + key;
  STICKY_ASSIGN(const auto value, gguf_.FindUint(name));
  if (!value && otherwise) return *otherwise;
  if (!value) return Refused("key '" + name + "' is missing");
  if (*value < 1 || *value > most) {
    return Refused(Format("%s %llu is out of range: 1 to %llu", name.c_str(),
                          static_cast<unsigned long long>(*value),
                          static_cast<unsigned long long>(most)));
  }
  return *value;
}

bool LlamaReader::HasTensor(std::string_view name) const {
  return std::any_of(gguf_.tensors().begin(), gguf_.tensors().end(),
                     [&](const GgufTensor& tensor) { return tensor.name == name; });
}

Result<LlamaReader::Sizes> LlamaReader::ReadSizes() const {
  Sizes sizes{};
  // Values that are there are checked before any that is missing is complained of: a zero says
  // more about what is wrong with a file.
  STICKY_ASSIGN(sizes.heads, Uint("attention.head_count", kHeadsMax, 1));
  STICKY_ASSIGN(sizes.layers, Uint("block_count", kLayersMax, 1));
  STICKY_ASSIGN(sizes.layers, Uint("block_count", kLayersMax));
  STICKY_ASSIGN(sizes.heads, Uint("attention.head_count", kHeadsMax));
  STICKY_ASSIGN(sizes.hidden, Uint("embedding_length", kSizeMax));
  STICKY_ASSIGN(sizes.inner, Uint("feed_forward_length", kSizeMax));
  STICKY_ASSIGN(sizes.context, Uint("context_length", kSizeMax));
  STICKY_ASSIGN(sizes.kv_heads, Uint("attention.head_count_kv", sizes.heads, sizes.heads));
  STICKY_ASSIGN(sizes.head_dim, Uint("attention.key_length", kSizeMax, sizes.hidden / sizes.heads));
  for (const GgufTensor& tensor : gguf_.tensors()) {
    if (tensor.name == "token_embd.weight" && tensor.shape.size() == 2) {
      sizes.vocab = static_cast<std::uint64_t>(tensor.shape[0]);
    }
  }
  if (sizes.vocab == 0) return Refused("tensor 'token_embd.weight' is missing or not a matrix");
  STICKY_ASSIGN(const std::uint64_t said, Uint("vocab_size", kSizeMax, sizes.vocab));
  if (said != sizes.vocab) {
    return Refused(Format("llama.vocab_size is %llu, but token_embd.weight has %llu rows",
                          static_cast<unsigned long long>(said),
                          static_cast<unsigned long long>(sizes.vocab)));
  }
  return sizes;
}

Status LlamaReader::RefuseWhatIsNotComputed(const Sizes& sizes) const {
  STICKY_ASSIGN(const auto experts, gguf_.FindUint("llama.expert_count"));
  if (experts.value_or(0) != 0) {
    return Refused(Format("a mixture of %llu experts is not supported",
                          static_cast<unsigned long long>(*experts)),
                   Code::kInvalidArgument);
  }
  STICKY_ASSIGN(const std::uint64_t value_length,
                Uint("attention.value_length", kSizeMax, sizes.head_dim));
  STICKY_ASSIGN(const std::uint64_t rotated,
                Uint("rope.dimension_count", kSizeMax, sizes.head_dim));
  if (value_length != sizes.head_dim || rotated != sizes.head_dim) {
    return Refused(Format("heads of %llu key, %llu value and %llu rotated dimensions are not "
                          "supported: the three must be equal",
                          static_cast<unsigned long long>(sizes.head_dim),
                          static_cast<unsigned long long>(value_length),
                          static_cast<unsigned long long>(rotated)),
                   Code::kInvalidArgument);
  }
  STICKY_ASSIGN(const auto scaling, gguf_.FindString("llama.rope.scaling.type"));
  STICKY_ASSIGN(const auto linear, gguf_.FindFloat("llama.rope.scale_linear"));
  if ((scaling && *scaling != "none" && !scaling->empty()) || linear.value_or(1) != 1) {
    return Refused("rotary scaling '" + Escape(scaling.value_or("linear")) +
                       "' is not supported; supported: none, llama3 (rope_freqs.weight)",
                   Code::kInvalidArgument);
  }
  return Ok{};
}

Result<std::vector<float>> LlamaReader::ReadRopeFactors(const GgufTensor& tensor) const {
  if (tensor.type->encoding != Encoding::kPlain || tensor.type->dtype != Dtype::kF32 ||
      tensor.size_bytes > kSizeMax) {
    return Refused("tensor 'rope_freqs.weight' is not float32");
  }
  std::vector<float> factors(static_cast<std::size_t>(tensor.size_bytes / sizeof(float)));
  STICKY_TRY(source_.bytes->ReadAt(
      tensor.file_offset,
      std::span(reinterpret_cast<std::uint8_t*>(factors.data()), factors.size() * sizeof(float))));
  return factors;
}

Result<RopeConfig> LlamaReader::ReadRope(const Sizes& sizes) {
  RopeConfig rope;
  STICKY_ASSIGN(const auto theta, gguf_.FindFloat("llama.rope.freq_base"));
  if (theta) {
    rope.theta = *theta;
  } else {
    model_.notes.push_back("llama.rope.freq_base is not in the file: its default, 10000, is used");
  }
  if (!(rope.theta > 0)) return Refused(Format("llama.rope.freq_base is %g", rope.theta));
  const auto& tensors = gguf_.tensors();
  const auto factors = std::find_if(tensors.begin(), tensors.end(), [](const GgufTensor& tensor) {
    return tensor.name == kRopeFactorsName;
  });
  if (factors == tensors.end()) return rope;
  STICKY_ASSIGN(const std::vector<float> values, ReadRopeFactors(*factors));
  const auto scaled = RopeFromFactors(values, rope.theta, static_cast<int>(sizes.head_dim));
  if (!scaled) {
    return Refused(Format("the %zu factors of 'rope_freqs.weight' are not llama3's rotary scaling "
                          "for heads of %llu",
                          values.size(), static_cast<unsigned long long>(sizes.head_dim)),
                   Code::kInvalidArgument);
  }
  return *scaled;
}

Status LlamaReader::AddTokens(json& config) const {
  STICKY_ASSIGN(const auto bos, gguf_.FindUint("tokenizer.ggml.bos_token_id"));
  if (bos) config["bos_token_id"] = *bos;
  json stops = json::array();
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    STICKY_ASSIGN(const auto id, gguf_.FindUint(key));
    if (id && std::find(stops.begin(), stops.end(), *id) == stops.end()) stops.push_back(*id);
  }
  if (!stops.empty()) config["eos_token_id"] = stops.size() == 1 ? stops[0] : stops;
  return Ok{};
}

Result<json> LlamaReader::MakeConfig(const Sizes& sizes) {
  STICKY_ASSIGN(const auto epsilon, gguf_.FindFloat("llama.attention.layer_norm_rms_epsilon"));
  if (!epsilon) return Refused("key 'llama.attention.layer_norm_rms_epsilon' is missing");
  STICKY_ASSIGN(const RopeConfig rope, ReadRope(sizes));
  json parameters = {{"rope_theta", rope.theta}, {"rope_type", "default"}};
  if (rope.kind == RopeKind::kLlama3) {
    parameters["rope_type"] = "llama3";
    parameters["factor"] = rope.factor;
    parameters["low_freq_factor"] = rope.low_freq_factor;
    parameters["high_freq_factor"] = rope.high_freq_factor;
    parameters["original_max_position_embeddings"] = rope.original_context;
  }
  json config = {{"architectures", {"LlamaForCausalLM"}},
                 {"model_type", "llama"},
                 {"hidden_act", "silu"},
                 {"vocab_size", sizes.vocab},
                 {"hidden_size", sizes.hidden},
                 {"intermediate_size", sizes.inner},
                 {"num_hidden_layers", sizes.layers},
                 {"num_attention_heads", sizes.heads},
                 {"num_key_value_heads", sizes.kv_heads},
                 {"head_dim", sizes.head_dim},
                 {"max_position_embeddings", sizes.context},
                 {"rms_norm_eps", *epsilon},
                 {"rope_parameters", parameters},
                 {"attention_bias", HasTensor("blk.0.attn_q.bias")},
                 {"mlp_bias", HasTensor("blk.0.ffn_gate.bias")},
                 {"tie_word_embeddings", !HasTensor("output.weight")}};
  STICKY_TRY(AddTokens(config));
  return config;
}

Result<std::string> LlamaReader::CanonicalName(const std::string& name) const {
  for (const auto& [from, to] : kTopNames) {
    if (name == from) return std::string(to);
  }
  const std::size_t number_end = name.find('.', 4);
  const std::size_t suffix = name.rfind('.');
  if (name.starts_with("blk.") && number_end != std::string::npos && suffix > number_end) {
    const std::string number = name.substr(4, number_end - 4);
    const std::string part = name.substr(number_end + 1, suffix - number_end - 1);
    const std::string ending = name.substr(suffix);
    for (const auto& [from, to] : kLayerNames) {
      if (part == from && (ending == ".weight" || ending == ".bias")) {
        return "model.layers." + number + "." + std::string(to) + ending;
      }
    }
  }
  return Refused("tensor '" + Escape(name) + "' is not one of a llama model's");
}

Status LlamaReader::AddTensors(const Sizes& sizes) {
  for (const GgufTensor& tensor : gguf_.tensors()) {
    if (tensor.name == kRopeFactorsName) continue;  // became rope_parameters
    StoredTensor stored = Stored(tensor, index_);
    STICKY_ASSIGN(stored.name, CanonicalName(tensor.name));
    // Writers of llama files interleave the two halves of each head of q and k, for the other of
    // the two ways to write rotary embeddings down.
    if (stored.name.find(".q_proj.") != std::string::npos) {
      stored.interleaved_head_count = static_cast<std::uint32_t>(sizes.heads);
    } else if (stored.name.find(".k_proj.") != std::string::npos) {
      stored.interleaved_head_count = static_cast<std::uint32_t>(sizes.kv_heads);
    }
    model_.tensors.push_back(std::move(stored));
  }
  return Ok{};
}

Status LlamaReader::AddAssets() {
  STICKY_ASSIGN(const auto chat_template, gguf_.FindString("tokenizer.chat_template"));
  model_.chat_template = std::string(chat_template.value_or(""));
  const auto vocabulary = ReadGgufVocabulary(gguf_);
  if (!vocabulary.ok()) {
    if (vocabulary.error().code == Code::kCorrupt) return vocabulary.error();
    model_.notes.push_back("the tokenizer is left out: " + vocabulary.error().message);
    return Ok{};
  }
  model_.vocabulary = CompileVocabulary(vocabulary.value());
  return Ok{};
}

Result<StoredModel> LlamaReader::Read() {
  STICKY_ASSIGN(const Sizes sizes, ReadSizes());
  STICKY_TRY(RefuseWhatIsNotComputed(sizes));
  STICKY_ASSIGN(const json config, MakeConfig(sizes));
  model_.config_json = config.dump(2);
  STICKY_TRY(AddTensors(sizes));
  STICKY_TRY(AddAssets());
  return std::move(model_);
}

StoredModel PlainTensors(const GgufFile& gguf, std::uint32_t file) {
  StoredModel model;
  for (const GgufTensor& tensor : gguf.tensors()) {
    model.tensors.push_back(Stored(tensor, file));
  }
  model.notes.push_back(
      "the GGUF file describes no model (no key of its architecture): its tensors are taken under "
      "their own names");
  return model;
}

}  // namespace

Result<StoredModel> ReadGgufModel(std::span<const SourceFile> files, std::uint32_t file) {
  STICKY_ASSIGN(const GgufFile gguf, GgufFile::Read(files[file]));
  STICKY_ASSIGN(const auto architecture, gguf.FindString("general.architecture"));
  if (architecture && *architecture != "llama") {
    return Error{Code::kInvalidArgument, "read '" + Escape(files[file].name) + "': architecture '" +
                                             Escape(*architecture) +
                                             "' is not supported; supported: llama"};
  }
  if (!architecture || !gguf.HasKeyWithPrefix("llama.")) return PlainTensors(gguf, file);
  return LlamaReader(files, file, gguf).Read();
}

}  // namespace sticky::weights
