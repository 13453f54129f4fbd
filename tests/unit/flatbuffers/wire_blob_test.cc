// Messages too large for a frame arrive all the same, and a memfd is trusted only when it is
// sealed and of the size that was said.

#include "flatbuffers/wire_blob.h"

#include <fstream>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "tests/testing/matchers.h"
#include "tests/unit/flatbuffers/sample_messages.h"

namespace sticky::wire {
namespace {

using sticky::testing::FailsWith;
using sticky::testing::IsOk;

constexpr int kSoonMs = 2000;

ListReply LongList() {
  ListReply list;
  for (int i = 0; i < 1000; ++i) list.states.push_back(SampleState());
  return list;
}

// A memfd with `bytes` and only `seals`.
UniqueFd Memfd(const std::vector<std::uint8_t>& bytes, int seals) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

constexpr int kSealed = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;

Frame BlobFrame(std::uint64_t size_bytes, UniqueFd fd) {
  Frame frame;
  frame.bytes = Encode({7, Blob{size_bytes}});
  if (fd.valid()) frame.fds.push_back(std::move(fd));
  return frame;
}

TEST(WireBlob, ALongMessageArrivesWithItsDescriptors) {
  int fds[2] = {-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
  const UniqueFd left(fds[0]);
  const UniqueFd right(fds[1]);
  const Message sent{9, LongList()};
  const int extra = 0;

  ASSERT_THAT(SendMessage(left.get(), sent, {&extra, 1}, Deadline::AfterMs(kSoonMs)), IsOk());
  const Result<Received> got = ReceiveMessage(right.get(), Deadline::AfterMs(kSoonMs));

  ASSERT_THAT(got, IsOk());
  EXPECT_EQ(got.value().message.request_id, 9u);
  EXPECT_EQ(got.value().message.body, sent.body);
  EXPECT_EQ(got.value().fds.size(), 1u);
}

TEST(WireBlob, AnUnsealedMemfdIsCorrupt) {
  const std::vector<std::uint8_t> bytes = Encode({7, LongList()});
  for (const int seals :
       {0, F_SEAL_WRITE, F_SEAL_WRITE | F_SEAL_GROW, F_SEAL_SHRINK | F_SEAL_GROW}) {
    EXPECT_THAT(DecodeFrame(BlobFrame(bytes.size(), Memfd(bytes, seals))),
                FailsWith(Code::kCorrupt))
        << seals;
  }
  EXPECT_THAT(DecodeFrame(BlobFrame(bytes.size(), Memfd(bytes, kSealed))), IsOk());
}

TEST(WireBlob, ADescriptorThatIsNoMemfdIsCorrupt) {
  UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_THAT(DecodeFrame(BlobFrame(100, std::move(file))), FailsWith(Code::kCorrupt));
  EXPECT_THAT(DecodeFrame(BlobFrame(100, UniqueFd())), FailsWith(Code::kCorrupt));
}

TEST(WireBlob, AnotherSizeThanWasSaidIsCorrupt) {
  const std::vector<std::uint8_t> bytes = Encode({7, LongList()});
  for (const std::uint64_t said : {bytes.size() - 8, bytes.size() + 8, std::size_t{1}}) {
    EXPECT_THAT(DecodeFrame(BlobFrame(said, Memfd(bytes, kSealed))), FailsWith(Code::kCorrupt));
  }
  EXPECT_THAT(DecodeFrame(BlobFrame(8, Memfd({}, kSealed))), FailsWith(Code::kCorrupt));
}

TEST(WireBlob, ABlobInsideABlobIsCorrupt) {
  const std::vector<std::uint8_t> bytes = Encode({7, Blob{100}});

  EXPECT_THAT(DecodeFrame(BlobFrame(bytes.size(), Memfd(bytes, kSealed))),
              FailsWith(Code::kCorrupt));
}

TEST(SealedView, MapsWhatMakeBlobMade) {
  const std::vector<std::uint8_t> bytes(5000, 3);
  const UniqueFd fd = MakeBlob(bytes).value();

  const SealedView view = SealedView::Map(fd.get(), bytes.size()).value();

  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), view.bytes().begin(), view.bytes().end()));
  EXPECT_THAT(SealedView::Map(fd.get(), bytes.size() - 1), FailsWith(Code::kCorrupt));
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, fd.get(), 0), MAP_FAILED);
}

// Of this process' address space.
std::uint64_t MappedPages() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages;
}

TEST(SealedView, LargeOnesBeginOnAHugePageAndLeaveNothingBehind) {
  for (const std::size_t size : {(2u << 20) - 1, 2u << 20, (2u << 20) + 1, (6u << 20) + 5000}) {
    UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
    ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, kSealed), 0);
    const std::uint64_t before = MappedPages();
    {
      const SealedView view = SealedView::Map(fd.get(), size).value();
      if (size >= 2u << 20) {
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.bytes().data()) % (2u << 20), 0u) << size;
      }
      EXPECT_EQ(view.bytes().back(), 0);
      EXPECT_EQ(MappedPages(), before + (size + 4095) / 4096);
    }
    EXPECT_EQ(MappedPages(), before) << size;
  }
}

}  // namespace
}  // namespace sticky::wire
