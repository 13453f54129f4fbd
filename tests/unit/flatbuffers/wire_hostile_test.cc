// Bytes that no honest peer sends: every one ends in a typed error or a valid message, whatever
// they are. Built with the generated code, past the checks of our own Encode.

#include <random>

#include <gtest/gtest.h>

#include "flatbuffers/wire_codec.h"
#include "flatbuffers/wire_protocol_generated.h"
#include "tests/testing/matchers.h"
#include "tests/unit/flatbuffers/sample_messages.h"

namespace sticky::wire {
namespace {

using ::flatbuffers::FlatBufferBuilder;
using sticky::testing::FailsWith;
using sticky::testing::IsOk;

template <typename Table>
Result<Message> DecodeTable(FlatBufferBuilder& builder, ::flatbuffers::Offset<Table> table) {
  fb::FinishSizePrefixedEnvelopeBuffer(
      builder,
      fb::CreateEnvelope(builder, 1, 1, 5, fb::BodyTraits<Table>::enum_value, table.Union()));
  const std::vector<std::uint8_t> frame(builder.GetBufferPointer(),
                                        builder.GetBufferPointer() + builder.GetSize());
  return Decode(frame);
}

std::mt19937 SeededRandom() {
  const int seed = ::testing::UnitTest::GetInstance()->random_seed();
  ::testing::Test::RecordProperty("seed", seed);
  return std::mt19937(static_cast<unsigned>(seed));
}

TEST(HostileFrame, RandomBytesAreCorrupt) {
  std::mt19937 random = SeededRandom();
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::uint8_t> frame(random() % 200);
    for (std::uint8_t& byte : frame) byte = static_cast<std::uint8_t>(random());
    ASSERT_THAT(Decode(frame), FailsWith(Code::kCorrupt));
  }
}

TEST(HostileFrame, ChangedBytesGiveAnErrorOrAMessageThatEncodesAgain) {
  std::mt19937 random = SeededRandom();
  for (const Message& sample : SampleMessages()) {
    const std::vector<std::uint8_t> honest = Encode(sample);
    for (int round = 0; round < 1500; ++round) {
      std::vector<std::uint8_t> frame = honest;
      const auto changes = 1 + random() % 3;
      for (unsigned i = 0; i < changes; ++i) {
        frame[random() % frame.size()] = static_cast<std::uint8_t>(random());
      }
      const Result<Message> got = Decode(frame);
      if (got.ok()) {
        ASSERT_THAT(Decode(Encode(got.value())), IsOk());
      } else {
        ASSERT_TRUE(got.error().code == Code::kCorrupt || got.error().code == Code::kUnavailable);
      }
    }
  }
}

TEST(HostileFrame, AHugeLengthIsCorrupt) {
  for (const std::uint32_t prefix : {0xFFFFFFFFu, 0x7FFFFFFFu, 0u, 1u << 31}) {
    std::vector<std::uint8_t> frame = Encode({1, ListRequest{}});
    std::memcpy(frame.data(), &prefix, sizeof prefix);
    EXPECT_THAT(Decode(frame), FailsWith(Code::kCorrupt)) << prefix;
  }
}

// A frame of 64 KiB would be unpacked to hundreds of MiB.
TEST(HostileFrame, EntriesThatShareOneTableDoNotFillMemory) {
  FlatBufferBuilder builder;
  const auto text = builder.CreateString(std::string(kTextBytesMax, 'x'));
  const auto name = builder.CreateString("llama");
  fb::StateInfoBuilder state(builder);
  state.add_name(name);
  state.add_device(text);
  state.add_source(text);
  state.add_huge_pages(text);
  state.add_base(text);
  state.add_builder(text);
  const std::vector<::flatbuffers::Offset<fb::StateInfo>> states(14'000, state.Finish());
  const auto list = builder.CreateVector(states);

  const auto got = DecodeTable(builder, fb::CreateListReply(builder, list));

  EXPECT_LE(builder.GetSize(), kFrameBytesMax);
  EXPECT_THAT(got, FailsWith(Code::kCorrupt));
}

TEST(HostileFrame, AbsentNamesAndDigestsAreCorrupt) {
  FlatBufferBuilder builder;
  EXPECT_THAT(DecodeTable(builder, fb::CreateAttachRequest(builder)), FailsWith(Code::kCorrupt));
  builder.Clear();
  EXPECT_THAT(DecodeTable(builder, fb::CreateShowRequest(builder)), FailsWith(Code::kCorrupt));
  builder.Clear();
  EXPECT_THAT(DecodeTable(builder, fb::CreateLoadReply(builder)), FailsWith(Code::kCorrupt));
  builder.Clear();
  EXPECT_THAT(DecodeTable(builder, fb::CreateFillReply(builder)), FailsWith(Code::kCorrupt));
  builder.Clear();
  const auto state = builder.CreateString("a");
  EXPECT_THAT(DecodeTable(builder, fb::CreateLoadRequest(builder, state)),
              FailsWith(Code::kCorrupt));
}

TEST(HostileFrame, AMissingBodyIsCorrupt) {
  FlatBufferBuilder builder;
  fb::FinishSizePrefixedEnvelopeBuffer(
      builder, fb::CreateEnvelope(builder, 1, 1, 5, fb::Body::AttachRequest, /*body=*/0));
  const std::vector<std::uint8_t> typed_but_empty(builder.GetBufferPointer(),
                                                  builder.GetBufferPointer() + builder.GetSize());
  EXPECT_THAT(Decode(typed_but_empty), FailsWith(Code::kCorrupt));

  builder.Clear();
  fb::FinishSizePrefixedEnvelopeBuffer(builder, fb::CreateEnvelope(builder, 1, 1, 5));
  const std::vector<std::uint8_t> no_type(builder.GetBufferPointer(),
                                          builder.GetBufferPointer() + builder.GetSize());
  EXPECT_THAT(Decode(no_type), FailsWith(Code::kCorrupt));
}

TEST(HostileFrame, AnUnknownKindOfMessageIsCorrupt) {
  FlatBufferBuilder builder;
  const auto body = fb::CreateListRequest(builder);
  fb::FinishSizePrefixedEnvelopeBuffer(
      builder, fb::CreateEnvelope(builder, 1, 1, 5, static_cast<fb::Body>(200), body.Union()));
  const std::vector<std::uint8_t> frame(builder.GetBufferPointer(),
                                        builder.GetBufferPointer() + builder.GetSize());

  EXPECT_THAT(Decode(frame), FailsWith(Code::kCorrupt));
}

TEST(HostileFrame, BadNamesOfStatesAreCorrupt) {
  for (const std::string& name :
       {std::string(), std::string("../a"), std::string(kStateNameBytesMax + 1, 'a'),
        std::string("a\0", 2)}) {
    FlatBufferBuilder builder;
    const auto text = builder.CreateString(name);
    EXPECT_THAT(DecodeTable(builder, fb::CreateShowRequest(builder, text)),
                FailsWith(Code::kCorrupt));
  }
}

TEST(HostileFrame, BadNamesOfFilesAreCorrupt) {
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("/a"),
        std::string("a\0b", 3), std::string(kFileNameBytesMax + 1, 'a')}) {
    FlatBufferBuilder builder;
    const auto text = builder.CreateString(name);
    const std::vector files{fb::CreateSourceFile(builder, text)};
    const auto part = fb::CreateFilesPart(builder, builder.CreateVector(files));
    EXPECT_THAT(DecodeTable(builder, part), FailsWith(Code::kCorrupt));
  }
}

