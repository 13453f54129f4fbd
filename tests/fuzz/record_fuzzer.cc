// Records that a keeper kept, perhaps of another version's daemon: what decodes is written again
// so that it decodes to the same, within the record's limit.

#include "flatbuffers/wire_record.h"
#include "tests/fuzz/fuzzer.h"

using namespace sticky;  // NOLINT(google-build-using-namespace): a program of one function

namespace {

template <typename Record>
void CheckRecord(std::span<const std::uint8_t> bytes,
                 Result<Record> (*decode)(std::span<const std::uint8_t>)) {
  const Result<Record> record = decode(bytes);
  if (!record.ok()) {
    return fuzz::CheckRefusal(record.error(), {Code::kCorrupt, Code::kUnavailable});
  }
  const std::vector<std::uint8_t> written = wire::EncodeRecord(record.value());
  FUZZ_CHECK(written.size() <= wire::kRecordBytesMax);
  const Result<Record> again = decode(written);
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(again.value() == record.value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::vector<std::uint8_t> copy = fuzz::Copy(bytes, size);
  CheckRecord<wire::StateRecord>(copy, wire::DecodeStateRecord);
  CheckRecord<wire::NodeRecord>(copy, wire::DecodeNodeRecord);
  return 0;
}
