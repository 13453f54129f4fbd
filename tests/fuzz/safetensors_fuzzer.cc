// A safetensors file: the tensors that its header names cover the file's data exactly, and a load
// of it is planned within the file and the arena.

#include "tests/fuzz/plan_checks.h"
#include "weights/safetensors.h"

using namespace sticky;  // NOLINT(google-build-using-namespace): a program of one function

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const fuzz::InputSource source(bytes, size);
  const weights::SourceFile file = source.File("model.safetensors");
  const auto tensors = weights::ReadSafetensors(file);
  if (tensors.ok()) {
    std::uint64_t header = 0;  // the length of the JSON
    std::memcpy(&header, bytes, sizeof header);
    std::uint64_t end = sizeof header + header;
    for (const weights::SafetensorsTensor& tensor : tensors.value()) {
      FUZZ_CHECK(tensor.file_offset == end);
      end += tensor.size_bytes;
    }
    FUZZ_CHECK(end == size);
  } else {
    fuzz::CheckRefusal(tensors.error(), {Code::kCorrupt, Code::kInvalidArgument});
  }
  for (const DtypeChoice dtype : {DtypeChoice::kAuto, DtypeChoice::kBf16}) {
    fuzz::CheckPlan(std::span(&file, 1), {.dtype = dtype});
  }
  return 0;
}
