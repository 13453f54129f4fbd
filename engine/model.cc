#include "engine/model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "engine/llama_weights.h"
#include "engine/rope.h"

namespace sticky::engine {
namespace {

// Rows that are in work at once: as many as this much memory for activations allows, within bounds
// that fill the CPU and that every model gets.
constexpr std::size_t kActivationBytes = 16u << 20;
constexpr int kBatchRowsMin = 2 * kRowBlock;
constexpr int kBatchRowsMax = 16 * kRowBlock;
// Logits of this many tokens are computed at once.
constexpr int kLogitRows = 16;
constexpr std::size_t kSequencesMax = 65'536;

std::size_t Size(int count) { return static_cast<std::size_t>(count); }

// Device memory of an Ops, freed with this.
class Memory {
 public:
  static Result<Memory> Allocate(Ops& ops, std::size_t count) {
    STICKY_ASSIGN(float* const data, ops.Allocate(count));
    return Memory(ops, data);
  }
  Memory() = default;
  Memory(Memory&& other) noexcept : ops_(other.ops_), data_(std::exchange(other.data_, nullptr)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(ops_, other.ops_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~Memory() {
    if (data_ != nullptr) ops_->Free(data_);
  }
  float* get() const { return data_; }

 private:
  Memory(Ops& ops, float* data) : ops_(&ops), data_(data) {}
  Ops* ops_ = nullptr;
  float* data_ = nullptr;
};

// Keys and values of some positions, in memory that counts in `total_bytes` while this lives.
class KvCache {
 public:
  KvCache(Memory memory, int capacity, std::size_t count, std::uint64_t& total_bytes)
      : memory_(std::move(memory)),
        capacity_(capacity),
        size_bytes_(count * sizeof(float)),
        total_bytes_(total_bytes) {
    total_bytes_ += size_bytes_;
  }
  KvCache(const KvCache&) = delete;
  ~KvCache() { total_bytes_ -= size_bytes_; }

  int capacity() const { return capacity_; }  // positions
  // [capacity, kv_dim]
  float* Part(int layer, bool of_values, int kv_dim) const {
    const std::size_t part = Size(capacity_) * Size(kv_dim);
    return memory_.get() + (2 * Size(layer) + (of_values ? 1 : 0)) * part;
  }

 private:
  const Memory memory_;  // [layer_count][keys, values][capacity, kv_dim]
  const int capacity_;
  const std::uint64_t size_bytes_;
  std::uint64_t& total_bytes_;
};

// The first `count` positions of a cache that another sequence fills, or has filled.
struct SharedPart {
  std::shared_ptr<const KvCache> cache;
  int count = 0;
};

struct Sequence {
  std::vector<SharedPart> before;  // of the sequences that it was forked from; none is empty
  int before_length = 0;           // of all those
  std::shared_ptr<const KvCache> own;
  int length = 0;
  int capacity() const { return before_length + own->capacity(); }
};

// A run of one chunk's tokens within a batch.
struct Piece {
  std::size_t chunk = 0;
  int token_begin = 0;
  int token_count = 0;
  RowPath path = RowPath::kBlocked;
  int row_begin = 0;
};

// What is computed together: the rows of blocked pieces first, padded to whole blocks, then the
// others.
struct Batch {
  std::vector<Piece> pieces;
  int blocked_rows = 0;
  int row_count = 0;
};

int Padded(int rows) { return (rows + kRowBlock - 1) / kRowBlock * kRowBlock; }

void LayOut(Batch& batch) {
  batch.row_count = 0;
  for (Piece& piece : batch.pieces) {
    if (piece.path != RowPath::kBlocked) continue;
    piece.row_begin = batch.row_count;
    batch.row_count += piece.token_count;
  }
  batch.row_count = batch.blocked_rows = Padded(batch.row_count);
  for (Piece& piece : batch.pieces) {
    if (piece.path != RowPath::kSingle) continue;
    piece.row_begin = batch.row_count;
    batch.row_count += piece.token_count;
  }
}

// Cuts the chunks into batches of at most `rows_max` rows. Where a chunk is cut does not change
// its results: a row's path depends on its whole chunk, and all before it is in the cache.
std::vector<Batch> CutIntoBatches(std::span<const Chunk> chunks, int rows_max) {
  std::vector<Batch> batches;
  int room = 0;
  const auto add = [&](Piece piece, int tokens_left) {
    if (room == 0) {
      batches.emplace_back();
      room = rows_max;
    }
    piece.token_count = std::min(room, tokens_left);
    room -= piece.token_count;
    batches.back().pieces.push_back(piece);
    return piece.token_count;
  };
  for (std::size_t index = 0; index < chunks.size(); ++index) {
    const int token_count = static_cast<int>(chunks[index].tokens.size());
    const RowPath path =
        chunks[index].tokens.size() <= kShortChunkMax ? RowPath::kSingle : RowPath::kBlocked;
    for (int done = 0; done < token_count;) {
      done += add({.chunk = index, .token_begin = done, .path = path}, token_count - done);
    }
  }
  for (Batch& batch : batches) LayOut(batch);
  return batches;
}

// A token whose logits are wanted, and where the batch has it.
struct WantedLogits {
  std::size_t chunk = 0;
  std::size_t token = 0;
  int row = 0;
};

std::vector<WantedLogits> WantedOf(const Batch& batch, std::span<const Chunk> chunks) {
  std::vector<WantedLogits> wanted;
  for (const Piece& piece : batch.pieces) {
    for (int i = 0; i < piece.token_count; ++i) {
      const std::size_t token = Size(piece.token_begin + i);
      if (token < chunks[piece.chunk].logits_from) continue;
      wanted.push_back({piece.chunk, token, piece.row_begin + i});
    }
  }
  return wanted;
}

}  // namespace

struct Model::Impl {
  weights::ModelConfig config;
  Ops* ops = nullptr;
  LlamaWeights weights;
  std::vector<float> inverse_frequencies;
  std::uint64_t kv_cache_bytes = 0;  // before the sequences, which count in it until they end
  std::map<std::uint32_t, Sequence> sequences;
  std::uint32_t next_sequence = 1;

