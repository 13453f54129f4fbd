// `stickyctl build` with the real programs: what a command makes is published or nothing of it is
// left, and the exit code says which.

#include <csignal>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "tests/testing/ctl_run.h"

namespace sticky::testing {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class StickyctlBuild : public ::testing::Test {
 protected:
  static DaemonOptions Small() {
    DaemonOptions options;
    options.arguments = {"--memory", "64MiB"};
    return options;
  }
  static std::string Example(const std::string& name) {
    return ProgramPrefix() + "/tests/examples/example_" + name;
  }
  std::vector<std::string> Words(std::vector<std::string> words) const {
    words.insert(words.begin(), {"--socket", daemon_.socket_path()});
    return words;
  }
  CtlResult Run(const std::vector<std::string>& words) const { return Ctl(Words(words)); }
  CtlResult Shell(const std::string& script) const {
    return Run({"build", "--name", "x", "--", "sh", "-c", script});
  }
  Json Ask(std::vector<std::string> words) const {
    words.push_back("--json");
    return Json::parse(Run(words).out, nullptr, /*allow_exceptions=*/false);
  }
  void BuildTable(const std::string& name) const {
    const CtlResult built = Run({"build", "--name", name, "--", Example("build_table"), "1000"});
    ASSERT_EQ(built.code, 0) << built.err;
  }
  bool NothingIsLeft() const {
    return WaitUntil([&] { return Ask({"status"})["daemon"]["used_bytes"] == 0; });
  }
  // A builder that says its pid and waits; `trap` may be shell for what it does about signals.
  std::vector<std::string> Waiting(const std::string& trap) const {
    return Words(
        {"build", "--name", "x", "--", "sh", "-c", trap + "; echo $$; read line < \"$0\"", gate_});
  }
  static bool IsGone(pid_t pid) {
    return WaitUntil([&] {
      const std::string status = ReadText(Format("/proc/%d/stat", static_cast<int>(pid)));
      return status.empty() || status.find(") Z ") != std::string::npos;
    });
  }
  void SetUp() override { ASSERT_EQ(::mkfifo(gate_.c_str(), 0600), 0); }

  DaemonProcess daemon_{Small()};
  const std::string gate_ = daemon_.folder() / "gate";
};

TEST_F(StickyctlBuild, WhatACommandMadeIsReadByOthers) {
  const CtlResult built = Run({"build", "--name", "roots", "--", Example("build_table"), "1000"});
  const CtlResult sum = Run({"run", "--state", "roots", "--", Example("sum"), "roots", "sqrt"});

  EXPECT_EQ(built.code, 0) << built.err;
  EXPECT_THAT(built.out, HasSubstr("1000 square roots are shared\nstate 'roots' is built: "));
  EXPECT_EQ(sum.out, "sqrt: 1000 elements, sum 21065.833105\n") << sum.err;
}

TEST_F(StickyctlBuild, TheIndexOfAnotherFieldIsBuiltAndSearched) {
  WriteText(daemon_.folder() / "g.fa", ">one x\nacgtacgttagc\nCATG\n>two\nTTACGTACGTTAGN\n");

  const CtlResult built = Run(
      {"build", "--name", "genome", "--", Example("build_kmer_index"), daemon_.folder() / "g.fa"});
  const CtlResult found = Run({"run", "--state", "genome", "--", Example("find_kmer"), "-",
                               "ACGTACGTTAG", "ACGTACGTTAGC", "CATGNTTACG", "ACG"});

  EXPECT_EQ(built.code, 0) << built.err;
  EXPECT_EQ(found.out, "ACGTACGTTAG 1 20\nACGTACGTTAGC 1\nCATGNTTACG\nACG\n") << found.err;
}

TEST_F(StickyctlBuild, TheSameRecipeIsNotRunAgainAndAnotherIsRefusedUnlessItReplaces) {
  BuildTable("roots");
  const auto build = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"build", "--name", "roots"});
    return Run(more);
  };

  const CtlResult again = build({"--", Example("build_table"), "1000"});
  const CtlResult again_json = build({"--json", "--", Example("build_table"), "1000"});
  const CtlResult other = build({"--", Example("build_table"), "2000"});
  const CtlResult replaced = build({"--replace", "--", Example("build_table"), "2000"});
  const CtlResult in_place = build({"--in-place", "--", Example("build_table"), "3000"});

  EXPECT_EQ(again.code, 0);
  EXPECT_THAT(again.out, HasSubstr("is there already, of this recipe"));
  EXPECT_THAT(again.out, Not(HasSubstr("are shared"))) << "it was not run";
  EXPECT_EQ(Json::parse(again_json.out)["built"], false);
  EXPECT_EQ(other.code, 65);
  EXPECT_THAT(other.err, HasSubstr("of another recipe; use another name, or replace it"));
  EXPECT_EQ(replaced.code, 0) << replaced.err;
  EXPECT_EQ(in_place.code, 0) << in_place.err;
  EXPECT_EQ(Ask({"show", "roots"})["state"]["arena_bytes"], 12'000);
}

