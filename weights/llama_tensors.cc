#include "weights/llama_tensors.h"

#include <map>
#include <utility>

#include "base/text.h"

namespace sticky::weights {
namespace {

constexpr std::size_t kNamedMax = 5;  // tensors that one message lists

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t dim : shape) {
    if (text.size() > 1) text += ", ";
    text += Format("%lld", static_cast<long long>(dim));
  }
  return text + "]";
}

void AddLayer(const ModelConfig& config, int layer, std::vector<ExpectedTensor>& out) {
  const std::string prefix = Format("model.layers.%d.", layer);
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t inner = config.intermediate_size;
  const std::int64_t queries = std::int64_t{config.head_count} * config.head_dim;
  const std::int64_t keys = std::int64_t{config.kv_head_count} * config.head_dim;
  const auto add = [&](const char* name, std::vector<std::int64_t> shape) {
    out.push_back({prefix + name, std::move(shape)});
  };
  const auto add_linear = [&](const char* name, std::int64_t rows, std::int64_t columns,
                              bool bias) {
    add((std::string(name) + ".weight").c_str(), {rows, columns});
    if (bias) add((std::string(name) + ".bias").c_str(), {rows});
  };
  add("input_layernorm.weight", {hidden});
  add_linear("self_attn.q_proj", queries, hidden, config.attention_bias);
  add_linear("self_attn.k_proj", keys, hidden, config.attention_bias);
  add_linear("self_attn.v_proj", keys, hidden, config.attention_bias);
  add_linear("self_attn.o_proj", hidden, queries, config.attention_bias);
  add("post_attention_layernorm.weight", {hidden});
  add_linear("mlp.gate_proj", inner, hidden, config.mlp_bias);
  add_linear("mlp.up_proj", inner, hidden, config.mlp_bias);
  add_linear("mlp.down_proj", hidden, inner, config.mlp_bias);
}

// "a, b, c and 7 more".
std::string Listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kNamedMax; ++i) {
    if (!text.empty()) text += ", ";
    text += "'" + Escape(names[i]) + "'";
  }
  if (names.size() > kNamedMax) text += Format(" and %zu more", names.size() - kNamedMax);
  return text;
}

Status CheckOne(const StoredTensor& tensor, const std::vector<std::int64_t>& shape) {
  const std::string name = "tensor '" + Escape(tensor.name) + "'";
  if (tensor.shape != shape) {
    return Error{Code::kCorrupt, "plan a llama model: " + name + " has shape " +
                                     ShapeText(tensor.shape) + ", the configuration says " +
                                     ShapeText(shape)};
  }
  if (tensor.encoding != Encoding::kPlain) return Ok{};
  if (!tensor.dtype) {
    return Error{Code::kInvalidArgument,
                 "plan a llama model: " + name + " has " + tensor.dtype_trouble};
  }
  if (!IsFloat(*tensor.dtype)) {
    return Error{Code::kCorrupt, "plan a llama model: " + name + " has dtype " +
                                     Name(*tensor.dtype) + ", expected a floating-point one"};
  }
  return Ok{};
}

}  // namespace

std::vector<ExpectedTensor> ExpectedLlamaTensors(const ModelConfig& config) {
  std::vector<ExpectedTensor> tensors;
  const std::int64_t hidden = config.hidden_size;
  tensors.push_back({std::string(kEmbeddingName), {config.vocab_size, hidden}});
  for (int layer = 0; layer < config.layer_count; ++layer) AddLayer(config, layer, tensors);
  tensors.push_back({"model.norm.weight", {hidden}});
  return tensors;
}

Status CheckLlamaTensors(const ModelConfig& config, StoredModel& model) {
  std::map<std::string, std::vector<std::int64_t>, std::less<>> expected;
  for (ExpectedTensor& tensor : ExpectedLlamaTensors(config)) {
    expected.emplace(std::move(tensor.name), std::move(tensor.shape));
  }
  expected.emplace(kHeadName, std::vector<std::int64_t>{config.vocab_size, config.hidden_size});

  std::vector<StoredTensor> kept;
  std::vector<std::string> unused;
  for (StoredTensor& tensor : model.tensors) {
    const auto found = expected.find(tensor.name);
    if (found != expected.end()) {
      STICKY_TRY(CheckOne(tensor, found->second));
      expected.erase(found);
      kept.push_back(std::move(tensor));
    } else if (tensor.name.starts_with("model.") &&
               !tensor.name.ends_with(".rotary_emb.inv_freq")) {
      return Error{Code::kCorrupt, "plan a llama model: tensor '" + Escape(tensor.name) +
                                       "' is not accounted for by the configuration"};
    } else {
      unused.push_back(std::move(tensor.name));
    }
  }
  expected.erase(std::string(kHeadName));
  if (!expected.empty()) {
    std::vector<std::string> missing;
    for (const auto& entry : expected) missing.push_back(entry.first);
    return Error{Code::kCorrupt, "plan a llama model: missing " + Listed(missing)};
  }
  if (!unused.empty()) {
    model.notes.push_back(
        Format("%zu tensors that a llama model does not use were left out: ", unused.size()) +
        Listed(unused));
  }
  model.tensors = std::move(kept);
  return Ok{};
}

}  // namespace sticky::weights
