// A GGUF file: every value is found as one kind or refused, its tensors lie within the file, and a
// load of it is planned within the file and the arena.

#include "tests/fuzz/plan_checks.h"
#include "weights/gguf.h"
#include "weights/gguf_vocabulary.h"

using namespace sticky;  // NOLINT(google-build-using-namespace): a program of one function

namespace {

template <typename T>
void CheckFound(const Result<T>& found) {
  if (!found.ok()) fuzz::CheckRefusal(found.error(), {Code::kCorrupt});
}

void CheckValues(const weights::GgufFile& file) {
  for (const char* const key :
       {"general.architecture", "general.alignment", "llama.block_count", "llama.rope.freq_base",
        "tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type",
        "tokenizer.ggml.add_bos_token", "tokenizer.chat_template", "k"}) {
    CheckFound(file.FindUint(key));
    CheckFound(file.FindFloat(key));
    CheckFound(file.FindBool(key));
    CheckFound(file.FindString(key));
    CheckFound(file.FindStrings(key));
    CheckFound(file.FindInts(key));
  }
}

void CheckVocabulary(const weights::GgufFile& file) {
  const auto source = weights::ReadGgufVocabulary(file);
  if (!source.ok()) {
    return fuzz::CheckRefusal(source.error(),
                              {Code::kNotFound, Code::kInvalidArgument, Code::kCorrupt});
  }
  const std::vector<std::uint8_t> table = weights::CompileVocabulary(source.value());
  FUZZ_CHECK(weights::Vocabulary::Open(table).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const fuzz::InputSource source(bytes, size);
  const weights::SourceFile file = source.File("model.gguf");
  const auto gguf = weights::GgufFile::Read(file);
  if (gguf.ok()) {
    CheckValues(gguf.value());
    CheckVocabulary(gguf.value());
    std::uint64_t end = 0;
    for (const weights::GgufTensor& tensor : gguf.value().tensors()) {
      FUZZ_CHECK(tensor.file_offset >= end);
      end = tensor.file_offset + tensor.size_bytes;
      FUZZ_CHECK(end >= tensor.file_offset && end <= size);
    }
  } else {
    fuzz::CheckRefusal(gguf.error(), {Code::kCorrupt, Code::kInvalidArgument});
  }
  for (const DtypeChoice dtype : {DtypeChoice::kAuto, DtypeChoice::kBf16}) {
    fuzz::CheckPlan(std::span(&file, 1), {.dtype = dtype});
  }
  return 0;
}
