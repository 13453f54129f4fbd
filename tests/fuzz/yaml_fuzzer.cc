// Templates and node configurations: what is taken is within the limits that are promised, and a
// template's canonical text depends on the template alone.

#include "config/node_config.h"
#include "config/template.h"
#include "flatbuffers/wire_codec.h"
#include "tests/fuzz/fuzzer.h"

using namespace sticky;  // NOLINT(google-build-using-namespace): a program of one function

namespace {

constexpr auto kPromised = {Code::kInvalidArgument, Code::kCorrupt, Code::kUnavailable};

// What a frame carries of a policy is all of it: a daemon would refuse another one as damaged.
void CheckPolicy(const Policy& policy) {
  const wire::Message message{1, wire::BuildRequest{.state = "s", .policy = policy}};
  const Result<wire::Message> got = wire::Decode(wire::Encode(message));
  FUZZ_CHECK(got.ok());
  FUZZ_CHECK(got.value() == message);
}

void CheckTemplate(std::string_view text) {
  const auto made = config::ParseTemplate(text, "/models", "t.yaml");
  if (!made.ok()) return fuzz::CheckRefusal(made.error(), kPromised);
  const config::Template& value = made.value();
  FUZZ_CHECK(wire::CheckStateName(value.name).ok());
  CheckPolicy(value.policy);
  const bool is_path = value.source.kind == SourceKind::kPath;
  FUZZ_CHECK(is_path != value.source.candidates.empty());
  FUZZ_CHECK(is_path == value.source.files.empty());
  for (const std::string& path : value.source.candidates) FUZZ_CHECK(path.starts_with('/'));
  for (const NamedPath& file : value.source.files) {
    FUZZ_CHECK(file.path.starts_with('/'));
    FUZZ_CHECK(!file.name.empty() && file.name.find('/') == std::string::npos);
    FUZZ_CHECK(file.name.size() <= kSourceFileNameBytesMax);
  }
  const auto again = config::ParseTemplate(text, "/models", "other.yaml");
  FUZZ_CHECK(again.ok() && again.value().canonical == value.canonical);
}

void CheckNodeConfig(std::string_view text) {
  const auto made = config::ParseNodeConfig(text, "c.yaml");
  if (!made.ok()) return fuzz::CheckRefusal(made.error(), kPromised);
  FUZZ_CHECK(made.value().template_folder.starts_with('/'));
  FUZZ_CHECK(made.value().memory_host_bytes.value_or(config::kMemoryBytesMin) >=
             config::kMemoryBytesMin);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  CheckTemplate(fuzz::Text(bytes, size));
  CheckNodeConfig(fuzz::Text(bytes, size));
  return 0;
}
