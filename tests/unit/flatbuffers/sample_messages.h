// One message of every kind, with every field set to something that is not its default.

#ifndef STICKY_TESTS_UNIT_FLATBUFFERS_SAMPLE_MESSAGES_H_
#define STICKY_TESTS_UNIT_FLATBUFFERS_SAMPLE_MESSAGES_H_

#include <cstdint>
#include <vector>

#include "flatbuffers/wire_codec.h"

namespace sticky::wire {

inline Digest SampleDigest(std::uint8_t first) {
  Digest digest;
  for (std::uint8_t& byte : digest.bytes) byte = first++;
  return digest;
}

inline Sha256 SampleSha256() {
  Sha256 sha256;
  sha256.bytes.fill(200);
  return sha256;
}

inline Policy SamplePolicy() {
  return {.pin = true,
          .idle_ms = 60'000,
          .ttl_ms = 3'600'000,
          .priority = -7,
          .access = {AccessMode::kNode, {1000, 1001}, {100}},
          .labels = {{"project", "fever"}, {"site/rack", "7"}},
          .lease_count_max = 512};
}

inline StateInfo SampleState() {
  return {.name = "llama-8b",
          .phase = StatePhase::kFailed,
          .device = "host",
          .content_digest = SampleDigest(1),
          .template_digest = SampleDigest(40),
          .epoch = 3,
          .arena_bytes = 1ULL << 40,
          .tensor_count = 272,
          .lease_count = 9,
          .pinned = true,
          .hold_count = 2,
          .bytes_done = 1ULL << 39,
          .age_ms = 1234,
          .load_ms = 567,
          .source = "/models/llama-8b.gguf",
          .huge_pages = "thp",
          .dtype = DtypeChoice::kF32,
          .failure = Failure{Code::kCorrupt, "header of 'a' is short", 5},
          .uid = 1001,
          .policy = SamplePolicy(),
          .idle_ms = 888,
          .queue_place = 3,
          .wanted_bytes = 1ULL << 38,
          .closed = true,
          .kept = true};
}

inline LeaseInfo SampleLease() {
  return {11, "llama-8b", 4242, 1000, 77, "verify", true, 3, "slurm 12"};
}

inline std::vector<Message> SampleMessages() {
  const std::vector<Body> bodies = {
      Failure{Code::kUnavailable, "state 'a' is draining", 11},
      AttachRequest{"llama-8b", SampleDigest(7), 250, true, true, "slurm 12"},
      LoadRequest{"llama-8b", SampleDigest(9), "/m", DtypeChoice::kBf16, true, 2, 500, true,
                  SamplePolicy(), Placement::kInPlace, false, SampleDigest(3)},
      FilesPart{{{"model.safetensors", FileRole::kWeights, 99, SampleSha256()},
                 {"config.json", FileRole::kAsset, 7},
                 {"index.bin", FileRole::kWhole, 8}}},
      ListRequest{},
      ShowRequest{"llama-8b"},
      StatusRequest{},
      LeasesRequest{},
      EvictRequest{"llama-8b", 100},
      AttachReply{5, 3, {4096, 1ULL << 33}},
      LoadProgress{SampleState()},
      LoadReply{SampleState(), true},
      ListReply{{SampleState(), SampleState()}},
      ShowReply{SampleState()},
      StatusReply{"0.1.0", 1,  2,  3,        4,          5,    6,      7,
                  8,       9,  10, "/run/s", "/a.slice", true, "host", DtypeChoice::kBf16,
                  11,      12, 13, 14,       15},
      LeasesReply{{SampleLease(), SampleLease()}},
      EvictReply{SampleState(), true, {SampleLease()}},
      Blob{70000},
      PlanRequest{"llama-8b", DtypeChoice::kF16, 2, SampleDigest(5)},
      PlanReply{1ULL << 33},
      FillRequest{1ULL << 33, false},
      FillProgress{1ULL << 20, 1ULL << 21},
      FillReply{SampleDigest(77), 1ULL << 33, 1ULL << 21},
      DrainRequest{"llama-8b", true, 9},
      EventsRequest{17, 1000},
      DrainReply{true, {SampleLease()}},
      EventsReply{
          {{5, 1'700'000'000'000, EventKind::kShutdown, "llama-8b", 2, 1000, 77, "why"}}, 9, 4},
      BuildRequest{"llama-8b", SamplePolicy(), Placement::kReplace, SampleDigest(3), "/g", "base",
                   "indexer 2", 77},
      BuildArenaRequest{1ULL << 33, 5},
      BuildCommitRequest{6},
      BuildReply{SampleState(), SampleDigest(4)},
      BuildArenaReply{3, 1ULL << 33},
      PrefaultRequest{1ULL << 33},
      PrefaultReply{},
      DigestRequest{{4096, 1ULL << 33}},
      BudgetRequest{1ULL << 34},
      ShutdownRequest{true},
      ShutdownReply{8, 3},
      TemplatesRequest{},
      TemplatesReply{{{"m", "/etc/stickyinvoc/templates.d/m.yaml", BuildWhen::kOnDemand, ""},
                      {"", "/etc/x.yaml", BuildWhen::kManual, "x.yaml:1:1: no"}}},
  };
  std::vector<Message> messages;
  std::uint32_t request_id = 100;
  for (const Body& body : bodies) messages.push_back({request_id++, body});
  return messages;
}

}  // namespace sticky::wire

#endif  // STICKY_TESTS_UNIT_FLATBUFFERS_SAMPLE_MESSAGES_H_
