// The SHA-256 of a file, against the published answers and across the pieces that it is read in.

#include "weights/sha256.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tests/testing/memory_model.h"

namespace sticky::weights {
namespace {

using ::sticky::testing::FailsWith;
using ::sticky::testing::MemoryModel;

std::string HexOf(const std::string& bytes) {
  MemoryModel model;
  model.Add("file", bytes);
  const Result<Sha256> sha256 = Sha256Of(model.files()[0]);
  return sha256.ok() ? ToHex(sha256.value()) : sha256.error().message;
}

// The second and third: FIPS 180-2, appendix B. The last: another implementation (hashlib).
TEST(Sha256Of, GivesThePublishedAnswers) {
  EXPECT_EQ(HexOf(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(HexOf("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HexOf(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(HexOf(std::string((3u << 20) + 5, 'a')),
            "aff2c7498aae939dfb2fb1dc6c0c83fa3708b069428e51338801af7f5dc2bf0f");
}

TEST(Sha256Of, AFileThatEndsEarlyIsAnError) {
  MemoryModel model;
  model.Add("file", std::string(100, 'x'));
  model.source(0).bytes().resize(99);

  EXPECT_THAT(Sha256Of(model.files()[0]), FailsWith(Code::kCorrupt));
}

}  // namespace
}  // namespace sticky::weights