TEST_F(StickyctlBuild, WithJsonTheCommandsOwnWordsGoToStandardError) {
  const CtlResult built =
      Run({"build", "--name", "roots", "--json", "--", Example("build_table"), "1000"});

  const Json document = Json::parse(built.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_EQ(document["built"], true) << built.out;
  EXPECT_EQ(document["state"]["phase"], "ready");
  EXPECT_THAT(document["state"]["builder"].get<std::string>(), HasSubstr("build_table 1000"));
  EXPECT_THAT(built.err, HasSubstr("1000 square roots are shared"));
}

TEST_F(StickyctlBuild, AnEndWithoutAStateIsAFailureAndTheCodeSaysWhich) {
  struct {
    const char* script;
    int code;
    const char* says;
  } const cases[] = {
      {"true", 65, "ended with exit code 0, but published nothing"},
      {"exit 3", 3, "ended with exit code 3; it published nothing"},
      {"kill -9 $$", 137, "(signal 9)"},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.script);
    const CtlResult run = Shell(one.script);
    EXPECT_EQ(run.code, one.code);
    EXPECT_THAT(run.err, HasSubstr(one.says));
  }
  const CtlResult late = Shell(Example("build_table") + " 10 && exit 4");
  EXPECT_EQ(late.code, 4);
  EXPECT_THAT(late.err, HasSubstr("after it had published the state"));
  EXPECT_EQ(Run({"build", "--name", "y", "--", "/no/such"}).code, 127);
  EXPECT_EQ(Run({"build", "--name", "y", "--", "/"}).code, 126);
}

TEST_F(StickyctlBuild, AStateThatIsThereFromBeforeIsNotTakenForWhatWasBuilt) {
  BuildTable("x");

  const CtlResult run = Run({"build", "--name", "x", "--replace", "--", "true"});

  EXPECT_EQ(run.code, 65);
  EXPECT_EQ(Ask({"show", "x"})["state"]["arena_bytes"], 4000) << "the old one is as it was";
}

TEST_F(StickyctlBuild, WhatIsWrongIsSaidBeforeAnythingRuns) {
  WriteText(daemon_.folder() / "model.yaml", "name: x\nsource: {path: m}\n");
  WriteText(daemon_.folder() / "build.yaml", "name: x\n");
  const std::string model = daemon_.folder() / "model.yaml";
  struct {
    std::vector<std::string> words;
    int code;
    const char* says;
  } const cases[] = {
      {{"--name", "\x1b[31m"}, 64, "'\\x1b[31m'"},
      {{"--name", "x", "--base", "\x1b]0;"}, 64, "'\\x1b]0;'"},
      {{"--name", "x", "--base", "none"}, 66, "there is no such state"},
      {{"--replace", "--in-place", "--name", "x"}, 64, "give one of them"},
      {{}, 64, "--name NAME or --template FILE is missing"},
      {{"--template", model}, 65, "'source' is for `stickyctl load`"},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.says);
    std::vector<std::string> words = {"build"};
    words.insert(words.end(), one.words.begin(), one.words.end());
    words.insert(words.end(), {"--", "echo", "ran"});
    const CtlResult run = Run(words);
    EXPECT_EQ(run.code, one.code) << run.err;
    EXPECT_THAT(run.err, HasSubstr(one.says));
    EXPECT_THAT(run.err, Not(HasSubstr("\x1b")));
    EXPECT_EQ(run.out, "");
  }
  const CtlResult load = Run({"load", daemon_.folder() / "build.yaml"});
  EXPECT_EQ(load.code, 65);
  EXPECT_THAT(load.err, HasSubstr("a template without a source is for `stickyctl build`"));
}

