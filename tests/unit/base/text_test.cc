// Untrusted text never reaches a terminal raw; byte counts read as they are written.

#include "base/text.h"

#include <array>

#include <gtest/gtest.h>

#include "base/digest.h"
#include "tests/testing/matchers.h"

namespace sticky {
namespace {

using sticky::testing::FailsWith;

TEST(Escape, ControlCharactersAndBadUtf8AreWrittenOut) {
  EXPECT_EQ(Escape("a\x1b[31m\n\xff'\\"), "a\\x1b[31m\\n\\xff\\'\\\\");
  EXPECT_EQ(Escape("caf\xc3\xa9"), "caf\xc3\xa9");
  EXPECT_EQ(Escape("\xc2\x9b"), "\\xc2\\x9b");  // a C1 control, obeyed by some terminals
}

TEST(Escape, LongTextIsCut) { EXPECT_LE(Escape(std::string(100'000, 'x')).size(), 520u); }

TEST(ParseByteCount, ReadsBinaryUnitsInAnyCase) {
  EXPECT_EQ(ParseByteCount("4GiB").value(), 4ull << 30);
  EXPECT_EQ(ParseByteCount("512 mib").value(), 512ull << 20);
  EXPECT_EQ(ParseByteCount("1.5k").value(), 1536u);
  EXPECT_EQ(ParseByteCount("17").value(), 17u);
}

TEST(ParseByteCount, RefusesWhatIsNotACount) {
  for (const char* text : {"", "-1", "4 parsecs", "GiB", "1e99", "nan", "4GiBs"}) {
    SCOPED_TRACE(text);
    EXPECT_THAT(ParseByteCount(text), FailsWith(Code::kInvalidArgument));
  }
}

TEST(NearestWord, SuggestsATypoAndNothingElse) {
  static constexpr std::array<std::string_view, 3> kKeys = {"source", "dtype", "lifetime"};
  EXPECT_EQ(NearestWord("sorce", kKeys.data(), kKeys.size()), "source");
  EXPECT_EQ(NearestWord("colour", kKeys.data(), kKeys.size()), "");
}

TEST(Digest, HexRoundTrips) {
  const std::string hex = "00112233445566778899aabbccddeeff";
  EXPECT_EQ(ToHex(DigestFromHex(hex).value()), hex);
  EXPECT_THAT(DigestFromHex("00"), FailsWith(Code::kInvalidArgument));
}

}  // namespace
}  // namespace sticky
