// stickyctl doctor on this very node: with a daemon, without one, and with a daemon that has been
// given more than there is.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/testing/ctl_run.h"

namespace sticky::testing {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

DaemonOptions WithBudget(const std::string& size) {
  DaemonOptions options;
  options.arguments = {"--memory", size};
  return options;
}

CtlResult Doctor(const std::string& socket, const std::function<void()>& before_exec = {}) {
  return Ctl({"--socket", socket, "doctor", "--json"}, before_exec);
}

// The level of the first finding about `what` that is worst.
std::string LevelOf(const CtlResult& result, const std::string& what) {
  const Json document = Json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  std::string worst;
  for (const char* const level : {"ok", "note", "warning", "problem"}) {
    for (const Json& finding : document["findings"]) {
      if (finding["what"] == what && finding["level"] == level) worst = level;
    }
  }
  return worst;
}

TEST(Doctor, WithADaemonNothingAboutItIsAProblem) {
  const DaemonProcess daemon(WithBudget("64MiB"));

  const CtlResult result = Doctor(daemon.socket_path());

  EXPECT_EQ(result.code, 0) << result.out << result.err;
  for (const char* const what : {"socket", "folder", "daemon", "budget", "memory", "kernel"}) {
    EXPECT_EQ(LevelOf(result, what), "ok") << what << ": " << result.out;
  }
  EXPECT_EQ(LevelOf(result, "versions"), "") << result.out;
}

TEST(Doctor, WithoutADaemonThePageStillSaysEverythingElse) {
  const TempFolder folder;

  const CtlResult json = Doctor(folder / "s");
  const CtlResult text = Ctl({"--socket", folder / "s", "doctor"});

  EXPECT_EQ(json.code, 69);
  EXPECT_EQ(LevelOf(json, "daemon"), "problem");
  EXPECT_EQ(LevelOf(json, "kernel"), "ok");
  EXPECT_EQ(Json::parse(json.out)["error"]["exit_code"], 69);
  EXPECT_EQ(text.code, 69);
  EXPECT_THAT(text.out, HasSubstr("problem  daemon: no daemon listens at '" + (folder / "s")));
  EXPECT_THAT(text.out, HasSubstr("\nmemory: "));
}

TEST(Doctor, ABudgetBeyondTheNodeIsToldBeforeALoadFails) {
  const DaemonProcess daemon(WithBudget("900TiB"));

  const std::string level = LevelOf(Doctor(daemon.socket_path()), "budget");

  EXPECT_TRUE(level == "warning" || level == "problem") << level;
}

TEST(Doctor, AFolderThatOthersMayWriteToIsAProblemEvenWithADaemon) {
  const DaemonProcess daemon;
  ASSERT_EQ(::chmod((daemon.folder() / "run").c_str(), 0777), 0);

  const CtlResult result = Doctor(daemon.socket_path());

  EXPECT_EQ(result.code, 75) << result.out;
  EXPECT_EQ(LevelOf(result, "folder"), "problem");
}

TEST(Doctor, EachInstalledTemplateThatCannotBeUsedIsToldWithItsReason) {
  const TempFolder folder;
  WriteText(folder / "misspelt.yaml", "name: a\nsuorce: {path: x}\n");
  WriteText(folder / "nameless.yaml", "source: {path: x}\n");
  WriteText(folder / "good.yaml", "name: good\nsource: {path: x}\n");
  DaemonOptions options;
  options.arguments = {"--templates", folder.path()};
  const DaemonProcess daemon(options);

  const CtlResult text = Ctl({"--socket", daemon.socket_path(), "doctor"});

  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(LevelOf(Doctor(daemon.socket_path()), "templates"), "warning");
  EXPECT_THAT(text.out, HasSubstr("misspelt.yaml"));
  EXPECT_THAT(text.out, HasSubstr("suorce"));
  EXPECT_THAT(text.out, HasSubstr("nameless.yaml"));
  EXPECT_THAT(text.out, HasSubstr("1 installed, see `stickyctl template ls`"));
}

TEST(Doctor, TheLimitsOfItsOwnProcessAreTheCallers) {
  const DaemonProcess daemon;

  const CtlResult result = Doctor(daemon.socket_path(), [] {
    const rlimit few{64, 64};
    ::setrlimit(RLIMIT_NOFILE, &few);
  });

  EXPECT_EQ(LevelOf(result, "open-files"), "warning") << result.out;
}

}  // namespace
}  // namespace sticky::testing
