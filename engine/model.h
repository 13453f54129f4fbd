// Model: inference of a language model on weights that it does not own and never copies.
//
// The forward pass is the same for every device; the numbers are crunched by an Ops (engine/ops.h).
//
// Thread: one thread at a time.

#ifndef STICKY_ENGINE_MODEL_H_
#define STICKY_ENGINE_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "engine/ops.h"
#include "weights/model_config.h"

namespace sticky::engine {

// A tensor as a state holds it. Not owned.
struct TensorView {
  const void* data = nullptr;  // row-major, aligned to 256 bytes
  Dtype dtype = Dtype::kF32;
  std::span<const std::int64_t> shape;
};

// Where weights come from: an attached state, or a private load. Both use Hugging Face names.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual std::optional<TensorView> Find(std::string_view name) const = 0;
  // Every tensor name that there is, so that Open can prove that it used them all.
  virtual std::vector<std::string_view> Names() const = 0;
};

// One sequence's place in the KV cache.
struct SequenceId {
  std::uint32_t value;
  bool operator==(const SequenceId&) const = default;
};

// New tokens of one sequence within a ragged batch.
struct Chunk {
  SequenceId sequence;
  std::span<const std::int32_t> tokens;  // at least one; appended to what the sequence has
  // Logits are wanted for tokens [logits_from, tokens.size()): 0 all, size()-1 the last, size()
  // none.
  std::size_t logits_from = 0;
};

// Chunks of at most this many tokens are computed another way, which is best for few rows: it may
// differ in the last bits.
inline constexpr std::size_t kShortChunkMax = 8;

class Model {
 public:
  // Checks that every tensor the configuration needs is there with the right shape and dtype, and
  // that no tensor is left over. `weights` and `ops` must outlive the model.
  // Errors: kCorrupt naming the tensor, expected and found.
  static Result<Model> Open(const weights::ModelConfig& config, const WeightSource& weights,
                            Ops& ops);

  // A new, empty sequence of at most `capacity` tokens, 1 to config.context_length.
  // Errors: kInvalidArgument with both numbers past the context; kOutOfMemory.
  Result<SequenceId> AddSequence(int capacity);
  // A new sequence that starts with the first `length` tokens of `from`; a negative length means
  // all of it. They are not copied: their part of the cache lives as long as either sequence.
  // Errors: kInvalidArgument past what `from` has, or past `capacity` (of all its tokens).
  Result<SequenceId> ForkSequence(SequenceId from, int length, int capacity);
  void DropSequence(SequenceId sequence);
  int Length(SequenceId sequence) const;
  std::uint64_t kv_cache_bytes() const;  // of all sequences

  // Receives the logits of one token: float32 [vocab_size], valid during the call only. An error
  // ends the Forward that called.
  using OnLogits =
      std::function<Status(std::size_t chunk, std::size_t token, std::span<const float> logits)>;

  // Runs all chunks as one batch and hands out the logits that are wanted: every token once, those
  // of one chunk in order. A row is the same whatever else is in the batch, and
  // however a sequence is cut into chunks longer than kShortChunkMax. Memory beside the KV
  // cache is bounded, however many chunks and tokens there are.
  // Errors: kInvalidArgument for an unknown sequence or token id, a sequence that stands twice, or
  //   past a sequence's capacity, with both numbers; kCorrupt when a logit is not finite, naming
  //   the token; what `on_logits` returned. No sequence has grown then.
  Status Forward(std::span<const Chunk> chunks, const OnLogits& on_logits);

  const weights::ModelConfig& config() const;

  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

 private:
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sticky::engine

#endif  // STICKY_ENGINE_MODEL_H_
