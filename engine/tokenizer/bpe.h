// Byte-pair encoding of one piece.
//
// Thread: any thread.
// Source: Sennrich et al. 2016, section 3.2: always the pair with the best rank, leftmost first.

#ifndef STICKY_ENGINE_TOKENIZER_BPE_H_
#define STICKY_ENGINE_TOKENIZER_BPE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "weights/vocabulary.h"

namespace sticky::engine {

// Appends the tokens of `piece` to `ids`. Cost: n log n for n bytes.
// Errors: kInvalidArgument for a byte that the vocabulary has no token for.
Status EncodePiece(const weights::Vocabulary& vocabulary, std::string_view piece,
                   std::vector<std::int32_t>& ids);

}  // namespace sticky::engine

#endif  // STICKY_ENGINE_TOKENIZER_BPE_H_
