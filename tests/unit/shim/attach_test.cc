// An invocation's view of a daemon that behaves: what it attaches to it can read in place and never
// write, from many threads, and its lease ends with it and not with a child of it.

#include <cstring>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <sys/mman.h>

#include "tests/unit/shim/shim_fixture.h"

namespace sticky::shim {
namespace {

using sticky::testing::FakeDaemon;
using sticky::testing::SampleState;
using ::testing::HasSubstr;

class AttachTest : public ShimTest {
 protected:
  SampleState sample_;
  FakeDaemon daemon_{FakeDaemon::Honest(sample_)};
};

TEST_F(AttachTest, EveryTensorIsFoundWithItsBytes) {
  const StatePtr state = Attach(daemon_);
  ASSERT_NE(state, nullptr) << error_.message;

  for (const wire::ManifestTensor& want : sample_.manifest().tensors) {
    SCOPED_TRACE(want.name);
    sti_tensor got{};
    ASSERT_EQ(sti_tensor_find(state.get(), want.name.c_str(), &got, &error_), STI_OK);
    EXPECT_EQ(got.name, want.name);
    EXPECT_EQ(got.dtype, static_cast<int>(want.dtype));
    ASSERT_EQ(got.rank, static_cast<int>(want.shape.size()));
    EXPECT_EQ(got.size_bytes, want.size_bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(got.data) % 256, 0u);
    for (int i = 0; i < STI_RANK_MAX; ++i) {
      const auto rank = static_cast<std::size_t>(i);
      EXPECT_EQ(got.shape[i], i < got.rank ? want.shape[rank] : 1);
    }
    for (std::uint64_t i = 0; i < got.size_bytes; ++i) {
      ASSERT_EQ(static_cast<const std::uint8_t*>(got.data)[i],
                SampleState::ByteAt(want.offset + i));
    }
  }
}

TEST_F(AttachTest, TensorsAreIteratedInOrderOfName) {
  const StatePtr state = Attach(daemon_);
  ASSERT_NE(state, nullptr) << error_.message;

  std::vector<std::string> names;
  sti_tensor tensor{};
  for (std::uint32_t i = 0; sti_tensor_at(state.get(), i, &tensor, &error_) == STI_OK; ++i) {
    names.emplace_back(tensor.name);
  }

  EXPECT_EQ(names.size(), sample_.manifest().tensors.size());
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(error_.code, STI_INVALID_ARGUMENT);
}

TEST_F(AttachTest, AssetsAreReadInPlace) {
  const StatePtr state = Attach(daemon_);
  ASSERT_NE(state, nullptr) << error_.message;

  const void* data = nullptr;
  std::uint64_t size_bytes = 0;
  ASSERT_EQ(sti_asset_find(state.get(), "config.json", &data, &size_bytes, &error_), STI_OK);

  EXPECT_EQ(std::string(static_cast<const char*>(data), size_bytes), "{\"layers\":1");
  EXPECT_STREQ(sti_asset_name_at(state.get(), 0), "config.json");
  EXPECT_STREQ(sti_asset_name_at(state.get(), 1), "vocabulary");
  EXPECT_EQ(sti_asset_name_at(state.get(), 2), nullptr);
}

TEST_F(AttachTest, InfoSaysWhatIsAttached) {
  const StatePtr state = Attach(daemon_);
  ASSERT_NE(state, nullptr) << error_.message;

  sti_state_info info{};
  info.struct_bytes = sizeof info;
  ASSERT_EQ(sti_state_info_get(state.get(), &info, &error_), STI_OK);

  EXPECT_STREQ(info.name, "sample");
  EXPECT_STREQ(info.device, "host");
  EXPECT_EQ(info.epoch, 3u);
  EXPECT_EQ(info.daemon_nonce, 77u);
  EXPECT_EQ(info.lease_id, 42u);
  EXPECT_EQ(info.arena_bytes, 4096u);
  EXPECT_EQ(info.adopted, 0u);
  EXPECT_EQ(info.tensor_count, sample_.manifest().tensors.size());
  EXPECT_EQ(info.asset_count, 2u);
  EXPECT_EQ(0, std::memcmp(info.content_digest, sample_.manifest().content_digest->bytes.data(),
                           sizeof info.content_digest));
}

TEST_F(AttachTest, WhatIsNotThereIsNotFoundByName) {
  const StatePtr state = Attach(daemon_);
  ASSERT_NE(state, nullptr) << error_.message;
  sti_tensor tensor{};
  const void* data = nullptr;
  std::uint64_t size_bytes = 0;

  EXPECT_EQ(sti_tensor_find(state.get(), "no.such", &tensor, &error_), -STI_NOT_FOUND);
  EXPECT_EQ(error_.code, STI_NOT_FOUND);
  EXPECT_THAT(error_.message, HasSubstr("no.such"));
  EXPECT_EQ(sti_asset_find(state.get(), "none.json", &data, &size_bytes, &error_), -STI_NOT_FOUND);
  EXPECT_THAT(error_.message, HasSubstr("none.json"));
}

TEST_F(AttachTest, OneRoundTripAndOneConnection) {
  const StatePtr first = Attach(daemon_);
  const StatePtr second = Attach(daemon_);

  EXPECT_NE(first, nullptr);
  EXPECT_NE(second, nullptr);
  EXPECT_EQ(daemon_.accepted_count(), 2);
}

TEST_F(AttachTest, DetachEndsTheLeaseAndFreesTheArena) {
  const std::size_t before = OpenFdCount();
  StatePtr state = Attach(daemon_);
  ASSERT_NE(state, nullptr) << error_.message;
  EXPECT_TRUE(sample_.arena().HasBorrowers().value());

  state.reset();

  EXPECT_TRUE(daemon_.WaitForClosed(1));
  EXPECT_FALSE(sample_.arena().HasBorrowers().value());
  EXPECT_LE(OpenFdCount(), before);
}

TEST_F(AttachTest, DetachOfNullIsAllowed) { sti_detach(nullptr); }

TEST_F(AttachTest, WritingToATensorEndsTheWriterOnly) {
  const StatePtr state = Attach(daemon_);
  ASSERT_NE(state, nullptr) << error_.message;
  sti_tensor tensor{};
  ASSERT_EQ(sti_tensor_find(state.get(), "tied", &tensor, &error_), STI_OK);

  const int status = InChild([&] {
    ::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would turn it into an exit
    *static_cast<volatile std::uint8_t*>(const_cast<void*>(tensor.data)) = 1;
    return 0;
  });

  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
  EXPECT_EQ(*static_cast<const std::uint8_t*>(tensor.data), SampleState::ByteAt(12 * 256));
}

TEST_F(AttachTest, AMappingCannotBeMadeWritable) {
  const StatePtr state = Attach(daemon_);
  ASSERT_NE(state, nullptr) << error_.message;
  sti_tensor tensor{};
  ASSERT_EQ(sti_tensor_at(state.get(), 0, &tensor, &error_), STI_OK);
  auto* const bytes = static_cast<std::uint8_t*>(const_cast<void*>(tensor.data));
  void* const page = bytes - reinterpret_cast<std::uintptr_t>(bytes) % 4096;

  EXPECT_EQ(::mprotect(page, 4096, PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(errno, EACCES);
}

TEST_F(AttachTest, TheStateOutlivesTheDaemon) {
  const StatePtr state = Attach(daemon_);
  ASSERT_NE(state, nullptr) << error_.message;

  daemon_.Stop();

  sti_tensor tensor{};
  ASSERT_EQ(sti_tensor_find(state.get(), "tied", &tensor, &error_), STI_OK);
  EXPECT_EQ(*static_cast<const std::uint8_t*>(tensor.data), SampleState::ByteAt(12 * 256));
}

TEST_F(AttachTest, ManyThreadsReadAtOnce) {
  const StatePtr state = Attach(daemon_);
  ASSERT_NE(state, nullptr) << error_.message;
  std::atomic<int> wrong = 0;
  const auto read_all = [&] {
    for (const wire::ManifestTensor& want : sample_.manifest().tensors) {
      sti_tensor tensor{};
      sti_error error{};
      const int code = sti_tensor_find(state.get(), want.name.c_str(), &tensor, &error);
      if (code != STI_OK || tensor.size_bytes != want.size_bytes) ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) read_all();
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(wrong, 0);
}

TEST_F(AttachTest, ThreadsMayAttachAtTheSameTime) {
  std::atomic<int> attached = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      const sti_attach_options options = Options(daemon_);
      sti_state* state = nullptr;
      if (sti_attach("sample", &options, &state, nullptr) == STI_OK) ++attached;
      sti_detach(state);
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(attached, 8);
}

// Daemon case 21.
TEST_F(AttachTest, AChildOfForkIsTurnedAwayAndItsDetachLeavesTheParentsLease) {
  StatePtr state = Attach(daemon_);
  ASSERT_NE(state, nullptr) << error_.message;
  sti_tensor tensor{};
  ASSERT_EQ(sti_tensor_find(state.get(), "tied", &tensor, &error_), STI_OK);

  const int status = InChild([&] {
    sti_tensor other{};
    sti_state_info info{};
    info.struct_bytes = sizeof info;
    const void* data = nullptr;
    std::uint64_t size_bytes = 0;
    sti_error error{};
    if (sti_tensor_find(state.get(), "tied", &other, &error) != -STI_INVALID_ARGUMENT) return 1;
    if (std::strstr(error.message, "fork") == nullptr) return 2;
    if (sti_tensor_at(state.get(), 0, &other, &error) != -STI_INVALID_ARGUMENT) return 3;
    if (sti_state_info_get(state.get(), &info, &error) != -STI_INVALID_ARGUMENT) return 4;
    if (sti_asset_find(state.get(), "vocabulary", &data, &size_bytes, &error) !=
        -STI_INVALID_ARGUMENT) {
      return 5;
    }
    if (sti_asset_name_at(state.get(), 0) != nullptr) return 6;
    if (*static_cast<const std::uint8_t*>(tensor.data) != SampleState::ByteAt(12 * 256)) return 7;
    sti_detach(state.get());
    return 0;
  });

  EXPECT_TRUE(Exited(status, 0)) << status;
  EXPECT_EQ(daemon_.closed_count(), 0);
  EXPECT_EQ(sti_tensor_find(state.get(), "tied", &tensor, &error_), STI_OK);
  EXPECT_TRUE(sample_.arena().HasBorrowers().value());
  state.reset();
  EXPECT_TRUE(daemon_.WaitForClosed(1));
}

TEST_F(AttachTest, AChildOfForkMayAttachAnew) {
  const StatePtr state = Attach(daemon_);
  ASSERT_NE(state, nullptr) << error_.message;

  const int status = InChild([&] {
    const sti_attach_options options = Options(daemon_);
    sti_state* own = nullptr;
    if (sti_attach("sample", &options, &own, nullptr) != STI_OK) return 1;
    sti_tensor tensor{};
    return sti_tensor_find(own, "tied", &tensor, nullptr) == STI_OK ? 0 : 2;
  });

  EXPECT_TRUE(Exited(status, 0)) << status;
  EXPECT_TRUE(daemon_.WaitForClosed(1));  // the child's, by its exit
  EXPECT_EQ(daemon_.accepted_count(), 2);
  sti_tensor tensor{};
  EXPECT_EQ(sti_tensor_find(state.get(), "tied", &tensor, &error_), STI_OK);
}

TEST_F(AttachTest, AKilledInvocationEndsItsLease) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const sti_attach_options options = Options(daemon_);
    sti_state* own = nullptr;
    ::_exit(sti_attach("sample", &options, &own, nullptr) == STI_OK ? ::raise(SIGKILL) : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);

  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(daemon_.WaitForClosed(1));
  EXPECT_FALSE(sample_.arena().HasBorrowers().value());
}

TEST_F(AttachTest, AProgramThatIsExecutedDoesNotInheritTheLease) {
  const StatePtr state = Attach(daemon_);
  ASSERT_NE(state, nullptr) << error_.message;

  const int status = InChild([] {
    ::execl("/bin/sh", "sh", "-c", "ls -l /proc/self/fd | grep -c 'memfd\\|socket' | grep -qx 0",
            nullptr);
    return 1;
  });

  EXPECT_TRUE(Exited(status, 0)) << status;
}

}  // namespace
}  // namespace sticky::shim
