// What is kept of a state round trips, is read as the first version wrote it, and is refused with
// the reason when a later one did, or when it is damaged.

#include "flatbuffers/wire_record.h"

#include <random>

#include <gtest/gtest.h>

#include "tests/testing/data_dir.h"
#include "tests/testing/matchers.h"
#include "tests/unit/flatbuffers/sample_messages.h"

namespace sticky::wire {
namespace {

using sticky::testing::FailsWith;
using sticky::testing::IsOk;

StateRecord Sample() {
  StateRecord record;
  record.state = "llama-8b";
  record.epoch = 12;
  record.arena_inodes = {77, 1ULL << 33};
  record.content_digest = SampleDigest(1);
  record.template_digest = SampleDigest(2);
  record.arena_bytes = 1ULL << 34;
  record.tensor_count = 291;
  record.uid = 1001;
  record.gid = 1002;
  record.policy = SamplePolicy();
  record.source = "/models/llama";
  record.dtype = DtypeChoice::kBf16;
  record.huge_pages = "thp";
  record.asked_ns = 123'456'789'012;
  record.ready_ns = 123'456'999'999;
  record.kept_by_holds = record.closed = record.ending = true;
  record.built_by = "index-builder 3";
  record.base = "base";
  record.base_digest = SampleDigest(3);
  record.base_epoch = 11;
  return record;
}

std::vector<std::uint8_t> Golden(const std::string& name) {
  const std::string bytes =
      sticky::testing::ReadFile(STICKY_SOURCE_DIR "/tests/data/records/" + name);
  return {bytes.begin(), bytes.end()};
}

TEST(WireRecord, RoundTrips) {
  const Result<StateRecord> state = DecodeStateRecord(EncodeRecord(Sample()));
  ASSERT_THAT(state, IsOk());
  EXPECT_EQ(state.value(), Sample());
  const NodeRecord node{true, 1ULL << 40};
  ASSERT_THAT(DecodeNodeRecord(EncodeRecord(node)), IsOk());
  EXPECT_EQ(DecodeNodeRecord(EncodeRecord(node)).value(), node);
}

// The file is never written again: whoever changes the layout keeps reading this one.
TEST(WireRecord, WhatLayoutOneWroteIsStillRead) {
  const Result<StateRecord> state = DecodeStateRecord(Golden("state-layout-1.bin"));
  ASSERT_THAT(state, IsOk());
  EXPECT_EQ(state.value(), Sample());
  const Result<NodeRecord> node = DecodeNodeRecord(Golden("node-layout-1.bin"));
  ASSERT_THAT(node, IsOk());
  EXPECT_EQ(node.value(), (NodeRecord{true, 1ULL << 40}));
}

TEST(WireRecord, AnotherLayoutIsForAnotherVersionAndNotBroken) {
  const std::vector<std::uint8_t> honest = EncodeRecord(Sample());
  int refused = 0;
  for (std::size_t i = 0; i < honest.size(); ++i) {
    std::vector<std::uint8_t> changed = honest;
    if (changed[i] != kRecordLayoutVersion) continue;
    changed[i] = kRecordLayoutVersion + 1;
    const Result<StateRecord> got = DecodeStateRecord(changed);
    refused += !got.ok() && got.error().code == Code::kUnavailable ? 1 : 0;
  }
  EXPECT_EQ(refused, 1) << "one byte says which layout it is";
}

TEST(WireRecord, DamageIsAnErrorOrARecordThatEncodesAgain) {
  std::mt19937 random(7);
  const std::vector<std::uint8_t> honest = EncodeRecord(Sample());
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::uint8_t> bytes = honest;
    bytes.resize(round % 4 == 0 ? random() % bytes.size() : bytes.size());
    if (!bytes.empty()) bytes[random() % bytes.size()] = static_cast<std::uint8_t>(random());
    const Result<StateRecord> got = DecodeStateRecord(bytes);
    if (!got.ok()) continue;
    ASSERT_THAT(DecodeStateRecord(EncodeRecord(got.value())), IsOk());
  }
  EXPECT_THAT(DecodeStateRecord({}), FailsWith(Code::kCorrupt));
}

}  // namespace
}  // namespace sticky::wire
