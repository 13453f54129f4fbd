// A published arena cannot be written by anyone, and is known to be borrowed exactly while a lent
// descriptor or a mapping of one lives.

#include "device/host_arena.h"

#include <cstring>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/testing/matchers.h"

namespace sticky::device {
namespace {

using sticky::testing::FailsWith;
using sticky::testing::IsOk;

constexpr std::uint64_t kBytes = 3 * 4096;

HostArena Published() {
  HostArena arena = HostArena::Create("test", kBytes, /*want_huge=*/false).value();
  EXPECT_THAT(arena.Prefault(), IsOk());
  {
    Mapping mapping = Mapping::Writable(arena.fd(), kBytes).value();
    std::memset(mapping.writable_bytes().data(), 7, kBytes);
  }
  EXPECT_THAT(arena.Seal(), IsOk());
  return arena;
}

TEST(HostArena, EmptyIsRefused) {
  EXPECT_THAT(HostArena::Create("test", 0, false), FailsWith(Code::kInvalidArgument));
}

TEST(HostArena, SizeIsSealedFromTheStart) {
  HostArena arena = HostArena::Create("test", kBytes, false).value();

  EXPECT_NE(::ftruncate(arena.fd(), 1), 0);
  EXPECT_NE(::ftruncate(arena.fd(), 1 << 20), 0);
}

TEST(HostArena, SealFailsWhileAWritableMappingLives) {
  HostArena arena = HostArena::Create("test", kBytes, false).value();
  ASSERT_THAT(arena.Prefault(), IsOk());
  Result<Mapping> mapping = Mapping::Writable(arena.fd(), kBytes);
  ASSERT_THAT(mapping, IsOk());

  EXPECT_THAT(arena.Seal(), FailsWith(Code::kUnavailable));
}

class HostArenaOfABuilder : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr std::uint64_t kHugePage = 2u << 20;
  // As long as the node has no huge pages to give, both are the same.
  HostArena arena_ = HostArena::Create("test", kHugePage, /*want_huge=*/GetParam()).value();
};

TEST_P(HostArenaOfABuilder, SealFailsWhileTheDescriptorForWritingIsOpenAndChangesNothing) {
  ASSERT_THAT(arena_.Prefault(), IsOk());
  UniqueFd lent = arena_.LendWritable().value();

  const Status refused = arena_.Seal();

  EXPECT_THAT(refused, FailsWith(Code::kUnavailable));
  EXPECT_FALSE(arena_.sealed());
  EXPECT_EQ(::fcntl(lent.get(), F_GET_SEALS) & F_SEAL_WRITE, 0);
  lent.Reset();
  EXPECT_THAT(arena_.Seal(), IsOk());
  EXPECT_EQ(::fcntl(arena_.fd(), F_GETFL) & O_ACCMODE, O_RDONLY);
}

TEST_P(HostArenaOfABuilder, SealFailsWhileThatDescriptorIsMappedEvenForReading) {
  ASSERT_THAT(arena_.Prefault(), IsOk());
  UniqueFd lent = arena_.LendWritable().value();
  {
    const Mapping mapping = Mapping::ReadOnly(lent.get(), kHugePage).value();
    lent.Reset();

    EXPECT_THAT(arena_.Seal(), FailsWith(Code::kUnavailable));
  }
  EXPECT_THAT(arena_.Seal(), IsOk());
}

TEST_P(HostArenaOfABuilder, ReadersAreLentAndSeenAsOfAnyOther) {
  ASSERT_THAT(arena_.Prefault(), IsOk());
  arena_.LendWritable().value().Reset();
  ASSERT_THAT(arena_.Seal(), IsOk());

  EXPECT_FALSE(arena_.HasBorrowers().value());
  UniqueFd lent = arena_.Lend().value();
  EXPECT_TRUE(arena_.HasBorrowers().value());
  EXPECT_THAT(Mapping::Writable(lent.get(), kHugePage), FailsWith(Code::kPermissionDenied));
  lent.Reset();
  EXPECT_FALSE(arena_.HasBorrowers().value());
}

INSTANTIATE_TEST_SUITE_P(Pages, HostArenaOfABuilder, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "huge" : "ordinary"; });

