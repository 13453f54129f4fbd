// The tokenizer inside a GGUF file, as the source of a compiled vocabulary.
//
// Thread: any thread.
// Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md "Tokenizer"; the split patterns
// are those of the models' own tokenizer.json.

#ifndef STICKY_WEIGHTS_GGUF_VOCABULARY_H_
#define STICKY_WEIGHTS_GGUF_VOCABULARY_H_

#include "base/result.h"
#include "weights/gguf.h"
#include "weights/vocabulary.h"

namespace sticky::weights {

// Reads tokenizer.ggml.*.
// Errors: kNotFound when the file has no tokenizer; kInvalidArgument for a tokenizer model other
//   than gpt2 (byte-level BPE) or a pre-tokenizer that is not in the closed table, naming it and
//   the choices; kCorrupt for ids, merges or lengths that do not agree.
Result<VocabularySource> ReadGgufVocabulary(const GgufFile& file);

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_GGUF_VOCABULARY_H_