TEST(HostileFrame, ADigestOfAnotherLengthIsCorrupt) {
  for (const std::size_t size : {0u, 15u, 17u}) {
    FlatBufferBuilder builder;
    const auto state = builder.CreateString("a");
    const auto digest = builder.CreateVector(std::vector<std::uint8_t>(size));
    EXPECT_THAT(DecodeTable(builder, fb::CreateAttachRequest(builder, state, digest)),
                FailsWith(Code::kCorrupt));
  }
}

TEST(HostileFrame, UnknownEnumeratorsAreCorrupt) {
  FlatBufferBuilder builder;
  EXPECT_THAT(DecodeTable(builder, fb::CreateFailure(builder, static_cast<fb::ErrorCode>(9))),
              FailsWith(Code::kCorrupt));
  builder.Clear();
  EXPECT_THAT(DecodeTable(builder, fb::CreateFailure(builder, fb::ErrorCode::None)),
              FailsWith(Code::kCorrupt));
  builder.Clear();
  const auto state = builder.CreateString("a");
  const auto plan = fb::CreatePlanRequest(builder, state, static_cast<fb::DtypeChoice>(-1));
  EXPECT_THAT(DecodeTable(builder, plan), FailsWith(Code::kCorrupt));
}

TEST(HostileFrame, CountsPastTheirMaximumAreCorrupt) {
  FlatBufferBuilder builder;
  const auto name = builder.CreateString("f");
  const auto file = fb::CreateSourceFile(builder, name);
  const std::vector files(kFdsPerFrameMax + 1, file);
  EXPECT_THAT(DecodeTable(builder, fb::CreateFilesPart(builder, builder.CreateVector(files))),
              FailsWith(Code::kCorrupt));

  builder.Clear();
  const auto state = builder.CreateString("a");
  EXPECT_THAT(DecodeTable(builder, fb::CreatePlanRequest(builder, state, fb::DtypeChoice::Auto,
                                                         kFileCountMax + 1)),
              FailsWith(Code::kCorrupt));

  for (const std::size_t arenas : {0u, 65u}) {
    builder.Clear();
    const auto bytes = builder.CreateVector(std::vector<std::uint64_t>(arenas, 4096));
    EXPECT_THAT(DecodeTable(builder, fb::CreateAttachReply(builder, 1, 1, bytes)),
                FailsWith(Code::kCorrupt));
  }

  builder.Clear();
  const auto state_name = builder.CreateString("a");
  const auto lease = fb::CreateLeaseInfo(builder, 1, state_name);
  const std::vector leases(kListCountMax + 1, lease);
  EXPECT_THAT(DecodeTable(builder, fb::CreateLeasesReply(builder, builder.CreateVector(leases))),
              FailsWith(Code::kCorrupt));
}

