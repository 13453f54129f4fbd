// A model in a GGUF file: its metadata as the canonical config.json, its tensors under canonical
// names.
//
// Thread: any thread.
// Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md "Standardized key-value pairs"
// and "Standardized tensor names".

#ifndef STICKY_WEIGHTS_GGUF_MODEL_H_
#define STICKY_WEIGHTS_GGUF_MODEL_H_

#include <cstdint>
#include <span>

#include "base/result.h"
#include "weights/byte_source.h"
#include "weights/stored_model.h"

namespace sticky::weights {

// Reads the file of that index. A file whose metadata describe no model (no key of its
// architecture's) is taken as plain tensors under its own names, with a note.
// Errors: kCorrupt naming the key or tensor, expected and found; kInvalidArgument for an
//   architecture, a rotary scaling or a tensor that is not supported, naming it and the choices.
Result<StoredModel> ReadGgufModel(std::span<const SourceFile> files, std::uint32_t file);

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_GGUF_MODEL_H_
