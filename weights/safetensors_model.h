// A model in Hugging Face's layout: safetensors files beside config.json and tokenizer.json.
//
// Thread: any thread.

#ifndef STICKY_WEIGHTS_SAFETENSORS_MODEL_H_
#define STICKY_WEIGHTS_SAFETENSORS_MODEL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "weights/byte_source.h"
#include "weights/stored_model.h"

namespace sticky::weights {

// `weight_files`: indices into `files` of the safetensors files. Every file's header is checked,
// and, when there is an index, that it and the shards name the same tensors.
// Errors: kCorrupt, kInvalidArgument as ReadSafetensors and ParseShardIndex; those of several
//   shards are all in the message.
Result<StoredModel> ReadSafetensorsModel(std::span<const SourceFile> files,
                                         const std::vector<std::uint32_t>& weight_files);

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_SAFETENSORS_MODEL_H_
