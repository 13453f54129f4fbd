// What the next daemon makes of what the keeper passes on to it: all that fits together is taken
// over, and nothing else.

#include "daemon/io/kept_states.h"

#include <functional>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "flatbuffers/wire_manifest.h"
#include "tests/testing/matchers.h"

namespace sticky::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kBytes = 8192;
using Names = std::map<std::string, std::vector<UniqueFd>>;

UniqueFd Copy(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

// A state as a daemon had it kept; parts can be changed before Pass().
struct Earlier {
  explicit Earlier(std::uint64_t epoch) {
    record.state = manifest.state = "m";
    record.epoch = manifest.epoch = epoch;
    record.content_digest.bytes.fill(4);
    record.template_digest.bytes.fill(5);
    record.arena_bytes = 2 * kBytes;
    manifest.device = "host";
    manifest.content_digest = record.content_digest;
    manifest.template_digest = record.template_digest;
    for (int i = 0; i < 2; ++i) {
      manifest.arena_bytes.push_back(kBytes);
      arenas.push_back(device::HostArena::Create("m", kBytes, /*want_huge=*/false).value());
      EXPECT_TRUE(arenas.back().Prefault().ok());
      EXPECT_TRUE(arenas.back().Seal().ok());
      struct stat status {};
      EXPECT_EQ(::fstat(arenas.back().fd(), &status), 0);
      record.arena_inodes.push_back(status.st_ino);
    }
  }
  // As the keeper passes it on: in no order that means anything.
  void Pass(Names& names, std::uint64_t revision = 1) {
    const std::string epoch = std::to_string(record.epoch);
    std::vector<UniqueFd>& fds = names["sti.s" + epoch];
    if (fds.empty()) {
      fds.push_back(Copy(arenas[1].fd()));
      fds.push_back(device::SealedCopy("manifest", wire::EncodeManifest(manifest)).value());
      fds.push_back(Copy(arenas[0].fd()));
    }
    names["sti.r" + epoch + "." + std::to_string(revision)].push_back(
        device::SealedCopy("record", record_bytes()).value());
  }
  std::vector<std::uint8_t> record_bytes() const {
    std::vector<std::uint8_t> bytes = wire::EncodeRecord(record);
    for (std::uint8_t& byte : bytes) {  // the one that says which layout it is
      if (!of_another_layout || byte != wire::kRecordLayoutVersion) continue;
      byte = 99;
      const Result<wire::StateRecord> got = wire::DecodeStateRecord(bytes);
      if (!got.ok() && got.error().code == Code::kUnavailable) break;
      byte = wire::kRecordLayoutVersion;
    }
    return bytes;
  }

  wire::StateRecord record;
  wire::Manifest manifest;
  std::vector<device::HostArena> arenas;
  bool of_another_layout = false;
};

struct KeptStatesTest : ::testing::Test {
  Recovered Recover(Names names) { return kept.Recover(std::move(names)); }
  Loop loop;
  Keeper keeper{loop};  // there is none
  KeptStates kept{keeper};
};

TEST_F(KeptStatesTest, AWholeStateIsTakenOverInWhateverOrderItsPartsCome) {
  Earlier earlier(7);
  Names names;
  earlier.Pass(names);

  Recovered recovered = Recover(std::move(names));

  ASSERT_EQ(recovered.states.size(), 1u);
  const KeptState& state = recovered.states[0];
  EXPECT_EQ(state.record, earlier.record);
  EXPECT_EQ(recovered.epoch_max, 7u);
  struct stat first {};
  ASSERT_EQ(::fstat(state.arenas.at(0).fd(), &first), 0);
  EXPECT_EQ(first.st_ino, earlier.record.arena_inodes[0]);
  EXPECT_TRUE(kept.Has(7));
  EXPECT_THAT(recovered.problems, IsEmpty());
}

TEST_F(KeptStatesTest, TheNewestRecordCounts) {
  Earlier earlier(7);
  Names names;
  earlier.Pass(names, 9);
  earlier.record.ending = true;
  earlier.Pass(names, 10);

  EXPECT_TRUE(Recover(std::move(names)).states.at(0).record.ending);
}

TEST_F(KeptStatesTest, WhatWasNeverPublishedIsDroppedWithoutAWord) {
  Earlier earlier(7);
  Names names;
  earlier.Pass(names);
  names.erase("sti.r7.1");

  const Recovered recovered = Recover(std::move(names));

  EXPECT_THAT(recovered.states, IsEmpty());
  EXPECT_THAT(recovered.problems, IsEmpty());
  EXPECT_FALSE(kept.Has(7));
}

TEST_F(KeptStatesTest, WhatAnotherVersionKeptIsLeftToItAndCounts) {
  Earlier ours(7);
  Earlier theirs(8);
  theirs.of_another_layout = true;
  Names names;
  ours.Pass(names);
  theirs.Pass(names);

  const Recovered recovered = Recover(std::move(names));

  EXPECT_EQ(recovered.states.size(), 1u);
  EXPECT_EQ(recovered.foreign_count, 1u);
  EXPECT_GE(recovered.foreign_bytes, 2 * kBytes);
  EXPECT_EQ(recovered.epoch_max, 8u) << "its epoch stays taken";
  EXPECT_TRUE(kept.Has(8)) << "it is not removed";
  EXPECT_THAT(recovered.problems, ElementsAre(HasSubstr("it has layout 99")));
}

TEST_F(KeptStatesTest, PartsThatDoNotFitAreNoState) {
  const auto problem_of = [&](Earlier& earlier, const std::function<void(Names&)>& change) {
    Names names;
    earlier.Pass(names);
    change(names);
    const Recovered recovered = Recover(std::move(names));
    EXPECT_THAT(recovered.states, IsEmpty());
    EXPECT_FALSE(kept.Has(earlier.record.epoch));
    return recovered.problems.empty() ? "" : recovered.problems[0];
  };
  Earlier earlier(7);
  EXPECT_THAT(
      problem_of(earlier, [](Names& names) { names["sti.s7"].erase(names["sti.s7"].begin()); }),
      HasSubstr("an arena is missing"));
  EXPECT_THAT(
      problem_of(earlier, [](Names& names) { names["sti.s7"].erase(names["sti.s7"].begin() + 1); }),
      HasSubstr("the manifest is missing"));
  Earlier other(7);
  other.record.content_digest.bytes.fill(6);
  EXPECT_THAT(problem_of(other, [](Names&) {}), HasSubstr("contradict each other"));
  Earlier open(7);
  open.arenas[0] = device::HostArena::Create("m", kBytes, false).value();
  struct stat status {};
  ASSERT_EQ(::fstat(open.arenas[0].fd(), &status), 0);
  open.record.arena_inodes[0] = status.st_ino;
  EXPECT_THAT(problem_of(open, [](Names&) {}), HasSubstr("an arena is not sealed"));
  EXPECT_THAT(problem_of(earlier,
                         [](Names& names) {
                           names["sti.r7.1"][0] =
                               device::SealedCopy("r", std::vector<std::uint8_t>(40)).value();
                         }),
              HasSubstr("it is not one"));
}

TEST_F(KeptStatesTest, ARecordUnderAnotherEpochsNameIsNone) {
  Earlier earlier(7);
  Names names;
  earlier.Pass(names);
  names["sti.s9"] = std::move(names["sti.s7"]);
  names["sti.r9.1"] = std::move(names["sti.r7.1"]);
  names.erase("sti.s7");
  names.erase("sti.r7.1");

  const Recovered recovered = Recover(std::move(names));

  EXPECT_THAT(recovered.states, IsEmpty());
  EXPECT_THAT(recovered.problems, ElementsAre(HasSubstr("of another epoch")));
}

TEST_F(KeptStatesTest, NamesThatSayNothingAreDropped) {
  Earlier earlier(7);
  Names names;
  earlier.Pass(names);
  for (const char* const name : {"sti.", "sti.s", "sti.s7x", "sti.r7", "sti.r7.", "sti.q1",
                                 "sti.s99999999999999999999", "sti.n-1"}) {
    names[name].push_back(Copy(earlier.arenas[0].fd()));
  }

  EXPECT_EQ(Recover(std::move(names)).states.size(), 1u);
}

TEST_F(KeptStatesTest, TheDaemonsOwnRecordIsTheNewest) {
  Names names;
  names["sti.n3"].push_back(
      device::SealedCopy("n", wire::EncodeRecord(wire::NodeRecord{false, 5})).value());
  names["sti.n12"].push_back(
      device::SealedCopy("n", wire::EncodeRecord(wire::NodeRecord{true, 6})).value());

  EXPECT_EQ(Recover(std::move(names)).node, (wire::NodeRecord{true, 6}));
}

}  // namespace
}  // namespace sticky::daemon
