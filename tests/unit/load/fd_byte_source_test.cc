// Whatever lies in the page cache and whatever the disk refuses, a file's bytes are the same and a
// failure names the file; and pages of an arena are made before anyone writes them.

#include "daemon/load/fd_byte_source.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/text.h"
#include "daemon/load/direct_file.h"
#include "daemon/load/load_model.h"
#include "daemon/load/present_pages.h"
#include "daemon/load/reading.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_dir.h"

namespace sticky::load {
namespace {

using sticky::testing::FailsWith;
using sticky::testing::IsOk;
using sticky::testing::TempDir;
using ::testing::HasSubstr;

constexpr std::size_t kFileBytes = (5u << 20) + 1234;  // the tail is of no alignment

// What the disk was asked, and what it is to answer. The seams are plain functions.
struct Disk {
  std::atomic<int> reads{0};
  std::atomic<int> failure{0};              // an errno
  std::atomic<std::size_t> most{SIZE_MAX};  // bytes a read gives
  bool in_cache = false;
};
Disk disk;

ssize_t DiskPread(int fd, void* out, std::size_t size_bytes, off_t offset) {
  ++disk.reads;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(out) % DirectFile::kAlignment, 0u);
  EXPECT_EQ(size_bytes % DirectFile::kAlignment, 0u);
  EXPECT_EQ(static_cast<std::size_t>(offset) % DirectFile::kAlignment, 0u);
  if (disk.failure != 0) {
    errno = disk.failure;
    return -1;
  }
  return ::pread(fd, out, std::min(size_bytes, disk.most.load()), offset);
}

int DiskMincore(void*, std::size_t size_bytes, unsigned char* pages) {
  std::memset(pages, disk.in_cache ? 1 : 0, (size_bytes + 4095) / 4096);
  return 0;
}

std::string RandomText(std::size_t size) {
  std::mt19937 rng(static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed()));
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(rng());
  return text;
}

class DirectRead : public ::testing::Test {
 protected:
  void SetUp() override {
    disk.reads = 0;
    disk.failure = 0;
    disk.most = SIZE_MAX;
    disk.in_cache = false;
    path_ = dir_.Write("m.bin", text_);
    const UniqueFd fd = Open();
    if (!DirectFile::Open(fd.get(), kFileBytes, {})) GTEST_SKIP() << "no O_DIRECT here";
  }
  UniqueFd Open() const { return UniqueFd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)); }
  FdByteSource Source() const {
    return FdByteSource(Open(), "m.bin", ReadBy::kDisk, {DiskPread, DiskMincore});
  }
  // Reads here and there, and compares.
  void ExpectSameBytes(const weights::ByteSource& source) const {
    const std::pair<std::size_t, std::size_t> parts[] = {
        {0, kFileBytes},     {0, 1},           {1, 4096},
        {4095, 2},           {4096, 1u << 20}, {777, 3u << 20},
        {kFileBytes - 1, 1}, {5u << 20, 1234}, {123, 0}};
    for (const auto& [offset, size] : parts) {
      std::vector<std::uint8_t> out(size);
      ASSERT_THAT(source.ReadAt(offset, out), IsOk()) << offset << "+" << size;
      EXPECT_TRUE(
          std::equal(out.begin(), out.end(), text_.begin() + static_cast<std::ptrdiff_t>(offset),
                     [](std::uint8_t a, char b) { return a == static_cast<std::uint8_t>(b); }))
          << offset << "+" << size;
    }
  }

  const TempDir dir_;
  const std::string text_ = RandomText(kFileBytes);
  std::filesystem::path path_;
};

TEST_F(DirectRead, GivesTheSameBytesFromAnyOffsetToTheTail) {
  ExpectSameBytes(Source());
  EXPECT_GT(disk.reads, 0);
}

TEST_F(DirectRead, LeavesTheFlagsOfTheCallersDescriptionAlone) {
  const FdByteSource source = Source();
  EXPECT_EQ(::fcntl(source.fd(), F_GETFL) & O_DIRECT, 0);
}

TEST_F(DirectRead, OfWhatIsInThePageCacheThereIsNone) {
  disk.in_cache = true;
  ExpectSameBytes(Source());
  EXPECT_EQ(disk.reads, 0);
}

TEST_F(DirectRead, ThatIsShortIsCompletedThroughTheCache) {
  disk.most = 5000;
  ExpectSameBytes(Source());
}

