#include "engine/llama_weights.h"

#include <set>
#include <string>

#include "base/text.h"

namespace sticky::engine {
namespace {

std::string ShapeText(std::span<const std::int64_t> shape) {
  std::string text;
  for (const std::int64_t size : shape) {
    text += (text.empty() ? "" : ", ") + std::to_string(size);
  }
  return "[" + text + "]";
}

class Binder {
 public:
  explicit Binder(const WeightSource& source) : source_(source) {}

  Result<const float*> Vector(const std::string& name, int size) {
    STICKY_ASSIGN(const TensorView tensor, Take(name, {size}));
    if (tensor.dtype != Dtype::kF32) {
      return Error{Code::kCorrupt,
                   "use tensor '" + name + "': want f32, found " + Name(tensor.dtype)};
    }
    return static_cast<const float*>(tensor.data);
  }

  Result<WeightMatrix> Matrix(const std::string& name, int rows, int columns) {
    STICKY_ASSIGN(const TensorView tensor, Take(name, {rows, columns}));
    const bool known =
        tensor.dtype == Dtype::kF32 || tensor.dtype == Dtype::kBf16 || tensor.dtype == Dtype::kF16;
    if (!known) {
      return Error{Code::kCorrupt,
                   "use tensor '" + name + "': want f32, bf16 or f16, found " + Name(tensor.dtype)};
    }
    return WeightMatrix{tensor.data, tensor.dtype, rows, columns};
  }

  Result<Linear> Layer(const std::string& name, int rows, int columns, bool bias) {
    Linear linear;
    STICKY_ASSIGN(linear.weight, Matrix(name + ".weight", rows, columns));
    if (bias) {
      STICKY_ASSIGN(linear.bias, Vector(name + ".bias", rows));
    }
    return linear;
  }

  bool Has(const std::string& name) const { return source_.Find(name).has_value(); }

  // Old checkpoints keep the rotary frequencies, which follow from the configuration.
  static bool MayBeLeftOver(std::string_view name) {
    return name.ends_with(".rotary_emb.inv_freq") || name == "rope_freqs.weight";
  }

  Status NothingLeftOver() const {
    std::string left;
    int count = 0;
    for (const std::string_view name : source_.Names()) {
      if (used_.contains(std::string(name)) || MayBeLeftOver(name)) continue;
      if (++count <= 5) left += (left.empty() ? "" : ", ") + std::string(name);
    }
    if (count == 0) return Ok{};
    return Error{Code::kCorrupt, Format("use the model's tensors: %d are not part of a llama "
                                        "model of this configuration: %s",
                                        count, Escape(left).c_str())};
  }

 private:
  Result<TensorView> Take(const std::string& name, std::vector<std::int64_t> want) {
    const std::optional<TensorView> tensor = source_.Find(name);
    if (!tensor) return Error{Code::kCorrupt, "use tensor '" + name + "': it is missing"};
    if (!std::equal(want.begin(), want.end(), tensor->shape.begin(), tensor->shape.end())) {
      return Error{Code::kCorrupt, "use tensor '" + name + "': want " + ShapeText(want) +
                                       ", found " + ShapeText(tensor->shape)};
    }
    used_.insert(name);
    return *tensor;
  }

  const WeightSource& source_;
  std::set<std::string> used_;
};

Result<LlamaLayer> BindLayer(const weights::ModelConfig& config, int index, Binder& binder) {
  const std::string prefix = "model.layers." + std::to_string(index);
  const int hidden = config.hidden_size;
  const int query_dim = config.head_count * config.head_dim;
  const int kv_dim = config.kv_head_count * config.head_dim;
  const bool bias = config.attention_bias;
  LlamaLayer layer;
  STICKY_ASSIGN(layer.attention_norm, binder.Vector(prefix + ".input_layernorm.weight", hidden));
  STICKY_ASSIGN(layer.mlp_norm, binder.Vector(prefix + ".post_attention_layernorm.weight", hidden));
  STICKY_ASSIGN(layer.query, binder.Layer(prefix + ".self_attn.q_proj", query_dim, hidden, bias));
  STICKY_ASSIGN(layer.key, binder.Layer(prefix + ".self_attn.k_proj", kv_dim, hidden, bias));
  STICKY_ASSIGN(layer.value, binder.Layer(prefix + ".self_attn.v_proj", kv_dim, hidden, bias));
  STICKY_ASSIGN(layer.output, binder.Layer(prefix + ".self_attn.o_proj", hidden, query_dim, bias));
  const int inner = config.intermediate_size;
  STICKY_ASSIGN(layer.gate,
                binder.Layer(prefix + ".mlp.gate_proj", inner, hidden, config.mlp_bias));
  STICKY_ASSIGN(layer.up, binder.Layer(prefix + ".mlp.up_proj", inner, hidden, config.mlp_bias));
  STICKY_ASSIGN(layer.down,
                binder.Layer(prefix + ".mlp.down_proj", hidden, inner, config.mlp_bias));
  return layer;
}

}  // namespace

Result<LlamaWeights> BindLlamaWeights(const weights::ModelConfig& config,
                                      const WeightSource& source) {
  Binder binder(source);
  LlamaWeights bound;
  STICKY_ASSIGN(bound.embedding,
                binder.Matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size));
  STICKY_ASSIGN(bound.final_norm, binder.Vector("model.norm.weight", config.hidden_size));
  bound.head = bound.embedding;
  // A model that ties its head may carry it all the same; then it is what the loader kept.
  if (!config.tied_output || binder.Has("lm_head.weight")) {
    STICKY_ASSIGN(bound.head,
                  binder.Matrix("lm_head.weight", config.vocab_size, config.hidden_size));
  }
  for (int index = 0; index < config.layer_count; ++index) {
    STICKY_ASSIGN(LlamaLayer layer, BindLayer(config, index, binder));
    bound.layers.push_back(layer);
  }
  STICKY_TRY(binder.NothingLeftOver());
  return bound;
}

}  // namespace sticky::engine
