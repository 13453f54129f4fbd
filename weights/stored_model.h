// StoredModel: a model as its files hold it, under canonical names: what each format's reader
// makes, and the load plan is made from.
//
// Thread: any thread.

#ifndef STICKY_WEIGHTS_STORED_MODEL_H_
#define STICKY_WEIGHTS_STORED_MODEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "weights/load_plan.h"

namespace sticky::weights {

struct StoredTensor {
  std::string name;                 // canonical: Hugging Face's
  std::vector<std::int64_t> shape;  // outermost first
  std::uint32_t file = 0;           // index into the files of the model
  std::uint64_t file_offset = 0;    // bytes from the start of that file
  std::uint64_t stored_bytes = 0;
  Encoding encoding = Encoding::kPlain;
  std::optional<Dtype> dtype;  // when kPlain; none: not supported, refused when it is needed
  std::string dtype_trouble;   // why not: "unknown dtype F7"
  std::uint32_t interleaved_head_count = 0;
};

struct StoredModel {
  std::vector<StoredTensor> tensors;  // in order of file and offset
  std::string config_json;            // empty: not a language model, tensors are taken as they are
  std::string generation_config_json;
  std::string chat_template;
  std::vector<std::uint8_t> vocabulary;  // compiled; empty: none
  std::vector<std::string> notes;
};

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_STORED_MODEL_H_