TEST_F(DirectRead, ThatTheDiskRefusesIsNotTriedAgain) {
  disk.failure = EINVAL;
  ExpectSameBytes(Source());
  EXPECT_LE(disk.reads, 1);
}

// Whether the file is damaged shows in the ordinary read, whose error names it.
TEST_F(DirectRead, ThatFailsIsReadOnceMoreThroughTheCache) {
  disk.failure = EIO;
  ExpectSameBytes(Source());
  EXPECT_GT(disk.reads, 1);
}

TEST_F(DirectRead, PastTheEndNamesTheFileAndWhereItEnds) {
  const FdByteSource source = Source();
  std::vector<std::uint8_t> out(4096);
  const Status read = source.ReadAt(kFileBytes - 100, out);
  ASSERT_THAT(read, FailsWith(Code::kCorrupt));
  EXPECT_THAT(read.error().message, HasSubstr("'m.bin'"));
  EXPECT_THAT(read.error().message, HasSubstr(Format("ends at %zu", kFileBytes)));
}

TEST_F(DirectRead, OfAFileCutShortNamesItAndSaysThatItChanged) {
  const FdByteSource source = Source();
  std::filesystem::resize_file(path_, 1u << 20);
  std::vector<std::uint8_t> out(1u << 20);
  ASSERT_THAT(source.ReadAt(4u << 20, out), FailsWith(Code::kCorrupt));
  const Status unchanged = source.CheckUnchanged();
  ASSERT_THAT(unchanged, FailsWith(Code::kCorrupt));
  EXPECT_THAT(unchanged.error().message, HasSubstr("changed while it was loaded"));
}

TEST_F(DirectRead, IsNotForSmallFiles) {
  const UniqueFd fd = Open();
  EXPECT_EQ(DirectFile::Open(fd.get(), DirectFile::kFileBytesMin - 1, {}), nullptr);
}

// With the kernel's own word for what is in the cache: some pieces are, some are not.
TEST_F(DirectRead, GivesTheSameBytesOfAFileThatIsPartlyInThePageCache) {
  const UniqueFd fd = Open();
  ASSERT_EQ(::fdatasync(fd.get()), 0);
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  std::vector<char> some(1u << 20);
  ASSERT_GT(::pread(fd.get(), some.data(), some.size(), 2u << 20), 0);

  const FdByteSource source(Open(), "m.bin", ReadBy::kDisk, {DiskPread, ::mincore});
  ExpectSameBytes(source);
}

TEST_F(DirectRead, HowMuchIsInThePageCacheIsKnownAbout) {
  EXPECT_EQ(Source().CachedBytes(), 0u);
  disk.in_cache = true;
  EXPECT_GT(Source().CachedBytes(), kFileBytes - 256);
  EXPECT_LE(Source().CachedBytes(), kFileBytes);
}

TEST(Reading, OfWhatIsCachedTakesAThreadForEachCpuAndElseManyThatWait) {
  constexpr std::uint64_t kGib = 1u << 30;
  EXPECT_EQ(ChooseReading(kGib, kGib, 2).thread_count, 2);
  EXPECT_EQ(ChooseReading(kGib / 2, kGib, 4).thread_count, 4);
  EXPECT_EQ(ChooseReading(kGib, kGib, 200).thread_count, 8);
  EXPECT_EQ(ChooseReading(kGib / 2 - 1, kGib, 2).thread_count, 16);
  EXPECT_EQ(ChooseReading(0, kGib, 200).thread_count, 32);
  EXPECT_EQ(ChooseReading(0, 0, 1).thread_count, 1);
}

TEST(FdByteSource, AFailureOfTheFileNamesItAndTheOffset) {
  const FdByteSource source(UniqueFd(::open("/", O_RDONLY | O_CLOEXEC)), "m.bin", ReadBy::kDisk);
  std::vector<std::uint8_t> out(16);
  const Status read = source.ReadAt(77, out);
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr("'m.bin' at 77"));
}

