// A llama model of two layers with random weights, written as safetensors or as GGUF, so that the
// two can be held against each other.

#ifndef STICKY_TESTS_TESTING_TINY_LLAMA_H_
#define STICKY_TESTS_TESTING_TINY_LLAMA_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/testing/model_writers.h"
#include "weights/llama_tensors.h"
#include "weights/model_config.h"

namespace sticky::testing {

struct TinyLlama {
  weights::ModelConfig config;
  std::map<std::string, std::vector<std::int64_t>> shapes;  // by Hugging Face name
  std::map<std::string, std::vector<float>> values;         // row-major, Hugging Face order

  explicit TinyLlama(bool bias = false) {
    config.family = "llama";
    config.vocab_size = 40;
    config.hidden_size = 64;
    config.layer_count = 2;
    config.head_count = 4;
    config.kv_head_count = 2;  // fewer than heads: q and k are put in order by different counts
    config.head_dim = 16;
    config.intermediate_size = 96;
    config.context_length = 128;
    config.attention_bias = bias;
    config.mlp_bias = bias;
    std::mt19937 rng(7);
    for (const auto& tensor : weights::ExpectedLlamaTensors(config))
      Add(tensor.name, tensor.shape, rng);
  }

  void Add(const std::string& name, const std::vector<std::int64_t>& shape, std::mt19937& rng) {
    std::size_t count = 1;
    for (const std::int64_t dim : shape) count *= static_cast<std::size_t>(dim);
    std::vector<float>& out = values[name];
    for (std::size_t i = 0; i < count; ++i) {
      out.push_back(static_cast<float>(rng() % 2001) / 1000.0f - 1.0f);
    }
    shapes[name] = shape;
  }
  void AddHead() {
    std::mt19937 rng(8);
    Add("lm_head.weight", {config.vocab_size, config.hidden_size}, rng);
  }

  std::string ConfigJson(const std::string& more = "\"tie_word_embeddings\": true") const {
    const std::string bias = config.attention_bias ? "true" : "false";
    return R"({"model_type": "llama", "vocab_size": 40, "hidden_size": 64, "num_hidden_layers": 2,
               "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
               "intermediate_size": 96, "max_position_embeddings": 128, "rms_norm_eps": 1e-05,
               "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
               "attention_bias": )" +
           bias + ", \"mlp_bias\": " + bias + ", " + more + "}";
  }

  SafetensorsWriter Safetensors() const {
    SafetensorsWriter writer;
    for (const auto& [name, numbers] : values) {
      writer.Add(name, "F32", shapes.at(name), RawBytes(numbers));
    }
    return writer;
  }

  // What converters to GGUF do to q and k: within each head, rows of the two halves alternate.
  static std::vector<float> Interleaved(const std::vector<float>& rows, std::size_t head_count,
                                        std::size_t columns) {
    std::vector<float> out(rows.size());
    const std::size_t per_head = rows.size() / columns / head_count;
    for (std::size_t from = 0; from < rows.size() / columns; ++from) {
      const std::size_t head = from / per_head;
      const std::size_t half = from % per_head / (per_head / 2);
      const std::size_t to = head * per_head + 2 * (from % (per_head / 2)) + half;
      std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(from * columns), columns,
                  out.begin() + static_cast<std::ptrdiff_t>(to * columns));
    }
    return out;
  }

  // Metadata without a tokenizer.
  static GgufWriter Metadata() {
    GgufWriter writer;
    writer.String("general.architecture", "llama")
        .Uint("llama.block_count", 2)
        .Uint("llama.context_length", 128)
        .Uint("llama.embedding_length", 64)
        .Uint("llama.feed_forward_length", 96)
        .Uint("llama.attention.head_count", 4)
        .Uint("llama.attention.head_count_kv", 2)
        .Uint("llama.rope.dimension_count", 16)
        .Float("llama.rope.freq_base", 10000.0f)
        .Float("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    return writer;
  }

  void AddTensors(GgufWriter& writer) const {
    static const std::map<std::string, std::string> parts = {
        {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"}, {"post_attention_layernorm", "ffn_norm"},
        {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"}};
    for (const auto& [name, numbers] : values) {
      std::string gguf_name = name == "model.embed_tokens.weight" ? "token_embd.weight"
                              : name == "model.norm.weight"       ? "output_norm.weight"
                              : name == "lm_head.weight"          ? "output.weight"
                                                                  : "";
      if (gguf_name.empty()) {  // model.layers.N.<part>.<ending>
        const std::size_t ending = name.rfind('.');
        const std::string part = name.substr(15, ending - 15);
        gguf_name = "blk." + name.substr(13, 1) + "." + parts.at(part) + name.substr(ending);
      }
      const bool q = name.find("q_proj") != std::string::npos;
      const bool k = name.find("k_proj") != std::string::npos;
      const std::size_t columns =
          shapes.at(name).size() == 2 ? static_cast<std::size_t>(shapes.at(name)[1]) : 1;
      const std::vector<float> stored = q   ? Interleaved(numbers, 4, columns)
                                        : k ? Interleaved(numbers, 2, columns)
                                            : numbers;
      writer.Tensor(gguf_name, shapes.at(name), /*type=*/0, RawBytes(stored));
    }
  }
};

}  // namespace sticky::testing

#endif  // STICKY_TESTS_TESTING_TINY_LLAMA_H_
