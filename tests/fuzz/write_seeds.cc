// Writes the inputs that fuzzers begin with and that no file of the tree is: one of each kind, made
// of the samples of other tests.
//
// Usage: fuzz_seeds FOLDER   (tests/data/fuzz; to be run again when a format has changed)

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "flatbuffers/wire_codec.h"
#include "flatbuffers/wire_manifest.h"
#include "flatbuffers/wire_record.h"
#include "tests/testing/model_writers.h"
#include "tests/testing/sample_state.h"
#include "tests/unit/flatbuffers/sample_messages.h"
#include "weights/vocabulary.h"

namespace {

namespace fs = std::filesystem;
using namespace sticky;  // NOLINT(google-build-using-namespace): a program of a few functions

class Seeds {
 public:
  Seeds(const fs::path& root, const std::string& fuzzer) : folder_(root / fuzzer) {
    fs::create_directories(folder_);
  }
  void Write(const std::string& name, std::span<const std::uint8_t> bytes) const {
    std::ofstream file(folder_ / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  void Write(const std::string& name, const std::string& text) const {
    Write(name, std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
  }

 private:
  fs::path folder_;
};

void WriteFrames(const fs::path& root) {
  const Seeds seeds(root, "frame");
  for (const wire::Message& message : wire::SampleMessages()) {
    seeds.Write("message-" + std::to_string(message.body.index()), wire::Encode(message));
  }
}

void WriteManifests(const fs::path& root) {
  const Seeds seeds(root, "manifest");
  const testing::SampleState sample;
  seeds.Write("tensors", wire::EncodeManifest(sample.manifest()));
  wire::Manifest files;
  files.state = "files";
  files.device = "host";
  files.arena_bytes = {5, 7};
  files.assets = {{"a.bin", 0, 0, 5}, {"b.bin", 1, 0, 7}, {"empty", 0, 0, 0}};
  files.whole_files = true;
  files.notes = {"a note"};
  files.sources = {{"a.bin", 5, 1}, {"b.bin", 7, 2}};
  files.base = "base";
  files.base_digest = wire::SampleDigest(3);
  files.builder = "build.py";
  files.cpu = "avx2";
  seeds.Write("files", wire::EncodeManifest(files));
}

void WriteRecords(const fs::path& root) {
  const Seeds seeds(root, "record");
  wire::StateRecord state;
  state.state = "llama-8b";
  state.epoch = 12;
  state.arena_inodes = {41, 42};
  state.content_digest = wire::SampleDigest(1);
  state.template_digest = wire::SampleDigest(2);
  state.arena_bytes = 8192;
  state.tensor_count = 9;
  state.policy = wire::SamplePolicy();
  state.source = "model.gguf";
  state.huge_pages = "all";
  state.built_by = "build.py";
  state.base = "base";
  state.base_digest = wire::SampleDigest(3);
  seeds.Write("state", wire::EncodeRecord(state));
  seeds.Write("node", wire::EncodeRecord(wire::NodeRecord{true, 1u << 30}));
}

// A byte-level vocabulary of 256 tokens and a few more, with two merges and a pattern.
weights::VocabularySource SmallVocabulary() {
  weights::VocabularySource source;
  for (int byte = 0; byte < 256; ++byte) {
    source.tokens.push_back({std::string(1, static_cast<char>(byte)), false, false});
  }
  source.tokens.push_back({"or", false, false});
  source.tokens.push_back({"wor", false, false});
  source.tokens.push_back({"<|im_end|>", true, true});
  source.merges = {{'o', 'r', 256}, {'w', 256, 257}};
  source.splits = {{R"(\p{N})"}, {R"('s|\s?\w+|\s+)"}};
  source.bos = 258;
  source.eos = 258;
  return source;
}

// A llama of one layer, with the vocabulary of a few letters.
testing::GgufWriter LlamaMetadata() {
  testing::GgufWriter writer;
  writer.String("general.architecture", "llama")
      .Uint("llama.block_count", 1)
      .Uint("llama.context_length", 16)
      .Uint("llama.embedding_length", 32)
      .Uint("llama.feed_forward_length", 32)
      .Uint("llama.attention.head_count", 2)
      .Uint("llama.attention.head_count_kv", 1)
      .Float("llama.rope.freq_base", 10000.0f)
      .Float("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "smollm")
      .Strings("tokenizer.ggml.tokens", {"a", "b", "ab", "<|im_end|>"})
      .Ints("tokenizer.ggml.token_type", {1, 1, 1, 3})
      .Strings("tokenizer.ggml.merges", {"a b"})
      .Uint("tokenizer.ggml.eos_token_id", 3)
      .Bool("tokenizer.ggml.add_bos_token", false)
      .String("tokenizer.chat_template", "{% for message in messages %}{% endfor %}");
  return writer;
}

void AddMatrix(testing::GgufWriter& writer, const std::string& name, std::int64_t rows) {
  constexpr std::uint32_t kQ8_0 = 8;
  constexpr std::size_t kBlockBytes = 34;  // of 32 elements, which is a row here
  writer.Tensor(name, {rows, 32}, kQ8_0,
                std::string(static_cast<std::size_t>(rows) * kBlockBytes, '\1'));
}

void WriteModels(const fs::path& root) {
  Seeds(root, "vocabulary").Write("bytes", weights::CompileVocabulary(SmallVocabulary()));
  testing::GgufWriter writer = LlamaMetadata();
  AddMatrix(writer, "token_embd.weight", 4);
  const std::string norm = testing::RawBytes(std::vector<float>(32, 1.0f));
  for (const char* const name : {"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"}) {
    writer.Tensor(std::string(name) + ".weight", {32}, /*type=*/0, norm);
  }
  for (const char* const part : {"attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
    AddMatrix(writer, std::string("blk.0.") + part + ".weight", 32);
  }
  for (const char* const part : {"attn_k", "attn_v"}) {
    AddMatrix(writer, std::string("blk.0.") + part + ".weight", 16);
  }
  Seeds(root, "gguf").Write("llama", writer.Finish());
}

void WriteTexts(const fs::path& root) {
  const Seeds keeper(root, "keeper");
  using namespace std::string_literals;
  keeper.Write("store", "FDSTORE=1\nFDPOLL=0\nFDNAME=sti.s12\0FDSTORE=1\nFDNAME=sti.r12.1"s);
  keeper.Write("replace",
               "FDSTORE=1\nFDNAME=sti.r1.2\0FDSTOREREMOVE=1\nFDNAME=sti.r1.1\0BARRIER=1"s);
  keeper.Write("ready", "READY=1\nSTATUS=serving\nFDNAME=a:b\nFDSTORE=1");
  const Seeds text(root, "text");
  text.Write("claim", R"({"id": 7, "claim": "Water is wet.", "label": "NOT ENOUGH INFO"})");
  text.Write("verdict", R"({"id":7,"claim":"x","label":"REFUTES","verdict":"SUPPORTS",)"
                        R"("scores":{"SUPPORTS":-1.5,"REFUTES":-2.0,"NOT ENOUGH INFO":-3.25}})");
  text.Write("chatml",
             "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
             "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
             "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
  Seeds(root, "yaml").Write("files", "name: f\nsource:\n  files:\n    - {name: a, path: b}\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_seeds FOLDER\n");
    return 64;
  }
  const fs::path root = argv[1];
  WriteFrames(root);
  WriteManifests(root);
  WriteRecords(root);
  WriteModels(root);
  WriteTexts(root);
  return 0;
}