TEST(HostileFrame, BytesPastTheirMaximumAreCorrupt) {
  FlatBufferBuilder builder;
  EXPECT_THAT(DecodeTable(builder, fb::CreateFillRequest(builder, UINT64_MAX)),
              FailsWith(Code::kCorrupt));
  for (const std::uint64_t size_bytes : {std::uint64_t{0}, kBlobBytesMax + 1}) {
    builder.Clear();
    EXPECT_THAT(DecodeTable(builder, fb::CreateBlob(builder, size_bytes)),
                FailsWith(Code::kCorrupt));
  }
  builder.Clear();
  const auto text = builder.CreateString(std::string(kTextBytesMax + 1, 'x'));
  EXPECT_THAT(DecodeTable(builder, fb::CreateFailure(builder, fb::ErrorCode::Internal, text)),
              FailsWith(Code::kCorrupt));
}

// Fields of an older or leaner sender: nothing but what cannot be done without.
TEST(HostileFrame, AbsentOptionalFieldsTakeTheirDefaults) {
  FlatBufferBuilder builder;
  const auto name = builder.CreateString("a");
  const auto state = fb::CreateStateInfo(builder, name);
  const Result<Message> got = DecodeTable(builder, fb::CreateShowReply(builder, state));

  ASSERT_THAT(got, IsOk());
  StateInfo want;
  want.name = "a";
  EXPECT_EQ(std::get<ShowReply>(got.value().body).state, want);
}

}  // namespace
}  // namespace sticky::wire