TEST(FdByteSource, WhereThereIsNoDirectReadingTheCacheServes) {
  const UniqueFd memory(::memfd_create("m", MFD_CLOEXEC));
  const std::string text = RandomText(2u << 20);
  ASSERT_EQ(::write(memory.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  const FdByteSource source(UniqueFd(::dup(memory.get())), "m.bin", ReadBy::kDisk);
  std::vector<std::uint8_t> out(text.size() - 1);
  ASSERT_THAT(source.ReadAt(1, out), IsOk());
  EXPECT_EQ(std::memcmp(out.data(), text.data() + 1, out.size()), 0);
}

// --- pages --------------------------------------------------------------------------------------

// An address range that is never touched.
std::span<std::uint8_t> Untouched(std::uint64_t size_bytes) {
  void* const at =
      ::mmap(nullptr, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT_NE(at, MAP_FAILED);
  return {static_cast<std::uint8_t*>(at), static_cast<std::size_t>(size_bytes)};
}

constexpr std::uint64_t kStretch = PresentPages::kStretchBytes;

TEST(PresentPages, EachStretchIsMadeOnceBeforeItsFirstWriterGoesOnHoweverManyThereAre) {
  const std::span<std::uint8_t> arena = Untouched(9 * kStretch + 4096);
  std::mutex mutex;
  std::set<std::uint64_t> made;
  std::uint64_t bytes = 0;
  PresentPages pages(
      arena,
      [&](std::span<std::uint8_t> part) {
        const std::scoped_lock lock(mutex);
        EXPECT_TRUE(made.insert(static_cast<std::uint64_t>(part.data() - arena.data())).second);
        bytes += part.size();
        return Status(Ok{});
      },
      /*maker_count=*/3);
  std::atomic<std::uint64_t> next{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 16; ++i) {
      threads.emplace_back([&] {
        for (std::uint64_t at = next.fetch_add(kStretch / 8); at < arena.size();
             at = next.fetch_add(kStretch / 8)) {
          EXPECT_THAT(pages.WaitFor(at), IsOk());
          const std::scoped_lock lock(mutex);
          EXPECT_TRUE(made.contains(at / kStretch * kStretch));
        }
      });
    }
  }
  EXPECT_EQ(made.size(), 10u);
  EXPECT_EQ(bytes, arena.size());
  ::munmap(arena.data(), arena.size());
}

TEST(PresentPages, NoMoreThreadsMakeThemThanAreAllowed) {
  const std::span<std::uint8_t> arena = Untouched(20 * kStretch);
  std::atomic<int> now{0};
  std::atomic<int> most{0};
  PresentPages pages(
      arena,
      [&](std::span<std::uint8_t>) {
        const int count = ++now;
        for (int seen = most; count > seen && !most.compare_exchange_weak(seen, count);) continue;
        std::this_thread::yield();
        --now;
        return Status(Ok{});
      },
      /*maker_count=*/2);
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t i = 0; i < 20; ++i) {
      threads.emplace_back([&pages, i] { EXPECT_THAT(pages.WaitFor(i * kStretch), IsOk()); });
    }
  }
  EXPECT_LE(most, 2);
  ::munmap(arena.data(), arena.size());
}

TEST(PresentPages, WantOfMemoryIsToldToEveryWriter) {
  const std::span<std::uint8_t> arena = Untouched(4 * kStretch);
  PresentPages pages(
      arena,
      [&](std::span<std::uint8_t>) {
        return Status(Error{Code::kOutOfMemory, "make pages present"});
      },
      /*maker_count=*/2);
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t i = 0; i < 4; ++i) {
      threads.emplace_back(
          [&pages, i] { EXPECT_THAT(pages.WaitFor(i * kStretch), FailsWith(Code::kOutOfMemory)); });
    }
  }
  ::munmap(arena.data(), arena.size());
}

// Without its pages no byte is written: to write them would be a SIGBUS, or a segmentation fault.
TEST(PresentPages, AFillWithoutMemoryIsATypedErrorAndWritesNothing) {
  const std::span<std::uint8_t> arena = Untouched(1u << 20);
  weights::LoadPlan plan;
  plan.arena_bytes = arena.size();
  FillOptions options;
  options.thread_count = 4;
  options.make_present = [](std::span<std::uint8_t>) {
    return Status(Error{Code::kOutOfMemory, "make pages present"});
  };
  EXPECT_THAT(FillArena(plan, {}, arena, options), FailsWith(Code::kOutOfMemory));

  options.make_present = [](std::span<std::uint8_t> part) {
    EXPECT_EQ(::mprotect(part.data(), part.size(), PROT_READ | PROT_WRITE), 0);
    return Status(Ok{});
  };
  EXPECT_THAT(FillArena(plan, {}, arena, options), IsOk());
  ::munmap(arena.data(), arena.size());
}

}  // namespace
}  // namespace sticky::load