TEST_F(StickyctlBuild, ATemplateSaysHowTheStateLives) {
  WriteText(daemon_.folder() / "t.yaml",
            "name: roots\nlifetime: {pin: true}\nlabels: {team: blue}\nmax_leases: 3\n");

  const CtlResult built = Run(
      {"build", "--template", daemon_.folder() / "t.yaml", "--", Example("build_table"), "1000"});

  EXPECT_EQ(built.code, 0) << built.err;
  const Json policy = Ask({"show", "roots"})["state"]["policy"];
  EXPECT_EQ(policy["pin"], true);
  EXPECT_EQ(policy["labels"]["team"], "blue");
  EXPECT_EQ(policy["lease_count_max"], 3);
}

TEST_F(StickyctlBuild, ADerivedStateTellsAndKeepsItsBase) {
  BuildTable("roots");

  const CtlResult built = Run({"build", "--name", "d", "--base", "roots", "--", "sh", "-c",
                               "\"$0\" $STICKYINVOC_BASE sqrt && exec \"$1\" 10", Example("sum"),
                               Example("build_table")});

  EXPECT_EQ(built.code, 0) << built.err;
  EXPECT_THAT(built.out, HasSubstr("sqrt: 1000 elements")) << "it attached to the base";
  const Json base = Ask({"show", "roots"})["state"];
  const Json derived = Ask({"show", "d"})["state"];
  EXPECT_EQ(derived["base"], "roots");
  EXPECT_EQ(derived["base_digest"], base["content_digest"]);
  EXPECT_THAT(Run({"show", "d"}).out,
              HasSubstr("roots (" + base["content_digest"].get<std::string>() + ")"));
  const CtlResult in_place = Run({"build", "--name", "roots", "--in-place", "--wait=30", "--",
                                  Example("build_table"), "2000"});
  EXPECT_EQ(in_place.code, 75);
  EXPECT_THAT(in_place.err, HasSubstr("kept by what is derived from it: 'd'; evict that first"));
  EXPECT_EQ(Ask({"show", "roots"})["state"]["phase"], "ready");
  EXPECT_EQ(Ask({"evict", "roots"})["state"]["phase"], "draining");
  EXPECT_THAT(Run({"evict", "roots"}).out, HasSubstr("a state that is derived from it keeps it"));
  EXPECT_THAT(Run({"evict", "roots", "--wait=0.1"}).err,
              HasSubstr("goes when the states that are derived from it have gone"));
  EXPECT_EQ(Run({"evict", "d", "--wait"}).code, 0);
  EXPECT_TRUE(NothingIsLeft());
}

TEST_F(StickyctlBuild, AnotherContentOfTheBaseIsAnotherRecipe) {
  BuildTable("roots");
  const std::vector<std::string> derive = {
      "build", "--name", "d", "--base", "roots", "--", Example("build_table"), "10"};
  ASSERT_EQ(Run(derive).code, 0);
  ASSERT_EQ(Run(derive).code, 0);

  ASSERT_EQ(
      Run({"build", "--name", "roots", "--replace", "--", Example("build_table"), "2000"}).code, 0);

  EXPECT_THAT(Run(derive).err, HasSubstr("of another recipe"));
}

TEST_F(StickyctlBuild, ABuilderThatIsKilledLeavesNothing) {
  // Descriptors that scripts use by their numbers are left to them.
  CtlRun run(Waiting("exec 3>&1"));
  ASSERT_TRUE(WaitUntil([&] { return !run.out().empty(); })) << run.err();
  EXPECT_EQ(Ask({"show", "x"})["state"]["phase"], "filling");

  ASSERT_EQ(::kill(std::stoi(run.out()), SIGKILL), 0);

  EXPECT_EQ(run.Wait().code, 137);
  EXPECT_TRUE(NothingIsLeft());
  BuildTable("x");  // the name is free
}

TEST_F(StickyctlBuild, TheBuildEndsWithTheCommandsDescriptorThoughItselfGoesOn) {
  CtlRun run(
      Words({"build", "--name", "x", "--", "bash", "-c",
             "eval \"exec $STICKYINVOC_BUILD>&-\"; echo closed; read line < \"$0\"", gate_}));
  ASSERT_TRUE(WaitUntil([&] { return run.out() == "closed\n"; })) << run.err();

  EXPECT_TRUE(WaitUntil([&] {
    return Ask({"show", "x"})["state"]["phase"] == "failed";
  })) << "stickyctl keeps no copy of it";

  WriteText(gate_, "go on\n");
  EXPECT_EQ(run.Wait().code, 65);
}