TEST(HostArena, SealFailsWhenPagesAreMissing) {
  HostArena arena = HostArena::Create("test", kBytes, false).value();

  EXPECT_THAT(arena.Seal(), FailsWith(Code::kCorrupt));
}

TEST(HostArena, SealedArenaCannotBeMappedWritableNotEvenThroughProc) {
  HostArena arena = Published();
  const UniqueFd lent = arena.Lend().value();

  EXPECT_THAT(Mapping::Writable(arena.fd(), kBytes), FailsWith(Code::kPermissionDenied));
  const std::string path = "/proc/self/fd/" + std::to_string(lent.get());
  const UniqueFd reopened(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (reopened.valid()) {
    EXPECT_EQ(::mmap(nullptr, kBytes, PROT_WRITE, MAP_SHARED, reopened.get(), 0), MAP_FAILED);
    EXPECT_LT(::write(reopened.get(), "x", 1), 0);
  }
}

// A borrower of the daemon's uid owns the file as much as the daemon does.
TEST(HostArena, ABorrowerWhoForbidsReadingStopsNoOtherBorrower) {
  const auto borrow_twice = [] {
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return false;
    const HostArena arena = Published();
    const Result<UniqueFd> first = arena.Lend();
    return first.ok() && ::fchmod(first.value().get(), 0) == 0 && arena.Lend().ok();
  };
  EXPECT_EXIT(::_exit(borrow_twice() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

TEST(HostArena, LentMappingCannotBeMadeWritable) {
  HostArena arena = Published();
  const UniqueFd lent = arena.Lend().value();
  Mapping mapping = Mapping::ReadOnly(lent.get(), kBytes).value();

  void* const address = const_cast<std::uint8_t*>(mapping.bytes().data());
  EXPECT_NE(::mprotect(address, kBytes, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(mapping.bytes()[kBytes - 1], 7);
}

TEST(HostArena, IsBorrowedWhileALentDescriptorIsOpen) {
  HostArena arena = Published();
  EXPECT_FALSE(arena.HasBorrowers().value());

  UniqueFd lent = arena.Lend().value();
  EXPECT_TRUE(arena.HasBorrowers().value());

  lent.Reset();
  EXPECT_FALSE(arena.HasBorrowers().value());
}

TEST(HostArena, IsBorrowedWhileOnlyAMappingLives) {
  HostArena arena = Published();
  UniqueFd lent = arena.Lend().value();
  {
    const Mapping mapping = Mapping::ReadOnly(lent.get(), kBytes).value();
    lent.Reset();
    EXPECT_TRUE(arena.HasBorrowers().value());
  }
  EXPECT_FALSE(arena.HasBorrowers().value());
}

TEST(HostArena, BorrowerKilledWithoutWarningIsGone) {
  HostArena arena = Published();
  UniqueFd lent = arena.Lend().value();
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  lent.Reset();
  EXPECT_TRUE(arena.HasBorrowers().value());

  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);

  EXPECT_FALSE(arena.HasBorrowers().value());
}

TEST(HostArena, AdoptRefusesMemoryThatIsNotSealedOrTooShort) {
  UniqueFd loose(::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(loose.get(), kBytes), 0);
  EXPECT_THAT(HostArena::Adopt(std::move(loose), kBytes), FailsWith(Code::kCorrupt));

  HostArena arena = HostArena::Create("test", kBytes, false).value();
  EXPECT_THAT(HostArena::Adopt(UniqueFd(::dup(arena.fd())), kBytes + 1), FailsWith(Code::kCorrupt));
  EXPECT_THAT(HostArena::Adopt(UniqueFd(::dup(arena.fd())), kBytes), IsOk());
}

TEST(Mapping, LongerThanTheMemoryIsRefused) {
  HostArena arena = Published();
  EXPECT_THAT(Mapping::ReadOnly(arena.fd(), kBytes + 4096), FailsWith(Code::kCorrupt));
}

TEST(SealedCopy, HoldsTheBytesAndRefusesWriting) {
  const std::uint8_t bytes[] = {1, 2, 3};
  const UniqueFd fd = SealedCopy("copy", bytes).value();

  EXPECT_EQ(Mapping::ReadOnly(fd.get(), 3).value().bytes()[2], 3);
  EXPECT_LT(::pwrite(fd.get(), "x", 1, 0), 0);
}

TEST(Mapping, PopulatedPagesAreThereAndCanBeSealed) {
  HostArena arena = HostArena::Create("test", kBytes, false).value();
  {
    Mapping mapping = Mapping::Writable(arena.fd(), kBytes).value();

    EXPECT_THAT(mapping.Populate(0, 4096), IsOk());
    mapping.writable_bytes()[4096] = 5;
    EXPECT_THAT(mapping.Populate(4096, kBytes - 4096), IsOk());

    EXPECT_EQ(mapping.bytes()[4096], 5) << "what was there stays";
  }
  EXPECT_THAT(arena.Seal(), IsOk());
}

TEST(HostArena, MissingPagesAreFoundOnceNobodyCanPunchHolesAnyMore) {
  HostArena arena = HostArena::Create("test", kBytes, false).value();
  {
    Mapping mapping = Mapping::Writable(arena.fd(), kBytes).value();
    ASSERT_THAT(mapping.Populate(0, kBytes), IsOk());
  }
  const UniqueFd ours(::dup(arena.fd()));
  UniqueFd builders = arena.LendWritable().value();
  ASSERT_EQ(::fallocate(builders.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  builders.Reset();

  EXPECT_THAT(arena.Seal(), FailsWith(Code::kCorrupt));
  EXPECT_NE(::fallocate(ours.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
}

TEST(HostArena, LentWritableItIsBorrowedAndNotSealedWhileItIsMapped) {
  HostArena arena = HostArena::Create("test", kBytes, false).value();
  ASSERT_THAT(arena.Prefault(), IsOk());
  UniqueFd lent = arena.LendWritable().value();
  {
    const Mapping mapping = Mapping::Writable(lent.get(), kBytes).value();
    lent.Reset();
    EXPECT_TRUE(arena.HasBorrowers().value());
    EXPECT_THAT(arena.Seal(), FailsWith(Code::kUnavailable));
  }
  EXPECT_FALSE(arena.HasBorrowers().value());
  EXPECT_THAT(arena.Seal(), IsOk());
}

TEST(Mapping, SmallPagesAreNotCountedAsHuge) {
  HostArena arena = HostArena::Create("test", kBytes, false).value();
  Mapping mapping = Mapping::Writable(arena.fd(), kBytes).value();
  ASSERT_THAT(mapping.Populate(0, kBytes), IsOk());

  EXPECT_EQ(mapping.HugeBytes(), 0u);
}

// Whatever the machine has: huge pages from its pool, joined ones, or neither.
TEST(Mapping, ArenaThatWantsHugePagesWorksWithWhatTheMachineGives) {
  constexpr std::uint64_t kTwoHugePagesAndABit = (4u << 20) + 4096;
  for (const bool want_huge : {false, true}) {
    HostArena arena = HostArena::Create("test", kTwoHugePagesAndABit, want_huge).value();
    {
      Mapping mapping = Mapping::Writable(arena.fd(), kTwoHugePagesAndABit).value();
      mapping.PreferHugePages();
      ASSERT_THAT(mapping.Populate(0, kTwoHugePagesAndABit), IsOk());
      EXPECT_EQ(mapping.bytes().size(), kTwoHugePagesAndABit);
      std::memset(mapping.writable_bytes().data(), 7, kTwoHugePagesAndABit);
      const std::uint64_t huge_bytes = mapping.HugeBytes();
      EXPECT_TRUE(arena.page_kind() != PageKind::kHuge || huge_bytes >= 4u << 20);
    }

    ASSERT_THAT(arena.Seal(), IsOk()) << Name(arena.page_kind());
    {
      UniqueFd lent = arena.Lend().value();
      const Mapping reader = Mapping::ReadOnly(lent.get(), kTwoHugePagesAndABit).value();
      lent.Reset();
      EXPECT_EQ(reader.bytes()[kTwoHugePagesAndABit - 1], 7);
      EXPECT_TRUE(arena.HasBorrowers().value());
    }
    EXPECT_FALSE(arena.HasBorrowers().value());
  }
}

}  // namespace
}  // namespace sticky::device
