// Frames from a peer: what Decode takes, Encode writes so that it decodes to the same.

#include "flatbuffers/wire_codec.h"
#include "tests/fuzz/fuzzer.h"

using namespace sticky;  // NOLINT(google-build-using-namespace): a program of one function

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::vector<std::uint8_t> frame = fuzz::Copy(bytes, size);
  std::uint32_t request_id = 0;
  const Result<wire::Message> message = wire::Decode(frame, &request_id);
  if (!message.ok()) {
    fuzz::CheckRefusal(message.error(), {Code::kCorrupt, Code::kUnavailable});
    return 0;
  }
  FUZZ_CHECK(message.value().request_id == request_id);

  const std::vector<std::uint8_t> encoded = wire::Encode(message.value());
  FUZZ_CHECK(encoded.size() <= 2 * wire::kBlobBytesMax);  // however small the frame was
  if (encoded.size() > wire::kBlobBytesMax) return 0;
  const Result<wire::Message> again = wire::Decode(encoded);

  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(again.value() == message.value());
  return 0;
}