TEST_F(StickyctlBuild, AChildThatKeepsTheMemoryWritableMakesTheCommitFail) {
  const CtlResult run =
      Run({"build", "--name", "x", "--", ProgramPrefix() + "/tests/sticky_forking_builder"});

  EXPECT_EQ(run.code, 9);
  EXPECT_THAT(run.err, HasSubstr("writable mapping"));
  EXPECT_TRUE(NothingIsLeft());
}

TEST_F(StickyctlBuild, SignalsArePassedOnAndTheCodeIsTheCommands) {
  CtlRun handled(Waiting("trap 'exit 7' HUP"));
  ASSERT_TRUE(WaitUntil([&] { return !handled.out().empty(); })) << handled.err();
  handled.process().Signal(SIGHUP);
  EXPECT_EQ(handled.Wait().code, 7);

  CtlRun ended(Waiting("true"));
  ASSERT_TRUE(WaitUntil([&] { return !ended.out().empty(); })) << ended.err();
  ended.process().Signal(SIGTERM);
  EXPECT_EQ(ended.Wait().code, 128 + SIGTERM);
}

TEST_F(StickyctlBuild, WhenStickyctlIsKilledSoIsTheCommand) {
  CtlRun run(Waiting("true"));
  ASSERT_TRUE(WaitUntil([&] { return !run.out().empty(); })) << run.err();

  run.process().Signal(SIGKILL);
  run.Wait();

  EXPECT_TRUE(IsGone(std::stoi(run.out())));
  EXPECT_TRUE(NothingIsLeft());
  EXPECT_THAT(Run({"build", "--name", "x", "--", Example("build_table"), "10"}).err, "");
}

TEST_F(StickyctlBuild, WhoeverWaitsTakesWhatAnotherBuilt) {
  const std::string script = "echo begun; read line < \"$0\"; exec \"$1\" 10";
  const std::vector<std::string> build = {
      "build", "--name", "x", "--wait", "--", "sh", "-c", script, gate_, Example("build_table")};
  CtlRun first(Words(build));
  ASSERT_TRUE(WaitUntil([&] { return first.out() == "begun\n"; })) << first.err();
  std::vector<std::string> hurried = build;
  hurried.erase(hurried.begin() + 3);
  const CtlResult refused = Run(hurried);
  CtlRun second(Words(build));
  ASSERT_TRUE(WaitUntil([&] { return second.err().find("build 'x'") != std::string::npos; }));
  WriteText(gate_, "go on\n");

  EXPECT_EQ(refused.code, 75);
  EXPECT_THAT(refused.err, HasSubstr("being built; wait until it is ready"));
  EXPECT_EQ(first.Wait().code, 0);
  const CtlResult taken = second.Wait();
  EXPECT_EQ(taken.code, 0) << taken.err;
  EXPECT_THAT(taken.out, HasSubstr("is there already")) << "and nothing was run";
}

TEST_F(StickyctlBuild, MemoryThatOthersHoldIsWaitedForAndThePlaceIsShown) {
  const std::string reader = "echo on; read line < \"$0\"";
  ASSERT_EQ(Run({"build", "--name", "big", "--", Example("build_table"), "10000000"}).code, 0);
  CtlRun user(Words({"run", "--state", "big", "--", "sh", "-c", reader, gate_}));
  ASSERT_TRUE(WaitUntil([&] { return user.out() == "on\n"; })) << user.err();
  CtlRun build(Words({"build", "--name", "x", "--wait", "--", Example("build_table"), "10000001"}));

  ASSERT_TRUE(WaitUntil([&] {
    return build.err().find("build 'x': place 1 of the queue, needs ") != std::string::npos;
  })) << build.err();
  WriteText(gate_, "go on\n");

  EXPECT_EQ(build.Wait().code, 0) << build.err();
  EXPECT_EQ(user.Wait().code, 0);
}

TEST_F(StickyctlBuild, ADaemonThatWasStartedAnewHasNothingOfTheBuild) {
  CtlRun run(Waiting("true"));
  ASSERT_TRUE(WaitUntil([&] { return !run.out().empty(); })) << run.err();

  daemon_.process().Signal(SIGKILL);
  ASSERT_TRUE(daemon_.process().Wait().has_value());
  daemon_.Restart();
  WriteText(gate_, "go on\n");

  const CtlResult result = run.Wait();
  EXPECT_EQ(result.code, 69);
  EXPECT_THAT(result.err, HasSubstr("stickyd was started anew meanwhile"));
}

}  // namespace
}  // namespace sticky::testing
