// Builders, with the real daemon: any process makes a state; whatever it does wrong, or if it dies,
// is its own loss.

#include "shim/include/stickyinvoc/build.h"

#include <algorithm>
#include <cstring>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "flatbuffers/wire_manifest.h"
#include "tests/testing/daemon_process.h"
#include "tests/testing/matchers.h"

namespace sticky::testing {
namespace {

using ::testing::HasSubstr;
using wire::StatePhase;

constexpr std::uint64_t kBytes = 1u << 20;

class BuildTest : public ::testing::Test {
 protected:
  sti_build_options Options(const char* state) const {
    sti_build_options options{};
    options.struct_bytes = sizeof options;
    options.state = state;
    options.socket_path = socket_.c_str();
    options.builder = "build_test 1";
    return options;
  }
  sti_build* Begin(const char* state) {
    const sti_build_options options = Options(state);
    sti_build* build = nullptr;
    EXPECT_EQ(sti_build_begin(&options, &build, &error_), STI_OK) << error_.message;
    return build;
  }
  std::uint8_t* Arena(sti_build* build, std::uint64_t size_bytes = kBytes) {
    std::uint32_t index = 0;
    void* memory = nullptr;
    EXPECT_EQ(sti_build_arena(build, size_bytes, 0, &index, &memory, &error_), STI_OK)
        << error_.message;
    return static_cast<std::uint8_t*>(memory);
  }
  int Add(sti_build* build, const char* name, int dtype, const std::vector<std::int64_t>& shape,
          std::uint32_t arena, std::uint64_t offset) {
    sti_build_tensor tensor{};
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.rank = static_cast<std::int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), tensor.shape);
    tensor.arena = arena;
    tensor.offset = offset;
    return sti_build_add_tensor(build, &tensor, &error_);
  }
  int AddBytes(sti_build* build, const char* name, std::int64_t count, std::uint64_t offset = 0) {
    return Add(build, name, STI_U8, {count}, 0, offset);
  }
  // A whole state of kBytes bytes of `value`.
  void Make(const char* state, std::uint8_t value, const char* base = nullptr) {
    sti_build_options options = Options(state);
    options.base = base;
    sti_build* build = nullptr;
    ASSERT_EQ(sti_build_begin(&options, &build, &error_), STI_OK) << error_.message;
    std::memset(Arena(build), value, kBytes);
    ASSERT_EQ(AddBytes(build, "data", kBytes), STI_OK) << error_.message;
    ASSERT_EQ(sti_build_commit(build, &error_), STI_OK) << error_.message;
    sti_build_end(build);
  }
  sti_state* Attach(const char* state, std::uint32_t wait_ms = 0) {
    sti_attach_options options{};
    options.struct_bytes = sizeof options;
    options.socket_path = socket_.c_str();
    options.wait_ms = wait_ms;
    sti_state* attached = nullptr;
    sti_attach(state, &options, &attached, &error_);
    return attached;
  }
  bool UsedBecomes(std::uint64_t bytes) {
    WireClient client = daemon_.Client();
    return WaitUntil([&] { return client.Status().value().used_bytes == bytes; });
  }

  static DaemonOptions Small() {
    DaemonOptions options;
    options.arguments = {"--memory", "16MiB"};
    return options;
  }
  DaemonProcess daemon_{Small()};
  const std::string socket_ = daemon_.socket_path();
  sti_error error_{};
};

TEST_F(BuildTest, WhatABuilderFilledIsWhatOthersRead) {
  sti_build* build = Begin("table");
  std::uint8_t* const memory = Arena(build);
  for (std::uint64_t i = 0; i < kBytes; ++i) memory[i] = static_cast<std::uint8_t>(i % 251);
  ASSERT_EQ(Add(build, "head", STI_F32, {2, 128}, 0, 256), STI_OK);
  ASSERT_EQ(sti_build_add_asset(build, "all", 0, 0, kBytes, &error_), STI_OK);
  EXPECT_EQ(Attach("table"), nullptr) << "nobody sees it before the commit";
  EXPECT_EQ(error_.code, STI_UNAVAILABLE);

  ASSERT_EQ(sti_build_commit(build, &error_), STI_OK) << error_.message;
  sti_build_end(build);

  sti_state* const state = Attach("table");
  ASSERT_NE(state, nullptr) << error_.message;
  sti_tensor head{};
  ASSERT_EQ(sti_tensor_find(state, "head", &head, &error_), STI_OK);
  EXPECT_EQ(head.rank, 2);
  EXPECT_EQ(static_cast<const std::uint8_t*>(head.data)[0], 256 % 251);
  const void* all = nullptr;
  std::uint64_t size_bytes = 0;
  ASSERT_EQ(sti_asset_find(state, "all", &all, &size_bytes, &error_), STI_OK);
  EXPECT_EQ(size_bytes, kBytes);
  EXPECT_EQ(static_cast<const std::uint8_t*>(all)[kBytes - 1], (kBytes - 1) % 251);
  sti_detach(state);
  const wire::StateInfo info = daemon_.Client().Show("table").value();
  EXPECT_EQ(info.builder, "build_test 1");
  EXPECT_TRUE(info.content_digest.has_value());
}

