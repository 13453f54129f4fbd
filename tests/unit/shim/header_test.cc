// The C++ header over the C ABI: owners that move, values or errors, typed elements.

#include <gmock/gmock.h>
#include <stickyinvoc/stickyinvoc.hpp>

#include "tests/unit/shim/shim_fixture.h"

namespace sticky::shim {
namespace {

using client::AttachOptions;
using sticky::testing::FakeDaemon;
using sticky::testing::SampleState;
using ::testing::HasSubstr;

class HeaderTest : public ShimTest {
 protected:
  AttachOptions Here() const { return {.socket_path = daemon_.path(), .digest = {}}; }
  client::State Attached() { return client::State::Attach("sample", Here()).value(); }

  SampleState sample_;
  FakeDaemon daemon_{FakeDaemon::Honest(sample_)};
};

TEST_F(HeaderTest, TensorsAreReadAsTheirElements) {
  const client::State state = Attached();

  const client::Tensor tensor = state.Find("dtype.u8").value();
  const std::span<const std::uint8_t> elements = tensor.As<std::uint8_t>().value();

  EXPECT_EQ(tensor.name(), "dtype.u8");
  EXPECT_EQ(tensor.shape().size(), 2u);
  ASSERT_EQ(elements.size(), 6u);
  EXPECT_EQ(elements[5], SampleState::ByteAt(256 + 5));
  EXPECT_EQ(tensor.bytes().size(), 6u);
  EXPECT_EQ(state.Find("dtype.f64").value().As<double>().value().size(), 6u);
}

TEST_F(HeaderTest, ElementsOfAnotherTypeAreRefused) {
  const client::State state = Attached();

  const auto wrong = state.Find("dtype.u8").value().As<float>();

  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, STI_INVALID_ARGUMENT);
  EXPECT_THAT(wrong.error().message, HasSubstr("u8"));
}

TEST_F(HeaderTest, EverythingIsListed) {
  const client::State state = Attached();

  EXPECT_EQ(state.Tensors().size(), sample_.manifest().tensors.size());
  EXPECT_EQ(state.AssetNames().size(), 2u);
  EXPECT_EQ(state.Asset("config.json").value().size(), 11u);
  EXPECT_EQ(state.Info().value().epoch, 3u);
}

TEST_F(HeaderTest, ErrorsAreValues) {
  const client::State state = Attached();
  const auto missing = state.Find("none");
  const auto refused = client::State::Attach("no/name", Here());

  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, STI_NOT_FOUND);
  EXPECT_EQ(state.Asset("none").error().code, STI_NOT_FOUND);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, STI_INVALID_ARGUMENT);
}

TEST_F(HeaderTest, ErrorsAreExceptionsForThoseWhoAsk) {
  EXPECT_EQ(Attached().Find("tied").OrThrow().size_bytes(), 48u);
  try {
    Attached().Find("none").OrThrow();
    FAIL() << "nothing was thrown";
  } catch (const client::Exception& exception) {
    EXPECT_EQ(exception.error().code, STI_NOT_FOUND);
    EXPECT_THAT(exception.what(), HasSubstr("none"));
  }
}

TEST_F(HeaderTest, TheLeaseMovesWithTheState) {
  {
    client::State first = Attached();
    client::State second = std::move(first);
    EXPECT_TRUE(second.Find("tied").ok());
    first = std::move(second);
    EXPECT_TRUE(first.Find("tied").ok());
    EXPECT_EQ(daemon_.closed_count(), 0);
  }
  EXPECT_TRUE(daemon_.WaitForClosed(1));
}

TEST_F(HeaderTest, APinnedDigestAndTheEnvironmentWork) {
  ::setenv("STICKYINVOC_SOCKET", daemon_.path().c_str(), 1);
  ::setenv("STICKYINVOC_STATE", "sample", 1);
  AttachOptions pinned;
  pinned.digest = sample_.manifest().content_digest->bytes;
  AttachOptions other;
  other.digest.emplace().fill(9);

  EXPECT_TRUE(client::State::Attach().ok());
  EXPECT_TRUE(client::State::Attach("", pinned).ok());
  EXPECT_EQ(client::State::Attach("", other).error().code, STI_CORRUPT);
}

TEST(Version, TheHeadersAndTheLibrarysAreOne) {
  const std::string header = std::to_string(STI_VERSION_MAJOR) + "." +
                             std::to_string(STI_VERSION_MINOR) + "." +
                             std::to_string(STI_VERSION_PATCH);
  EXPECT_EQ(header, sti_version());
}

}  // namespace
}  // namespace sticky::shim
