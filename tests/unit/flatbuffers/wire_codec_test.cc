// What is encoded decodes to the same message; every truncation of it is kCorrupt; texts are cut
// and waits bounded rather than refused; a peer of another protocol is told both ranges.

#include "flatbuffers/wire_codec.h"

#include <set>

#include <gtest/gtest.h>

#include "flatbuffers/wire_protocol_generated.h"
#include "tests/testing/matchers.h"
#include "tests/unit/flatbuffers/sample_messages.h"

namespace sticky::wire {
namespace {

using sticky::testing::FailsWith;
using sticky::testing::IsOk;

TEST(WireCodec, TheSamplesHaveEveryKindOfMessage) {
  std::set<std::size_t> kinds;
  for (const Message& message : SampleMessages()) kinds.insert(message.body.index());

  EXPECT_EQ(kinds.size(), std::variant_size_v<Body>);
}

TEST(WireCodec, EveryMessageRoundTrips) {
  for (const Message& sent : SampleMessages()) {
    SCOPED_TRACE(sent.body.index());
    const Result<Message> got = Decode(Encode(sent));

    ASSERT_THAT(got, IsOk());
    EXPECT_EQ(got.value().request_id, sent.request_id);
    EXPECT_EQ(got.value().body, sent.body);
  }
}

TEST(WireCodec, MessagesOfDefaultsRoundTrip) {
  StateInfo state;
  state.name = "a";
  for (const Body& sent : {Body(AttachRequest{.state = "a", .digest = {}}), Body(ShowReply{state}),
                           Body(ListReply{}), Body(LeasesReply{}), Body(StatusReply{}),
                           Body(FilesPart{}), Body(EvictReply{.state = state, .leases = {}})}) {
    SCOPED_TRACE(sent.index());
    const Result<Message> got = Decode(Encode({0, sent}));

    ASSERT_THAT(got, IsOk());
    EXPECT_EQ(got.value().body, sent);
  }
}

TEST(WireCodec, EveryTruncationIsCorrupt) {
  for (const Message& sent : SampleMessages()) {
    SCOPED_TRACE(sent.body.index());
    const std::vector<std::uint8_t> frame = Encode(sent);
    for (std::size_t size = 0; size < frame.size(); ++size) {
      const std::vector<std::uint8_t> part(frame.begin(), frame.begin() + static_cast<long>(size));
      ASSERT_THAT(Decode(part), FailsWith(Code::kCorrupt)) << size;
    }
  }
}

TEST(WireCodec, BytesBehindTheFrameAreCorrupt) {
  std::vector<std::uint8_t> frame = Encode({1, ListRequest{}});
  frame.resize(frame.size() + 8);

  EXPECT_THAT(Decode(frame), FailsWith(Code::kCorrupt));
}

TEST(WireCodec, OverlongTextIsCutBetweenTwoCharacters) {
  std::string text(kTextBytesMax - 1, 'x');
  text += "\xC3\xA9 and more";

  const Message got = Decode(Encode({1, Failure{Code::kInternal, text, 0}})).value();

  EXPECT_EQ(std::get<Failure>(got.body).message, std::string(kTextBytesMax - 1, 'x'));
}

TEST(WireCodec, ALongerWaitThanTheMaximumIsTheMaximum) {
  const Message got = Decode(Encode({1, EvictRequest{"a", 0xFFFFFFFF}})).value();

  EXPECT_EQ(std::get<EvictRequest>(got.body).wait_ms, kWaitMsMax);
}

TEST(WireCodec, AListLongerThanAFrameRoundTrips) {
  ListReply list;
  for (int i = 0; i < 2000; ++i) list.states.push_back(SampleState());
  const std::vector<std::uint8_t> bytes = Encode({1, list});
  ASSERT_GT(bytes.size(), kFrameBytesMax);

  const Result<Message> got = Decode(bytes);

  ASSERT_THAT(got, IsOk());
  EXPECT_EQ(std::get<ListReply>(got.value().body), list);
}

// A frame of protocols `low` to `high` with a body that this build cannot know.
std::vector<std::uint8_t> FrameOfProtocols(std::uint16_t low, std::uint16_t high) {
  ::flatbuffers::FlatBufferBuilder builder;
  const auto body = builder.CreateVector(std::vector<std::uint8_t>{1, 2, 3});
  fb::FinishSizePrefixedEnvelopeBuffer(
      builder, fb::CreateEnvelope(builder, low, high, /*request_id=*/77, fb::Body::AttachRequest,
                                  body.Union()));
  return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

TEST(WireCodec, AnotherProtocolIsRefusedWithBothRangesAndTheRequestId) {
  std::uint32_t request_id = 0;

  const Result<Message> got = Decode(FrameOfProtocols(kProtocolMax + 1, 9), &request_id);

  ASSERT_THAT(got, FailsWith(Code::kUnavailable));
  EXPECT_THAT(got.error().message, ::testing::HasSubstr("2 to 9"));
  EXPECT_THAT(got.error().message, ::testing::HasSubstr("1 to 1"));
  EXPECT_EQ(request_id, 77u);
}

TEST(WireCodec, ABodyThatDoesNotVerifyStillGivesTheRequestId) {
  std::uint32_t request_id = 0;

  EXPECT_THAT(Decode(FrameOfProtocols(1, 9), &request_id), FailsWith(Code::kCorrupt));

  EXPECT_EQ(request_id, 77u);
}

TEST(WireCodec, AnEmptyProtocolRangeIsCorrupt) {
  EXPECT_THAT(Decode(FrameOfProtocols(0, 0)), FailsWith(Code::kCorrupt));
  EXPECT_THAT(Decode(FrameOfProtocols(2, 1)), FailsWith(Code::kCorrupt));
}

TEST(StateName, TheRuleHolds) {
  for (const char* name : {"a", "9", "SmolLM2-135M_x.y+z", "A"}) {
    EXPECT_THAT(CheckStateName(name), IsOk()) << name;
  }
  EXPECT_THAT(CheckStateName(std::string(kStateNameBytesMax, 'a')), IsOk());
  for (const std::string& name :
       {std::string(), std::string(".a"), std::string("-a"), std::string("a/b"), std::string("a b"),
        std::string("a\0b", 3), std::string("\xC3\xA9"),
        std::string(kStateNameBytesMax + 1, 'a')}) {
    EXPECT_THAT(CheckStateName(name), FailsWith(Code::kInvalidArgument)) << name;
  }
}

TEST(StatePhaseName, EveryPhaseHasAName) {
  for (int phase = 0; phase <= static_cast<int>(StatePhase::kFailed); ++phase) {
    EXPECT_STRNE(Name(static_cast<StatePhase>(phase)), "unknown");
  }
}

}  // namespace
}  // namespace sticky::wire