TEST_F(BuildTest, WhoeverWaitsForItIsAnsweredAtTheCommit) {
  sti_build* build = Begin("table");
  Arena(build);
  ASSERT_EQ(AddBytes(build, "data", kBytes), STI_OK);
  WireClient client = daemon_.Client();
  const auto asked = client.Send(wire::AttachRequest{"table", {}, 20'000, false});
  ASSERT_THAT(asked, IsOk());

  ASSERT_EQ(sti_build_commit(build, &error_), STI_OK) << error_.message;

  EXPECT_THAT(client.Answer(asked.value()), IsOk());
  sti_build_end(build);
}

TEST_F(BuildTest, SameBytesHaveTheSameDigestHoweverTheyCame) {
  Make("one", 7);
  Make("two", 7);
  Make("three", 8);

  WireClient client = daemon_.Client();
  const auto digest = [&](const char* state) { return client.Show(state).value().content_digest; };
  EXPECT_EQ(digest("one"), digest("two"));
  EXPECT_NE(digest("one"), digest("three"));
}

TEST_F(BuildTest, SeveralArenasAreOneState) {
  sti_build* build = Begin("many");
  for (std::uint32_t i = 0; i < 3; ++i) {
    std::uint32_t index = 0;
    void* memory = nullptr;
    ASSERT_EQ(sti_build_arena(build, 4096 * (i + 1), 0, &index, &memory, &error_), STI_OK);
    ASSERT_EQ(index, i);
    std::memset(memory, static_cast<int>(i + 1), 4096 * (i + 1));
    const std::int64_t count = 4096 * (i + 1);
    const std::string name(1, static_cast<char>('a' + i));
    ASSERT_EQ(Add(build, name.c_str(), STI_U8, {count}, i, 0), STI_OK);
  }
  ASSERT_EQ(sti_build_commit(build, &error_), STI_OK) << error_.message;
  sti_build_end(build);

  sti_state* const state = Attach("many");
  ASSERT_NE(state, nullptr) << error_.message;
  sti_tensor c{};
  ASSERT_EQ(sti_tensor_find(state, "c", &c, &error_), STI_OK);
  EXPECT_EQ(c.size_bytes, 3u * 4096);
  EXPECT_EQ(static_cast<const std::uint8_t*>(c.data)[3 * 4096 - 1], 3);
  sti_detach(state);
  EXPECT_EQ(daemon_.Client().Status().value().used_bytes, 6u * 4096);
}

TEST_F(BuildTest, ABuilderThatDiesBeforeItCommitsLeavesNothing) {
  Process child = Process::Fork([&] {
    sti_build* build = Begin("table");
    std::memset(Arena(build), 1, kBytes);
    ::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(child.Wait().value_or(ExitStatus{}).signal, SIGKILL);

  EXPECT_TRUE(UsedBecomes(0));
  EXPECT_EQ(Attach("table"), nullptr);
  Make("table", 1);  // the name is free
}

TEST_F(BuildTest, ABuildThatIsGivenUpLeavesNothing) {
  sti_build* build = Begin("table");
  Arena(build);
  sti_build_end(build);

  EXPECT_TRUE(UsedBecomes(0));
}

TEST_F(BuildTest, WhatStillPointsIntoAnArenaAfterTheCommitTouchesNothingOfTheState) {
  sti_build* build = Begin("table");
  std::uint8_t* const memory = Arena(build);
  std::memset(memory, 7, kBytes);
  ASSERT_EQ(AddBytes(build, "data", kBytes), STI_OK);
  ASSERT_EQ(sti_build_commit(build, &error_), STI_OK) << error_.message;

  EXPECT_EQ(memory[kBytes - 1], 0);
  memory[0] = 1;

  sti_state* const state = Attach("table");
  ASSERT_NE(state, nullptr) << error_.message;
  sti_tensor data{};
  ASSERT_EQ(sti_tensor_find(state, "data", &data, &error_), STI_OK);
  EXPECT_EQ(static_cast<const std::uint8_t*>(data.data)[0], 7);
  sti_detach(state);
  void* more = nullptr;
  std::uint32_t index = 0;
  EXPECT_EQ(sti_build_arena(build, kBytes, 0, &index, &more, &error_), -STI_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("committed"));
  sti_build_end(build);
}

TEST_F(BuildTest, ABuildThatIsGivenUpIsGoneBeforeItIsEnded) {
  sti_build* build = Begin("table");
  std::uint8_t* const memory = Arena(build);

  sti_build_give_up(build);

  EXPECT_TRUE(UsedBecomes(0));
  memory[0] = 1;
  EXPECT_EQ(sti_build_commit(build, &error_), -STI_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("given up"));
  Make("table", 1);  // the name is free
  sti_build_end(build);
}

TEST_F(BuildTest, AWritableMappingAnywhereKeepsItFromBeingCommittedUntilItIsGone) {
  sti_build* build = Begin("table");
  Arena(build);
  ASSERT_EQ(AddBytes(build, "data", kBytes), STI_OK);
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();  // it inherits the mapping
  if (child == 0) {
    char byte = 0;
    ::close(pipe[1]);
    ::_exit(::read(pipe[0], &byte, 1) == 0 ? 0 : 1);
  }
  ::close(pipe[0]);

  EXPECT_EQ(sti_build_commit(build, &error_), -STI_UNAVAILABLE);
  EXPECT_THAT(error_.message, HasSubstr("writable mapping"));
  ::close(pipe[1]);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);

  EXPECT_EQ(sti_build_commit(build, &error_), STI_OK) << error_.message;
  sti_build_end(build);
}

TEST_F(BuildTest, WhatDoesNotLieInItsArenaIsRefusedAndTheBuildGoesOn) {
  sti_build* build = Begin("table");
  Arena(build);

  EXPECT_EQ(AddBytes(build, "long", kBytes + 1), -STI_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("do not lie in arena 0"));
  EXPECT_EQ(AddBytes(build, "late", 1, kBytes + 256), -STI_INVALID_ARGUMENT);
  EXPECT_EQ(AddBytes(build, "odd", 1, 3), -STI_INVALID_ARGUMENT);
  EXPECT_EQ(AddBytes(build, "", 1), -STI_INVALID_ARGUMENT);
  EXPECT_EQ(Add(build, "huge", STI_F64, {INT64_MAX, INT64_MAX}, 0, 0), -STI_INVALID_ARGUMENT);
  EXPECT_EQ(sti_build_add_asset(build, "none", 1, 0, 1, &error_), -STI_INVALID_ARGUMENT);
  EXPECT_EQ(AddBytes(build, "data", kBytes), STI_OK) << error_.message;

  EXPECT_EQ(sti_build_commit(build, &error_), STI_OK) << error_.message;
  sti_build_end(build);
}

TEST_F(BuildTest, ANameThatStandsTwiceIsRefusedAtTheCommit) {
  sti_build* build = Begin("table");
  Arena(build);
  ASSERT_EQ(AddBytes(build, "data", 1), STI_OK);
  ASSERT_EQ(AddBytes(build, "data", 2), STI_OK);

  EXPECT_EQ(sti_build_commit(build, &error_), -STI_CORRUPT);
  EXPECT_THAT(error_.message, HasSubstr("'data'"));
  sti_build_end(build);
  EXPECT_TRUE(UsedBecomes(0));
}

TEST_F(BuildTest, ABuilderThatTakesTooLongIsGivenUp) {
  sti_build_options options = Options("table");
  options.deadline_ms = 50;
  sti_build* build = nullptr;
  ASSERT_EQ(sti_build_begin(&options, &build, &error_), STI_OK) << error_.message;
  Arena(build);
  WireClient client = daemon_.Client();
  ASSERT_TRUE(WaitUntil([&] { return client.Show("table").value().phase == StatePhase::kClosing; }))
      << "its memory counts while the builder maps it";
  EXPECT_EQ(client.Status().value().used_bytes, kBytes);

  EXPECT_NE(sti_build_commit(build, &error_), STI_OK);
  sti_build_end(build);

  EXPECT_TRUE(UsedBecomes(0));
}

TEST_F(BuildTest, AnArenaOverTheBudgetIsRefusedAndASmallerOneIsGiven) {
  sti_build* build = Begin("table");
  std::uint32_t index = 0;
  void* memory = nullptr;

  EXPECT_EQ(sti_build_arena(build, 17u << 20, 0, &index, &memory, &error_), -STI_OUT_OF_MEMORY);
  EXPECT_THAT(error_.message, HasSubstr("whole budget"));
  for (const std::uint64_t no_size : {0ULL, (1ULL << 48) + 1, 1ULL << 63}) {
    EXPECT_EQ(sti_build_arena(build, no_size, 0, &index, &memory, &error_), -STI_INVALID_ARGUMENT);
  }

  EXPECT_NE(Arena(build), nullptr);
  sti_build_end(build);
}

TEST_F(BuildTest, ANameIsBuiltByOneAtATimeAndNotTwice) {
  sti_build* build = Begin("table");
  const sti_build_options options = Options("table");
  sti_build* other = nullptr;
  EXPECT_EQ(sti_build_begin(&options, &other, &error_), -STI_UNAVAILABLE);
  sti_build_end(build);
  Make("table", 1);

  EXPECT_EQ(sti_build_begin(&options, &other, &error_), -STI_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("use another name, or replace it"));
}

TEST_F(BuildTest, OfTheSameRecipeThereIsNothingToBuildAgain) {
  const std::uint8_t recipe[16] = {1, 2, 3};
  sti_build_options options = Options("table");
  options.recipe_digest = recipe;
  for (const int is_there : {0, 1}) {
    sti_build* build = nullptr;
    ASSERT_EQ(sti_build_begin(&options, &build, &error_), STI_OK) << error_.message;
    EXPECT_EQ(sti_build_is_there(build), is_there);
    if (is_there == 0) Arena(build);
    EXPECT_EQ(sti_build_commit(build, &error_), STI_OK) << error_.message;
    sti_build_end(build);
  }
}

TEST_F(BuildTest, ADerivedStateKeepsItsBase) {
  Make("base", 1);
  Make("derived", 2, "base");
  WireClient client = daemon_.Client();
  const wire::StateInfo derived = client.Show("derived").value();
  EXPECT_EQ(derived.base, "base");

  ASSERT_THAT(client.Ask(wire::EvictRequest{"base", 0}), IsOk());
  EXPECT_EQ(client.Show("base").value().phase, StatePhase::kDraining);
  ASSERT_THAT(client.Ask(wire::EvictRequest{"derived", 5000}), IsOk());

  EXPECT_TRUE(UsedBecomes(0));
}

// What a builder of ill will can do with a descriptor that it may write to.
TEST_F(BuildTest, HolesPunchedIntoAnArenaAreFoundAtTheCommit) {
  WireClient client = daemon_.Client();
  ASSERT_THAT(client.Ask(wire::BuildRequest{.state = "holes"}), IsOk());
  Result<wire::Received> arena = client.Ask(wire::BuildArenaRequest{kBytes, 0});
  ASSERT_THAT(arena, IsOk());
  const int fd = arena.value().fds.at(0).get();
  EXPECT_NE(::ftruncate(fd, 4096), 0) << "its size is sealed from the start";
  EXPECT_NE(::ftruncate(fd, 2 * kBytes), 0);
  ASSERT_EQ(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 64 << 10), 0);
  arena.value().fds.clear();
  wire::Manifest draft;
  draft.state = "holes";
  draft.device = "host";
  draft.arena_bytes = {kBytes};
  const UniqueFd table = wire::MakeBlob(wire::EncodeManifest(draft)).value();

  const Result<std::uint32_t> asked = client.Send(wire::BuildCommitRequest{}, {table.get()});
  const Result<wire::Received> answer = client.Answer(asked.value());

  ASSERT_THAT(answer, FailsWith(Code::kCorrupt));
  EXPECT_THAT(answer.error().message, HasSubstr("bytes are present"));
  client.Close();
  EXPECT_EQ(Attach("holes"), nullptr);
}

TEST_F(BuildTest, RequestsOutOfTurnAreRefusedByName) {
  WireClient client = daemon_.Client();
  EXPECT_THAT(client.Ask(wire::BuildArenaRequest{4096, 0}), FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(client.Ask(wire::BuildCommitRequest{}), FailsWith(Code::kInvalidArgument));
  ASSERT_THAT(client.Ask(wire::BuildRequest{.state = "a"}), IsOk());
  EXPECT_THAT(client.Ask(wire::BuildRequest{.state = "b"}), FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(client.Ask(wire::BuildCommitRequest{}), FailsWith(Code::kInvalidArgument));
  wire::BuildRequest derived{.state = "c"};
  derived.base = "none";
  EXPECT_THAT(daemon_.Client().Ask(derived), FailsWith(Code::kNotFound));
}

}  // namespace
}  // namespace sticky::testing
