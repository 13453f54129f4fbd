// Whatever happens to a loader, in whichever phase, is one failed load with a reason: nothing is
// published, nothing is leaked, and the next load succeeds.

#include <algorithm>
#include <filesystem>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "tests/testing/daemon_process.h"
#include "tests/testing/matchers.h"

namespace sticky::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using wire::StatePhase;

constexpr std::uint64_t kBigBytes = 384ull << 20;

struct FileToSend {
  std::string path;
  wire::FileRole role;
};

Result<std::uint32_t> SendFiles(WireClient& client, wire::LoadRequest request,
                                const std::vector<FileToSend>& files) {
  request.file_count = static_cast<std::uint32_t>(files.size());
  STICKY_ASSIGN(const std::uint32_t id, client.Send(request));
  wire::FilesPart part;
  std::vector<UniqueFd> opened;
  std::vector<int> fds;
  for (const FileToSend& file : files) {
    const std::filesystem::path path(file.path);
    part.files.push_back({path.filename().string(), file.role, std::filesystem::file_size(path)});
    opened.emplace_back(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
    fds.push_back(opened.back().get());
  }
  STICKY_ASSIGN(const std::uint32_t sent, client.Send(part, fds));
  static_cast<void>(sent);
  return id;
}

// A loader that stops itself before it does anything, then goes on as the real one.
std::string StoppedLoader() {
  return "#!/bin/sh\nkill -STOP $$\nexec " + ProgramPrefix() +
         "/libexec/stickyinvoc/sticky-loader\n";
}

class LoaderFault : public ::testing::Test {
 protected:
  void Start(const std::string& config = {}) { StartWith(false, {}, config); }
  void StartWith(bool own_loader, const std::string& loader_script,
                 const std::string& config = {}) {
    DaemonOptions options;
    options.config = config;
    if (own_loader) options.program = MakeProgramTree(tree_, loader_script);
    daemon_.emplace(options);
    big_ = daemon_->folder() / "big.safetensors";
    small_ = daemon_->folder() / "small.safetensors";
    WriteTensorFile(big_, kBigBytes);
    WriteTensorFile(small_, 4096);
    descriptors_before_ = OpenDescriptors(daemon_->pid());
  }
  // The pid of the loader, stopped in `phase`; and the request that waits for its load.
  pid_t StopLoaderIn(StatePhase phase, WireClient& client, std::uint32_t* request_id,
                     wire::FileRole role = wire::FileRole::kWeights) {
    const Result<std::uint32_t> id = SendFiles(client, LoadRequestFor("m", 60'000), {{big_, role}});
    EXPECT_THAT(id, IsOk());
    *request_id = id.value();
    WireClient watcher = daemon_->Client();
    EXPECT_TRUE(WaitUntil([&] {
      const Result<wire::StateInfo> state = watcher.Show("m");
      return state.ok() && state.value().phase == phase && daemon_->LoaderPid().has_value() &&
             (phase == StatePhase::kPlanning || state.value().bytes_done > 0);
    }));
    const pid_t loader = daemon_->LoaderPid().value_or(0);
    EXPECT_GT(loader, 0);
    if (loader > 0) ::kill(loader, SIGSTOP);
    EXPECT_EQ(watcher.Show("m").value().phase, phase) << "too late";
    return loader;
  }
  // Nothing of the failed load is left, and the daemon loads as ever.
  void ExpectNothingIsLeft() {
    WireClient client = daemon_->Client();
    EXPECT_TRUE(WaitUntil([&] { return client.Status().value().used_bytes == 0; }));
    EXPECT_TRUE(WaitUntil([&] { return ChildrenOf(daemon_->pid()).empty(); }));
    EXPECT_THAT(client.Ask(wire::AttachRequest{"m", {}, 0, false}), ::testing::Not(IsOk()));
    EXPECT_TRUE(WaitUntil([&] {
      return OpenDescriptors(daemon_->pid()) <= descriptors_before_ + 2;
    })) << OpenDescriptors(daemon_->pid())
        << " descriptors, " << descriptors_before_ << " before";
  }
  void ExpectNextLoadSucceeds() {
    WireClient client = daemon_->Client();
    EXPECT_THAT(client.Load(LoadRequestFor("m"), small_), IsOk());
    EXPECT_THAT(client.Ask(wire::AttachRequest{"m", {}, 0, false}), IsOk());
  }

  TempFolder tree_;
  std::optional<DaemonProcess> daemon_;
  std::string big_;
  std::string small_;
  int descriptors_before_ = 0;
};

// Case 2.
TEST_F(LoaderFault, KilledWhileItPlans) {
  StartWith(true, StoppedLoader());
  WireClient client = daemon_->Client();
  std::uint32_t id = 0;
  const pid_t loader = StopLoaderIn(StatePhase::kPlanning, client, &id);

  ::kill(loader, SIGKILL);

  const Result<wire::Received> answer = client.Answer(id);
  ASSERT_THAT(answer, FailsWith(Code::kOutOfMemory));
  EXPECT_THAT(answer.error().message, HasSubstr("signal 9"));
  ExpectNothingIsLeft();
}

TEST_F(LoaderFault, KilledWhileItFills) {
  Start();
  WireClient client = daemon_->Client();
  std::uint32_t id = 0;
  const pid_t loader = StopLoaderIn(StatePhase::kFilling, client, &id);
  EXPECT_GE(daemon_->Client().Status().value().used_bytes, kBigBytes);

  ::kill(loader, SIGKILL);

  const Result<wire::Received> answer = client.Answer(id);
  ASSERT_THAT(answer, FailsWith(Code::kOutOfMemory));
  EXPECT_THAT(answer.error().message, HasSubstr("signal 9"));
  EXPECT_THAT(daemon_->Client().Show("m").value().failure->message, HasSubstr("signal 9"));
  ExpectNothingIsLeft();
  ExpectNextLoadSucceeds();
}

TEST_F(LoaderFault, HungWhileItPlansIsKilledAtTheDeadline) {
  StartWith(true, StoppedLoader(), "deadlines:\n  plan_ms: 500\n");
  WireClient client = daemon_->Client();

  const Result<wire::LoadReply> answer = client.Load(LoadRequestFor("m"), small_);

  ASSERT_THAT(answer, FailsWith(Code::kUnavailable));
  EXPECT_THAT(answer.error().message, HasSubstr("not read within 0.5 s"));
  ExpectNothingIsLeft();
}

TEST_F(LoaderFault, HungWhileItFillsIsKilledAtTheDeadline) {
  Start("deadlines:\n  fill_stall_ms: 3000\n");
  WireClient client = daemon_->Client();
  std::uint32_t id = 0;
  StopLoaderIn(StatePhase::kFilling, client, &id);

  const Result<wire::Received> answer = client.Answer(id);

  ASSERT_THAT(answer, FailsWith(Code::kUnavailable));
  EXPECT_THAT(answer.error().message, HasSubstr("stalled"));
  ExpectNothingIsLeft();
  ExpectNextLoadSucceeds();
}

TEST_F(LoaderFault, RequesterWhoDiesCancelsTheLoad) {
  Start();
  WireClient client = daemon_->Client();
  std::uint32_t id = 0;
  StopLoaderIn(StatePhase::kFilling, client, &id);

  client.Close();

  EXPECT_TRUE(
      WaitUntil([&] { return daemon_->Client().Show("m").value().phase == StatePhase::kFailed; }));
  ExpectNothingIsLeft();
  ExpectNextLoadSucceeds();
}

TEST_F(LoaderFault, EvictOfARunningLoadEndsIt) {
  Start();
  WireClient client = daemon_->Client();
  std::uint32_t id = 0;
  StopLoaderIn(StatePhase::kFilling, client, &id);

  const auto evicted = daemon_->Client().AskFor<wire::EvictReply>(wire::EvictRequest{"m", 0});

  ASSERT_THAT(evicted, IsOk());
  EXPECT_TRUE(evicted.value().freed);
  EXPECT_THAT(client.Answer(id), FailsWith(Code::kUnavailable));
  ExpectNothingIsLeft();
  ExpectNextLoadSucceeds();
}

TEST_F(LoaderFault, LoaderDiesWithItsDaemon) {
  Start();
  WireClient client = daemon_->Client();
  std::uint32_t id = 0;
  const pid_t loader = StopLoaderIn(StatePhase::kFilling, client, &id);

  daemon_->process().KillAndReap();

  // It is nobody's child that we could reap: gone, or waiting for init to do so.
  EXPECT_TRUE(WaitUntil([&] {
    const std::string status = ReadText(Format("/proc/%d/status", loader));
    return status.empty() || status.find("State:\tZ") != std::string::npos;
  }));
}

TEST_F(LoaderFault, LoaderIsTheFirstToGoAndTheLastToRun) {
  Start();
  WireClient client = daemon_->Client();
  std::uint32_t id = 0;
  const pid_t loader = StopLoaderIn(StatePhase::kFilling, client, &id);

  EXPECT_EQ(ReadText(Format("/proc/%d/oom_score_adj", loader)), "1000\n");
  EXPECT_GE(::getpriority(PRIO_PROCESS, static_cast<id_t>(loader)), 10);
  EXPECT_THAT(ReadText(Format("/proc/%d/limits", loader)),
              ::testing::ContainsRegex("Max core file size +0 +0"));
}

// --- loaders that lie -------------------------------------------------------------------------

struct Liar {
  const char* name;
  const char* script;
  const char* reason;  // part of the message
};

class LyingLoader : public LoaderFault, public ::testing::WithParamInterface<Liar> {};

TEST_P(LyingLoader, IsOneFailedLoad) {
  StartWith(true, GetParam().script);
  WireClient client = daemon_->Client();

  const Result<wire::LoadReply> answer = client.Load(LoadRequestFor("m", 5000), small_);

  ASSERT_FALSE(answer.ok());
  EXPECT_THAT(answer.error().message, HasSubstr(GetParam().reason));
  ExpectNothingIsLeft();
}

constexpr Liar kLiars[] = {
    {"ExitsAtOnce", "#!/bin/sh\nexit 0\n", "status 0"},
    {"ExitsWithAnError", "#!/bin/sh\nexit 3\n", "status 3"},
    {"DiesOfASignal", "#!/bin/sh\nkill -SEGV $$\n", "signal 11"},
    {"SendsGarbage", "#!/bin/sh\nprintf 'garbage' >&3\nsleep 60\n", "decode frame"},
    {"IsNoProgram", "no program at all", "Exec format error"},
    {"IsMissing", "", "No such file"},
};
INSTANTIATE_TEST_SUITE_P(All, LyingLoader, ::testing::ValuesIn(kLiars),
                         [](const auto& liar) { return std::string(liar.param.name); });

// These speak the protocol, as tests/testing/fake_loader.cc.
std::string LoaderThatLies(const std::string& lie) {
  return "#!/bin/sh\nexec " + ProgramPrefix() + "/tests/sticky_fake_loader " + lie + "\n";
}

struct Fluent {
  const char* lie;
  const char* reason;
};

class FluentLiar : public LoaderFault, public ::testing::WithParamInterface<Fluent> {};

TEST_P(FluentLiar, IsOneFailedLoad) {
  StartWith(true, LoaderThatLies(GetParam().lie), "deadlines: {fill_stall_ms: 3000}\n");
  WireClient client = daemon_->Client();

  const Result<wire::LoadReply> answer = client.Load(LoadRequestFor("m", 5000), small_);

  ASSERT_FALSE(answer.ok());
  EXPECT_THAT(answer.error().message, HasSubstr(GetParam().reason));
  ExpectNothingIsLeft();
}

constexpr Fluent kFluentLiars[] = {
    {"outside", "tensor 'b' reaches past the end of its arena"},
    {"unaligned", "tensor 'b' is not aligned to 256 bytes"},
    {"twice", "tensor 'a' is there twice"},
    {"shape", "tensor 'b' has a shape that does not give its size"},
    {"arena", "tensor 'b' is in an arena that is not there"},
    {"two-arenas", "its sizes contradict each other"},
    {"size", "its sizes contradict each other"},
    {"files-short", "file 'g' does not fill an arena of its own"},
    {"files-shared", "file 'g' does not fill an arena of its own"},
    {"files-spare", "an arena that no file fills"},
    {"files-tensor", "a state of whole files has tensors"},
    {"files-many", "want 1 to 64 arenas"},
    {"files-size", "its sizes contradict each other"},
    {"files-half", "load 'm': seal an arena: only 0 of 8192 bytes are present"},
    {"no-manifest", "it came without its manifest"},
    {"plans-twice", "out of turn"},
    {"holes", "load 'm': seal an arena: only 0 of 8192 bytes are present"},
    {"mapped", "load 'm': seal"},
    {"backwards", "stalled"},
};
INSTANTIATE_TEST_SUITE_P(All, FluentLiar, ::testing::ValuesIn(kFluentLiars), [](const auto& liar) {
  std::string name = liar.param.lie;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST_F(LoaderFault, KilledAfterItsLastWordTheStateIsThere) {
  StartWith(true, LoaderThatLies("dies-done"));
  WireClient client = daemon_->Client();

  EXPECT_THAT(client.Load(LoadRequestFor("m", 5000), small_), IsOk());
  EXPECT_THAT(client.Ask(wire::AttachRequest{"m", {}, 0, false}), IsOk());
  EXPECT_TRUE(WaitUntil([&] { return ChildrenOf(daemon_->pid()).empty(); }));
}

// --- files ------------------------------------------------------------------------------------

// Case 38.
TEST_F(LoaderFault, BadFilesAreRefusedWithTheirNameAndNothingIsPublished) {
  Start();
  const std::string truncated = daemon_->folder() / "truncated.safetensors";
  std::filesystem::copy_file(small_, truncated);
  ASSERT_EQ(::truncate(truncated.c_str(), 2000), 0);
  const std::string empty = daemon_->folder() / "empty.safetensors";
  WriteText(empty, "");
  const std::string text = daemon_->folder() / "text.safetensors";
  WriteText(text, "hello, I am not a model at all");

  for (const std::string& path : {truncated, empty, text}) {
    WireClient client = daemon_->Client();
    const Result<wire::LoadReply> answer = client.Load(LoadRequestFor("m"), path);
    ASSERT_FALSE(answer.ok()) << path;
    EXPECT_THAT(answer.error().code, AnyOf(Code::kCorrupt, Code::kInvalidArgument));
    EXPECT_THAT(answer.error().message, HasSubstr(path.substr(path.rfind('/') + 1)));
  }

  ExpectNothingIsLeft();
  ExpectNextLoadSucceeds();
}

TEST_F(LoaderFault, FileCutShortDuringTheLoadFailsTheLoad) {
  Start();
  WireClient client = daemon_->Client();
  std::uint32_t id = 0;
  const pid_t loader = StopLoaderIn(StatePhase::kFilling, client, &id);

  ASSERT_EQ(::truncate(big_.c_str(), 1 << 20), 0);
  ::kill(loader, SIGCONT);

  const Result<wire::Received> answer = client.Answer(id, 30'000);
  ASSERT_THAT(answer, FailsWith(Code::kCorrupt));
  EXPECT_THAT(answer.error().message, HasSubstr("big.safetensors"));
  ExpectNothingIsLeft();
  ExpectNextLoadSucceeds();
}

TEST_F(LoaderFault, WholeFileCutShortDuringTheLoadFailsTheLoad) {
  Start();
  WireClient client = daemon_->Client();
  std::uint32_t id = 0;
  const pid_t loader =
      StopLoaderIn(StatePhase::kFilling, client, &id, /*role=*/wire::FileRole::kWhole);

  ASSERT_EQ(::truncate(big_.c_str(), 1 << 20), 0);
  ::kill(loader, SIGCONT);

  const Result<wire::Received> answer = client.Answer(id, 30'000);
  ASSERT_THAT(answer, FailsWith(Code::kCorrupt));
  EXPECT_THAT(answer.error().message, HasSubstr("big.safetensors"));
  ExpectNothingIsLeft();
  ExpectNextLoadSucceeds();
}

TEST_F(LoaderFault, WholeFilesBesideAModelsFilesAreRefused) {
  Start();
  WireClient client = daemon_->Client();

  const Result<std::uint32_t> id =
      SendFiles(client, LoadRequestFor("m"),
                {{small_, wire::FileRole::kWeights}, {big_, wire::FileRole::kWhole}});

  const Result<wire::Received> answer = client.Answer(id.value());
  ASSERT_THAT(answer, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(answer.error().message, HasSubstr("1 of 2 files are to be kept whole"));
  ExpectNothingIsLeft();
}

// Two names alike would be one file in the manifest.
TEST_F(LoaderFault, WholeFilesOfOneNameAreRefused) {
  Start();
  WireClient client = daemon_->Client();

  const Result<std::uint32_t> id =
      SendFiles(client, LoadRequestFor("m"),
                {{small_, wire::FileRole::kWhole}, {small_, wire::FileRole::kWhole}});

  EXPECT_THAT(client.Answer(id.value()), FailsWith(Code::kCorrupt));
  ExpectNothingIsLeft();
}

TEST_F(LoaderFault, WholeFilesInHugePagesAreRefusedWhoeverAsks) {
  Start();
  WireClient client = daemon_->Client();
  wire::LoadRequest request = LoadRequestFor("m");
  request.huge_pages = true;

  const Result<std::uint32_t> id = SendFiles(client, request, {{small_, wire::FileRole::kWhole}});

  const Result<wire::Received> answer = client.Answer(id.value());
  ASSERT_THAT(answer, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(answer.error().message, HasSubstr("memory.huge_pages"));
  ExpectNothingIsLeft();
}

TEST_F(LoaderFault, FileOfAnotherSizeThanTheRequesterSawIsRefused) {
  Start();
  WireClient client = daemon_->Client();
  const UniqueFd file(::open(small_.c_str(), O_RDONLY | O_CLOEXEC));
  wire::FilesPart part;
  part.files.push_back({"small.safetensors", wire::FileRole::kWeights, 17});
  const Result<std::uint32_t> id = client.Send(LoadRequestFor("m"));
  ASSERT_THAT(client.Send(part, {file.get()}), IsOk());

  const Result<wire::Received> answer = client.Answer(id.value());

  ASSERT_THAT(answer, FailsWith(Code::kCorrupt));
  EXPECT_THAT(answer.error().message, HasSubstr("17"));
}

// --- memory -----------------------------------------------------------------------------------

// Case 37.
TEST(LoadBudget, LoadOverBudgetFailsWithBothNumbersBeforeAPageIsTouched) {
  DaemonOptions options;
  options.arguments = {"--memory", "1MiB"};
  const DaemonProcess daemon(options);
  const std::string path = daemon.folder() / "big.safetensors";
  WriteTensorFile(path, 256ull << 30);  // sparse, and more than this machine has
  WireClient client = daemon.Client();

  const Result<wire::LoadReply> answer = client.Load(LoadRequestFor("m"), path);

  ASSERT_THAT(answer, FailsWith(Code::kOutOfMemory));
  EXPECT_THAT(answer.error().message, HasSubstr("1048576"));
  EXPECT_THAT(answer.error().message, HasSubstr("274877"));
  EXPECT_EQ(client.Status().value().used_bytes, 0u);
}

TEST(LoadBudget, WholeFilesOverTheBudgetTogetherFailWithBothNumbers) {
  DaemonOptions options;
  options.arguments = {"--memory", "1MiB"};
  const DaemonProcess daemon(options);
  const std::string half = daemon.folder() / "half";
  const std::string more = daemon.folder() / "more";
  WriteText(half, std::string(1u << 19, 'h'));
  WriteText(more, std::string((1u << 19) + 1, 'm'));  // with the last page, 4095 more
  WireClient client = daemon.Client();

  const auto load = [&](const std::vector<FileToSend>& files) {
    return client.Answer(SendFiles(client, LoadRequestFor("m"), files).value());
  };
  const Result<wire::Received> both =
      load({{half, wire::FileRole::kWhole}, {more, wire::FileRole::kWhole}});
  ASSERT_THAT(both, FailsWith(Code::kOutOfMemory));
  EXPECT_THAT(both.error().message, HasSubstr("1048576"));
  EXPECT_THAT(both.error().message, HasSubstr("1052672"));
  EXPECT_EQ(client.Status().value().used_bytes, 0u);
  EXPECT_THAT(load({{more, wire::FileRole::kWhole}}), IsOk());
  EXPECT_EQ(client.Status().value().used_bytes, (1u << 19) + 4096);
}

TEST(LoadBudget, BudgetIsFreeAgainAfterEviction) {
  DaemonOptions options;
  options.arguments = {"--memory", "3MiB"};
  const DaemonProcess daemon(options);
  const std::string path = daemon.folder() / "m.safetensors";
  WriteTensorFile(path, 2u << 20);
  WireClient client = daemon.Client();
  wire::LoadRequest pinned = LoadRequestFor("a");
  pinned.policy.pin = true;
  ASSERT_THAT(client.Load(pinned, path), IsOk());
  ASSERT_THAT(client.Load(LoadRequestFor("b", /*wait_ms=*/50), path),
              FailsWith(Code::kOutOfMemory));

  ASSERT_TRUE(client.AskFor<wire::EvictReply>(wire::EvictRequest{"a", 0}).value().freed);

  EXPECT_THAT(client.Load(LoadRequestFor("b"), path), IsOk());
}

// A cgroup of its own with a limit below the arena: the kernel kills the loader and not the daemon.
TEST(LoadBudget, PastTheCgroupsLimitTheLoaderIsKilledAndTheDaemonLives) {
  const std::string root = "/sys/fs/cgroup";
  const std::string unified = root + "/sticky-test-" + std::to_string(::getpid());
  const std::string v1 = root + "/memory/sticky-test-" + std::to_string(::getpid());
  const bool is_v1 = std::filesystem::exists(root + "/memory/cgroup.procs");
  const std::string group = is_v1 ? v1 : unified;
  std::error_code failed;
  std::filesystem::create_directory(group, failed);
  const std::string limit_file = group + (is_v1 ? "/memory.limit_in_bytes" : "/memory.max");
  if (failed || ::access(limit_file.c_str(), W_OK) != 0) {
    std::filesystem::remove(group, failed);
    GTEST_SKIP() << "no memory cgroup can be made here";
  }
  WriteText(limit_file, "100000000");
  if (!is_v1) WriteText(group + "/memory.swap.max", "0");
  {
    const std::string procs = group + "/cgroup.procs";
    DaemonOptions options;
    options.arguments = {"--memory", "1GiB"};
    options.before_exec = [&procs] {
      const int fd = ::open(procs.c_str(), O_WRONLY);
      if (::write(fd, "0", 1) != 1) ::_exit(126);
      ::close(fd);
    };
    DaemonProcess daemon(options);
    const std::string path = daemon.folder() / "big.safetensors";
    WriteTensorFile(path, 300u << 20);
    WireClient client = daemon.Client();

    const Result<wire::LoadReply> answer = client.Load(LoadRequestFor("m", 60'000), path);

    EXPECT_THAT(client.Status(), IsOk());
    ASSERT_THAT(answer, FailsWith(Code::kOutOfMemory));
    EXPECT_THAT(answer.error().message, HasSubstr("cgroup"));
  }
  EXPECT_EQ(::rmdir(group.c_str()), 0);
}

}  // namespace
}  // namespace sticky::testing
