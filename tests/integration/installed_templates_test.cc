// Installed templates with the real programs: built at the start, or when somebody comes.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/ctl_daemon.h"

namespace sticky::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class InstalledTemplates : public CtlDaemon {
 protected:
  // Into folder_, which is where the daemon looks.
  void StartWithTemplates() {
    DaemonOptions options;
    options.arguments = {"--templates", folder_.path()};
    Start(options);
  }
  bool PhaseBecomes(const std::string& state, const std::string& phase) const {
    return WaitUntil([&] {
      const Json states = Ask({"ls"})["states"];
      for (const Json& one : states) {
        if (one["name"] == state && one["phase"] == phase) return true;
      }
      return false;
    });
  }
};

TEST_F(InstalledTemplates, OneOfTheStartIsThereWithoutAnybodyAsking) {
  MakeTemplate("early", 1 << 20, "build: at-start\n");
  StartWithTemplates();

  EXPECT_TRUE(PhaseBecomes("early", "ready"));
}

TEST_F(InstalledTemplates, OneOnDemandIsBuiltForTheFirstWhoRunsOnIt) {
  MakeTemplate("late", 1 << 20, "build: on-demand\n");
  MakeTemplate("never", 1 << 20);
  StartWithTemplates();
  EXPECT_TRUE(Ask({"ls"})["states"].empty());

  const CtlResult ran = Run({"run", "--state", "late", "--wait=30", "--", "echo", "it ran"});
  const CtlResult manual = Run({"run", "--state", "never", "--wait=30", "--", "true"});

  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "it ran\n");
  EXPECT_EQ(manual.code, 66);
}

TEST_F(InstalledTemplates, AnotherUserHasItBuiltWhereTheTemplateLetsThem) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  MakeTemplate("open", 1 << 20, "build: on-demand\naccess: {mode: node}\n");
  MakeTemplate("mine", 1 << 20, "build: on-demand\n");
  StartWithTemplates();
  OpenToAll();
  ::chmod((folder_ / "open.safetensors").c_str(), 0600);  // the daemon's user reads it, not nobody

  const CtlResult ran = RunAsNobody({"run", "--state", "open", "--wait=30", "--", "true"});
  const CtlResult refused = RunAsNobody({"run", "--state", "mine", "--wait=30", "--", "true"});
  const CtlResult listed = RunAsNobody({"template", "ls"});

  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(refused.code, 66) << "not even its name is told";
  EXPECT_THAT(listed.out, AllOf(HasSubstr("open"), Not(HasSubstr("mine"))));
}

TEST_F(InstalledTemplates, WhatIsWrongWithAFileIsToldAndCostsTheOthersNothing) {
  MakeTemplate("good", 1 << 20, "build: on-demand\n");
  WriteText(folder_ / "bad.yaml", "name: bad\nsuorce: {path: x}\n");
  StartWithTemplates();

  const CtlResult listed = Run({"template", "ls"});
  const Json document = Ask({"template", "ls"});

  EXPECT_THAT(listed.out, AllOf(HasSubstr("good"), HasSubstr("unusable"), HasSubstr("suorce")));
  ASSERT_EQ(document["templates"].size(), 2U);
  EXPECT_THAT(daemon_->log(), HasSubstr("pass over an installed template"));
  EXPECT_EQ(Run({"run", "--state", "good", "--wait=30", "--", "true"}).code, 0);
}

TEST_F(InstalledTemplates, TheCheckOfATemplateRefusesWhatTheDaemonWouldRefuseThisUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  MakeTemplate("open", 1 << 20, "build: on-demand\naccess: {mode: node}\n");
  DaemonOptions options;
  options.arguments = {"--templates", folder_.path()};
  options.config = "limits: {per_user: {memory: 3MiB}}\n";
  Start(options);
  OpenToAll();
  const std::string small = MakeTemplate("small", 2 << 20);
  const std::string large = MakeTemplate("large", 2 << 20);
  const std::string first = MakeTemplate("first", 1 << 20, "priority: 1\n");

  const auto refuses = [&](const std::string& path, int code, const std::string& why) {
    const CtlResult checked = RunAsNobody({"template", "check", path});
    const CtlResult loaded = RunAsNobody({"load", path, "--wait"});
    EXPECT_EQ(checked.code, code) << checked.err;
    EXPECT_EQ(loaded.code, code) << loaded.err;
    EXPECT_THAT(checked.err, HasSubstr(why));
    EXPECT_THAT(loaded.err, HasSubstr(why));
    EXPECT_THAT(checked.out, HasSubstr("\nrefused:  "));
    EXPECT_EQ(Run({"template", "check", path}).code, 0) << "the node's owner may";
  };
  refuses(folder_ / "open.yaml", 77, "the name is an installed template's");
  refuses(first, 77, "above 0 is for the node's owner");
  ASSERT_EQ(RunAsNobody({"template", "check", small}).code, 0);
  ASSERT_EQ(RunAsNobody({"load", small, "--wait"}).code, 0);
  refuses(large, 75, "limits.per_user.memory");
}

TEST_F(InstalledTemplates, AModelThatIsNotThereFailsWithTheReason) {
  WriteTemplate("gone.yaml", "gone", "no-such-model.safetensors", "build: on-demand\n");
  StartWithTemplates();

  const CtlResult ran = Run({"run", "--state", "gone", "--wait=30", "--", "true"});

  EXPECT_EQ(ran.code, 66) << ran.err;
  EXPECT_THAT(ran.err, AllOf(HasSubstr("no-such-model.safetensors"), HasSubstr("gone.yaml")));
}

TEST_F(InstalledTemplates, ATemplateThatChangesIsReadAnewForTheNextBuild) {
  MakeTemplate("m", 1 << 20, "build: on-demand\n");
  StartWithTemplates();
  ASSERT_EQ(Run({"run", "--state", "m", "--wait=30", "--", "true"}).code, 0);
  CtlRun user(Words({"run", "--state", "m", "--", "sleep", "600"}));
  ASSERT_TRUE(daemon_->LeaseCountBecomes(1));
  const Json before = Ask({"show", "m"})["state"];

  MakeTemplate("m", 2 << 20, "build: on-demand\npriority: 3\n");
  const Json meanwhile = Ask({"show", "m"})["state"];
  ASSERT_EQ(Run({"evict", "m"}).code, 0);
  const CtlResult again = Run({"run", "--state", "m", "--wait=30", "--", "true"});

  EXPECT_EQ(meanwhile["content_digest"], before["content_digest"]) << "in use, it stays what it is";
  EXPECT_EQ(again.code, 0) << again.err;
  const Json states = Ask({"ls"})["states"];
  ASSERT_EQ(states.size(), 2U) << "the old one drains beside the new one";
  EXPECT_NE(states[1]["content_digest"], before["content_digest"]);
  EXPECT_EQ(states[1]["policy"]["priority"], 3);
}

TEST_F(InstalledTemplates, AFolderThatWasNamedMustBeThere) {
  CtlResult result = CtlRun({"--templates", folder_ / "none", "--socket", folder_ / "s"}, {},
                            ProgramPrefix() + "/bin/stickyd")
                         .Wait();

  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("list the templates"));
}

}  // namespace
}  // namespace sticky::testing