  int batch_rows = kBatchRowsMax;
  // Activations, [batch_rows and some padding, ...].
  Memory residual, normed, queries, keys, values, attended, gate, up, logit_rows, logits;
  std::vector<float> host_logits;

  int query_dim() const { return config.head_count * config.head_dim; }
  int kv_dim() const { return config.kv_head_count * config.head_dim; }

  Status AllocateActivations();
  Result<Sequence*> Find(SequenceId id);
  Status Check(std::span<const Chunk> chunks);
  Status RunBatch(const Batch& batch, std::span<const Chunk> chunks, const OnLogits& on_logits);
  Status RunLayer(int index, const Batch& batch, std::span<const Chunk> chunks,
                  std::span<const std::int32_t> positions);
  Status Attend(int index, const Batch& batch, std::span<const Chunk> chunks);
  Status Multiply(const Batch& batch, const float* x, const Linear& linear, float* y,
                  Inputs inputs);
  Status HandOut(const Batch& batch, std::span<const Chunk> chunks, const OnLogits& on_logits);
  Status HandOutRows(std::span<const WantedLogits> tokens, const OnLogits& on_logits);
  Result<SequenceId> Keep(Sequence sequence, int own_capacity);
  // What a sequence has of keys and values, and where its next go.
  std::vector<KvSegment> SegmentsOf(const Sequence& sequence, int layer) const;
};

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

const weights::ModelConfig& Model::config() const { return impl_->config; }
std::uint64_t Model::kv_cache_bytes() const { return impl_->kv_cache_bytes; }

Result<Model> Model::Open(const weights::ModelConfig& config, const WeightSource& weights,
                          Ops& ops) {
  auto impl = std::make_unique<Impl>();
  impl->config = config;
  impl->ops = &ops;
  STICKY_ASSIGN(impl->weights, BindLlamaWeights(config, weights));
  impl->inverse_frequencies = InverseFrequencies(config.rope, config.head_dim);
  STICKY_TRY(impl->AllocateActivations());
  return Model(std::move(impl));
}

Status Model::Impl::AllocateActivations() {
  const std::size_t row_bytes = sizeof(float) * 2 *
                                (Size(config.hidden_size) + Size(query_dim()) + Size(kv_dim()) +
                                 Size(config.intermediate_size));
  const auto blocks = static_cast<int>(std::min(kActivationBytes / row_bytes, Size(kBatchRowsMax)) /
                                       Size(kRowBlock));
  batch_rows = std::max(kBatchRowsMin, blocks * kRowBlock);
  // Blocked rows are padded once a batch; single rows come on top of that.
  const std::size_t rows = Size(batch_rows + kRowBlock);
  const std::pair<Memory*, std::size_t> wanted[] = {
      {&residual, rows * Size(config.hidden_size)},
      {&normed, rows * Size(config.hidden_size)},
      {&queries, rows * Size(query_dim())},
      {&keys, rows * Size(kv_dim())},
      {&values, rows * Size(kv_dim())},
      {&attended, rows * Size(query_dim())},
      {&gate, rows * Size(config.intermediate_size)},
      {&up, rows * Size(config.intermediate_size)},
      {&logit_rows, Size(kLogitRows) * Size(config.hidden_size)},
      {&logits, Size(kLogitRows) * Size(config.vocab_size)}};
  for (const auto& [memory, count] : wanted) {
    STICKY_ASSIGN(*memory, Memory::Allocate(*ops, count));
  }
  host_logits.resize(Size(config.vocab_size));
  return Ok{};
}

// --- sequences ----------------------------------------------------------------------------------

Result<SequenceId> Model::AddSequence(int capacity) {
  Impl& impl = *impl_;
  if (capacity < 1 || capacity > impl.config.context_length) {
    return Error{Code::kInvalidArgument,
                 Format("start a sequence of %d tokens: the model's context has %d", capacity,
                        impl.config.context_length)};
  }
  return impl.Keep(Sequence(), capacity);
}

Result<SequenceId> Model::Impl::Keep(Sequence sequence, int own_capacity) {
  if (sequences.size() >= kSequencesMax) {
    return Error{Code::kOutOfMemory,
                 Format("start a sequence: %zu exist, the limit", sequences.size())};
  }
  const std::size_t count = 2 * Size(config.layer_count) * Size(own_capacity) * Size(kv_dim());
  STICKY_ASSIGN(Memory memory, Memory::Allocate(*ops, count));
  sequence.own = std::make_shared<KvCache>(std::move(memory), own_capacity, count, kv_cache_bytes);
  const SequenceId id{next_sequence++};
  sequences.emplace(id.value, std::move(sequence));
  return id;
}

Result<SequenceId> Model::ForkSequence(SequenceId from, int length, int capacity) {
  STICKY_ASSIGN(const Sequence* const source, impl_->Find(from));
  const int shared = length < 0 ? source->length : length;
  if (shared > source->length || shared >= capacity) {
    return Error{Code::kInvalidArgument,
                 Format("fork %d tokens of a sequence that has %d into one of %d", shared,
                        source->length, capacity)};
  }
  Sequence made;
  made.length = made.before_length = shared;
  int left = shared;
  for (const SharedPart& part : source->before) {
    if (left == 0) break;
    made.before.push_back({part.cache, std::min(part.count, left)});
    left -= made.before.back().count;
  }
  if (left > 0) made.before.push_back({source->own, left});
  return impl_->Keep(std::move(made), capacity - shared);
}

void Model::DropSequence(SequenceId id) { impl_->sequences.erase(id.value); }

int Model::Length(SequenceId id) const {
  const auto found = impl_->sequences.find(id.value);
  return found == impl_->sequences.end() ? 0 : found->second.length;
}

Result<Sequence*> Model::Impl::Find(SequenceId id) {
  const auto found = sequences.find(id.value);
  if (found == sequences.end()) {
    return Error{Code::kInvalidArgument, Format("use sequence %u: there is none", id.value)};
  }
  return &found->second;
}

// --- forward ------------------------------------------------------------------------------------

Status Model::Impl::Check(std::span<const Chunk> chunks) {
  std::vector<std::uint32_t> seen;
  for (const Chunk& chunk : chunks) {
    STICKY_ASSIGN(const Sequence* const sequence, Find(chunk.sequence));
    if (chunk.tokens.empty()) {
      return Error{Code::kInvalidArgument,
                   Format("extend sequence %u by no tokens", chunk.sequence.value)};
    }
    const std::size_t length = Size(sequence->length) + chunk.tokens.size();
    if (length > Size(sequence->capacity())) {
      return Error{Code::kInvalidArgument,
                   Format("extend sequence %u to %zu tokens: it has room for %d",
                          chunk.sequence.value, length, sequence->capacity())};
    }
    for (const std::int32_t token : chunk.tokens) {
      if (token >= 0 && token < config.vocab_size) continue;
      return Error{Code::kInvalidArgument, Format("use token %d: the model has tokens 0 to %d",
                                                  token, config.vocab_size - 1)};
    }
    seen.push_back(chunk.sequence.value);
  }
  std::sort(seen.begin(), seen.end());
  if (std::adjacent_find(seen.begin(), seen.end()) != seen.end()) {
    return Error{Code::kInvalidArgument, "run a batch: a sequence stands in it twice"};
  }
  return Ok{};
}

Status Model::Forward(std::span<const Chunk> chunks, const OnLogits& on_logits) {
  STICKY_TRY(impl_->Check(chunks));
  for (const Batch& batch : CutIntoBatches(chunks, impl_->batch_rows)) {
    STICKY_TRY(impl_->RunBatch(batch, chunks, on_logits));
  }
  for (const Chunk& chunk : chunks) {
    impl_->sequences.at(chunk.sequence.value).length += static_cast<int>(chunk.tokens.size());
  }
  return Ok{};
}

Status Model::Impl::RunBatch(const Batch& batch, std::span<const Chunk> chunks,
                             const OnLogits& on_logits) {
  std::vector<std::int32_t> tokens(Size(batch.row_count), 0);
  std::vector<std::int32_t> positions(Size(batch.row_count), 0);
  for (const Piece& piece : batch.pieces) {
    const Chunk& chunk = chunks[piece.chunk];
    const int begin = sequences.at(chunk.sequence.value).length + piece.token_begin;
    for (int i = 0; i < piece.token_count; ++i) {
      tokens[Size(piece.row_begin + i)] = chunk.tokens[Size(piece.token_begin + i)];
      positions[Size(piece.row_begin + i)] = begin + i;
    }
  }
  STICKY_TRY(ops->Embed(weights.embedding, tokens, residual.get()));
  for (int index = 0; index < config.layer_count; ++index) {
    STICKY_TRY(RunLayer(index, batch, chunks, positions));
  }
  return HandOut(batch, chunks, on_logits);
}

Status Model::Impl::Multiply(const Batch& batch, const float* x, const Linear& linear, float* y,
                             Inputs inputs) {
  const int blocked = batch.blocked_rows;
  STICKY_TRY(ops->MatMul(x, blocked, linear.weight, linear.bias, y, RowPath::kBlocked, inputs));
  return ops->MatMul(x + Size(blocked) * Size(linear.weight.columns), batch.row_count - blocked,
                     linear.weight, linear.bias, y + Size(blocked) * Size(linear.weight.rows),
                     RowPath::kSingle, inputs);
}

Status Model::Impl::RunLayer(int index, const Batch& batch, std::span<const Chunk> chunks,
                             std::span<const std::int32_t> positions) {
  const LlamaLayer& layer = weights.layers[Size(index)];
  const int hidden = config.hidden_size;
  const auto epsilon = static_cast<float>(config.norm_epsilon);
  const std::size_t hidden_count = Size(batch.row_count) * Size(hidden);

  STICKY_TRY(ops->RmsNorm(residual.get(), layer.attention_norm, normed.get(), batch.row_count,
                          hidden, epsilon));
  STICKY_TRY(Multiply(batch, normed.get(), layer.query, queries.get(), Inputs::kAsTheyAre));
  STICKY_TRY(Multiply(batch, normed.get(), layer.key, keys.get(), Inputs::kAsTheyAre));
  STICKY_TRY(Multiply(batch, normed.get(), layer.value, values.get(), Inputs::kAsTheyAre));
  STICKY_TRY(
      ops->Rope(queries.get(), positions, inverse_frequencies, config.head_count, config.head_dim));
  STICKY_TRY(
      ops->Rope(keys.get(), positions, inverse_frequencies, config.kv_head_count, config.head_dim));
  STICKY_TRY(Attend(index, batch, chunks));
  STICKY_TRY(Multiply(batch, attended.get(), layer.output, normed.get(), Inputs::kAsTheyAre));
  STICKY_TRY(ops->Add(normed.get(), residual.get(), hidden_count));

  STICKY_TRY(
      ops->RmsNorm(residual.get(), layer.mlp_norm, normed.get(), batch.row_count, hidden, epsilon));
  STICKY_TRY(Multiply(batch, normed.get(), layer.gate, gate.get(), Inputs::kMayBeRounded));
  STICKY_TRY(Multiply(batch, normed.get(), layer.up, up.get(), Inputs::kMayBeRounded));
  STICKY_TRY(ops->SiluMultiply(up.get(), gate.get(),
                               Size(batch.row_count) * Size(config.intermediate_size)));
  STICKY_TRY(Multiply(batch, gate.get(), layer.down, normed.get(), Inputs::kMayBeRounded));
  return ops->Add(normed.get(), residual.get(), hidden_count);
}

std::vector<KvSegment> Model::Impl::SegmentsOf(const Sequence& sequence, int layer) const {
  std::vector<KvSegment> segments;
  const auto add = [&](const KvCache& cache, int count) {
    segments.push_back({cache.Part(layer, /*of_values=*/false, kv_dim()),
                        cache.Part(layer, /*of_values=*/true, kv_dim()), count});
  };
  for (const SharedPart& part : sequence.before) add(*part.cache, part.count);
  add(*sequence.own, sequence.own->capacity());
  return segments;
}

Status Model::Impl::Attend(int index, const Batch& batch, std::span<const Chunk> chunks) {
  std::vector<AttentionChunk> work;
  std::vector<std::vector<KvSegment>> segments;
  for (const Piece& piece : batch.pieces) {
    const Sequence& sequence = sequences.at(chunks[piece.chunk].sequence.value);
    const int begin = sequence.length + piece.token_begin;
    const std::size_t row_at = Size(piece.row_begin) * Size(kv_dim());
    const std::size_t own_at = Size(begin - sequence.before_length) * Size(kv_dim());
    const std::size_t count = Size(piece.token_count) * Size(kv_dim());
    float* const own_keys = sequence.own->Part(index, /*of_values=*/false, kv_dim());
    float* const own_values = sequence.own->Part(index, /*of_values=*/true, kv_dim());
    STICKY_TRY(ops->Copy(own_keys + own_at, keys.get() + row_at, count));
    STICKY_TRY(ops->Copy(own_values + own_at, values.get() + row_at, count));
    segments.push_back(SegmentsOf(sequence, index));
    work.push_back({piece.row_begin, piece.token_count, begin, segments.back()});
  }
  const AttentionShape shape{config.head_count, config.kv_head_count, config.head_dim,
                             1.0f / std::sqrt(static_cast<float>(config.head_dim))};
  return ops->Attention(queries.get(), work, shape, attended.get());
}

// --- logits -------------------------------------------------------------------------------------

Status Model::Impl::HandOut(const Batch& batch, std::span<const Chunk> chunks,
                            const OnLogits& on_logits) {
  const std::vector<WantedLogits> wanted = WantedOf(batch, chunks);
  for (std::span<const WantedLogits> left = wanted; !left.empty();) {
    const std::size_t count = std::min(left.size(), Size(kLogitRows));
    STICKY_TRY(HandOutRows(left.first(count), on_logits));
    left = left.subspan(count);
  }
  return Ok{};
}

// At most kLogitRows of them.
Status Model::Impl::HandOutRows(std::span<const WantedLogits> tokens, const OnLogits& on_logits) {
  const int row_count = static_cast<int>(tokens.size());
  const std::size_t hidden = Size(config.hidden_size);
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    STICKY_TRY(ops->Copy(logit_rows.get() + row * hidden,
                         residual.get() + Size(tokens[row].row) * hidden, hidden));
  }
  STICKY_TRY(ops->RmsNorm(logit_rows.get(), weights.final_norm, logit_rows.get(), row_count,
                          config.hidden_size, static_cast<float>(config.norm_epsilon)));
  STICKY_TRY(ops->MatMul(logit_rows.get(), row_count, weights.head, /*bias=*/nullptr, logits.get(),
                         RowPath::kSingle, Inputs::kAsTheyAre));
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    STICKY_TRY(ops->CopyToHost(host_logits, logits.get() + row * Size(config.vocab_size)));
    const auto bad = std::find_if(host_logits.begin(), host_logits.end(),
                                  [](float logit) { return !std::isfinite(logit); });
    if (bad != host_logits.end()) {
      return Error{Code::kCorrupt,
                   Format("compute logits: that of token id %td after token %zu of chunk %zu is "
                          "%g; the weights, or what they made of this text, are not finite",
                          bad - host_logits.begin(), tokens[row].token, tokens[row].chunk,
                          static_cast<double>(*bad))};
    }
    STICKY_TRY(on_logits(tokens[row].chunk, tokens[row].token, host_logits));
  }
  return Ok{};
}

}  // namespace sticky::engine
