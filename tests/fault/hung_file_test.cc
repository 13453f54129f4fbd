// A client who passes descriptors of a file system that never answers stops nobody but itself.

#include "tests/testing/hung_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/text.h"
#include "tests/testing/daemon_process.h"
#include "tests/testing/matchers.h"

namespace sticky::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kPromptMs = 1500;

class HungFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<HungFile>> made = HungFile::Make();
    if (!made.ok()) GTEST_SKIP() << "no hung file can be made here: " << made.error().message;
    hung_ = std::move(made).value();
    path_ = daemon_.folder() / "m.safetensors";
    WriteTensorFile(path_, 1 << 16);
    ASSERT_THAT(daemon_.Client().Load(LoadRequestFor("m"), path_), IsOk());
    hung_->Hang();
  }
  void TearDown() override {
    if (hung_ != nullptr) hung_->Release();
  }
  // Others attach, and load: a load starts a process, which begins with the daemon's descriptors.
  void ExpectOthersAreServed() {
    const std::int64_t start_ns = MonotonicNs();
    EXPECT_THAT(daemon_.Client().Ask(wire::AttachRequest{"m", {}, 0, false}), IsOk());
    const std::string name = "other" + std::to_string(next_++);
    EXPECT_THAT(daemon_.Client().Load(LoadRequestFor(name), path_), IsOk());
    EXPECT_LT(MonotonicNs() - start_ns, kPromptMs * 1'000'000);
  }
  Status SendFiles(WireClient& client, int count) {
    wire::LoadRequest request = LoadRequestFor("n");
    request.file_count = static_cast<std::uint32_t>(count);
    Result<std::uint32_t> asked = client.Send(request);
    for (int i = 0; asked.ok() && i < count; ++i) {
      wire::FilesPart part;
      part.files.push_back(
          {Format("%d.safetensors", i), wire::FileRole::kWeights, HungFile::kSizeBytes});
      asked = client.Send(part, {hung_->fd()});
    }
    return asked.ok() ? Status(Ok{}) : Status(asked.error());
  }

  DaemonProcess daemon_;
  std::unique_ptr<HungFile> hung_;
  std::string path_;
  int next_ = 0;
};

TEST_F(HungFileTest, DescriptorsThatNobodyAskedForStopNobody) {
  WireClient client = daemon_.Client();
  const std::vector<int> many(200, hung_->fd());

  ASSERT_THAT(client.Send(wire::StatusRequest{}, many), IsOk());

  ExpectOthersAreServed();
  EXPECT_THAT(client.Receive(), IsOk());
}

TEST_F(HungFileTest, GarbageWithThemStopsNobody) {
  const std::vector<std::uint8_t> garbage(64, 0x55);
  const std::vector<int> many(200, hung_->fd());
  for (int i = 0; i < 4; ++i) {
    WireClient client = daemon_.Client();
    ASSERT_THAT(wire::SendFrame(client.fd(), garbage, many, Deadline::AfterMs(1000)), IsOk());
    // What is still unread when the daemon closes the connection.
    for (int j = 0; j < 4; ++j) {
      static_cast<void>(wire::SendFrame(client.fd(), garbage, many, Deadline::AfterMs(1000)));
    }
  }

  ExpectOthersAreServed();
}

TEST_F(HungFileTest, ALoadOfThemHangsInItsOwnLoaderAlone) {
  WireClient client = daemon_.Client();

  ASSERT_THAT(SendFiles(client, 3), IsOk());

  for (int i = 0; i < 3; ++i) ExpectOthersAreServed();
  client.Close();
  ExpectOthersAreServed();
}

TEST_F(HungFileTest, ALoadWhoseFilesDoNotAllComeStopsNobodyWhenItIsGivenUp) {
  WireClient client = daemon_.Client();
  wire::LoadRequest request = LoadRequestFor("n");
  request.file_count = 2;
  ASSERT_THAT(client.Send(request), IsOk());
  wire::FilesPart part;
  part.files.push_back({"1.safetensors", wire::FileRole::kWeights, HungFile::kSizeBytes});
  ASSERT_THAT(client.Send(part, {hung_->fd()}), IsOk());
  ExpectOthersAreServed();

  client.Close();

  ExpectOthersAreServed();
}

TEST_F(HungFileTest, WhoHasTooManyOfThemIsToldAndServedOnWithoutDescriptors) {
  const std::vector<int> many(250, hung_->fd());
  WireClient client = daemon_.Client();
  Result<wire::Received> answer = client.Ask(wire::StatusRequest{});
  const bool refused = WaitUntil([&] {
    const Result<std::uint32_t> asked = client.Send(wire::StatusRequest{}, many);
    answer = asked.ok() ? client.Answer(asked.value()) : Result<wire::Received>(asked.error());
    return !answer.ok();
  });

  ASSERT_TRUE(refused);
  EXPECT_THAT(answer, FailsWith(Code::kUnavailable));
  EXPECT_THAT(answer.error().message, HasSubstr("wait to be closed"));
  EXPECT_THAT(daemon_.Client().Ask(wire::AttachRequest{"m", {}, 0, false}), IsOk());
  hung_->Release();
  EXPECT_TRUE(WaitUntil([&] {  // once they are closed, all is as before
    return daemon_.Client().Load(LoadRequestFor("again"), path_).ok();
  }));
}

TEST_F(HungFileTest, TheDaemonEndsInTimeAndAnotherTakesItsPlace) {
  // Sent and closed while the file system still answers, so that this process can start others.
  hung_->Answer();
  WireClient client = daemon_.Client();
  ASSERT_THAT(client.Ask(wire::StatusRequest{}), IsOk());
  daemon_.process().Signal(SIGSTOP);
  ASSERT_THAT(client.Send(wire::StatusRequest{}, std::vector<int>(8, hung_->fd())), IsOk());
  hung_->CloseOurs();
  hung_->Hang();
  daemon_.process().Signal(SIGCONT);
  ASSERT_THAT(client.Receive(), IsOk());

  daemon_.process().Signal(SIGTERM);

  EXPECT_TRUE(WaitUntil([&] { return ::access(daemon_.socket_path().c_str(), F_OK) != 0; }));
  Process::Options next;
  next.command = {ProgramPrefix() + "/bin/stickyd", "--socket", daemon_.socket_path(), "--config",
                  daemon_.folder() / "config.yaml"};
  next.output_path = daemon_.folder() / "next.log";
  Process successor = Process::Start(next);  // the kernel still holds what is left of the first
  EXPECT_TRUE(WaitUntil([&] {
    Result<WireClient> other = WireClient::Connect(daemon_.socket_path(), /*wait_ms=*/1000);
    return other.ok() && other.value().Status().ok();
  })) << ReadText(daemon_.folder() / "next.log");
  successor.KillAndReap();
  hung_->Release();
  EXPECT_EQ(daemon_.process().Wait().value_or(ExitStatus{}).code, 0);
}

}  // namespace
}  // namespace sticky::testing
