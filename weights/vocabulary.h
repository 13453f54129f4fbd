// Vocabulary: a byte-level BPE tokenizer compiled into one flat table that is used in place, so
// that an invocation pays nothing for it. The loader compiles it (from tokenizer.json or from GGUF
// metadata) and stores it as the asset `vocabulary`; engine/tokenizer encodes text with it.
//
// Thread: any thread.

#ifndef STICKY_WEIGHTS_VOCABULARY_H_
#define STICKY_WEIGHTS_VOCABULARY_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace sticky::weights {

// What a tokenizer is, before it is compiled.
struct VocabularySource {
  struct Token {
    std::string bytes;     // what it stands for, with the byte-level alphabet already mapped back
    bool special = false;  // markup (<|im_end|>): found in text only when that is asked for
    bool added = false;    // matched as a whole before BPE
  };
  struct Merge {
    std::uint32_t left, right, result;  // token ids; rank is the position in the list
  };
  // One step of the pre-tokenizer, applied in order to the pieces of the step before: matches and
  // the gaps between them both are pieces.
  struct Split {
    std::string pattern;  // PCRE2 syntax, as SplitPattern writes it
  };
  std::vector<Token> tokens;  // by id
  std::vector<Merge> merges;
  std::vector<Split> splits;
  bool normalize_nfc = false;
  bool ignore_merges = false;  // a piece that is a token as it stands is not split further
  bool add_prefix_space = false;
  bool add_bos = false;
  bool add_eos = false;
  std::optional<std::uint32_t> bos, eos;
};

// Errors: kInvalidArgument for a tokenizer that is not byte-level BPE or has a part that is not
//   known, naming it; kCorrupt for text that does not parse or ids out of range.
Result<VocabularySource> ParseTokenizerJson(std::string_view tokenizer_json,
                                            std::string_view tokenizer_config_json);

// Requires ids within the tokens. The table's format is described in vocabulary.cc.
std::vector<std::uint8_t> CompileVocabulary(const VocabularySource& source);

// Reads a compiled vocabulary in place; does not own the bytes, which must outlive it and be
// aligned to 8.
class Vocabulary {
 public:
  // Checks everything that the accessors rely on. Cost: one pass over the table's offsets.
  // Errors: kCorrupt.
  static Result<Vocabulary> Open(std::span<const std::uint8_t> bytes);

  std::uint32_t token_count() const;
  std::string_view token_bytes(std::uint32_t id) const;
  bool is_special(std::uint32_t id) const;
  bool is_added(std::uint32_t id) const;

  // The token whose bytes are exactly `bytes` (added tokens excluded). Constant time.
  std::optional<std::uint32_t> Find(std::string_view bytes) const;

  struct Merge {
    std::uint32_t rank, result;
  };
  // The merge of two neighbouring tokens, if there is one. Constant time.
  std::optional<Merge> FindMerge(std::uint32_t left, std::uint32_t right) const;

  // Added tokens by id, to be matched whole before BPE.
  std::span<const std::uint32_t> added_tokens() const;

  std::uint32_t split_count() const;
  std::string_view split_pattern(std::uint32_t index) const;

  bool normalize_nfc() const;
  bool ignore_merges() const;
  bool add_prefix_space() const;
  bool add_bos() const;
  bool add_eos() const;
  std::optional<std::uint32_t> bos() const;
  std::optional<std::uint32_t> eos() const;

 private:
  friend std::vector<std::uint8_t> CompileVocabulary(const VocabularySource& source);
  explicit Vocabulary(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  struct Header;
  const Header& header() const;
  template <typename T>
  const T* Section(std::uint64_t offset) const;

  std::span<const std::uint8_t> bytes_;
};

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_VOCABULARY_H_
