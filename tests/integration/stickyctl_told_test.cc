// What people are told who ask for a state that is there already, or is on its way out: with the
// real programs.

#include <csignal>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/ctl_daemon.h"

namespace sticky::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class StickyctlTold : public CtlDaemon {
 protected:
  StickyctlTold() { Start(); }

  // Another template of the same name and files.
  std::string MakeSecondTemplate(const std::string& name, const std::string& more) const {
    return WriteTemplate(name + "2.yaml", name, name + ".safetensors", more);
  }
};

TEST_F(StickyctlTold, AReplacementInPlaceThatIsGivenUpSaysSoAndTheOldStateServesOn) {
  ASSERT_EQ(Run({"load", MakeTemplate("smol"), "--wait"}).code, 0);
  CtlRun user(Words({"run", "--state", "smol", "--", "sleep", "600"}));
  ASSERT_TRUE(daemon_->LeaseCountBecomes(1));
  const std::string second = MakeSecondTemplate("smol", "dtype: f32\n");

  const CtlResult late = Run({"load", second, "--in-place", "--wait=0.5"});

  EXPECT_EQ(late.code, 75);
  EXPECT_THAT(late.err, AllOf(HasSubstr("leased by pid " + std::to_string(user.process().pid())),
                              HasSubstr("the replacement is given up, and epoch 1 takes new "
                                        "leases again"),
                              HasSubstr("wait longer")));
  EXPECT_EQ(Run({"run", "--state", "smol", "--", "true"}).code, 0);
  user.process().Signal(SIGTERM);
  ASSERT_TRUE(daemon_->LeaseCountBecomes(0));
  EXPECT_EQ(Ask({"show", "smol"})["state"]["phase"], "ready");
  EXPECT_EQ(Run({"load", second, "--in-place", "--wait"}).code, 0);
}

TEST_F(StickyctlTold, ALoadOfADrainedStateSaysThatItIsAndHowToGetItBack) {
  const std::string path = MakeTemplate("smol");
  ASSERT_EQ(Run({"load", path, "--wait"}).code, 0);
  ASSERT_EQ(Run({"drain", "smol"}).code, 0);

  const CtlResult again = Run({"load", path, "--wait"});

  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, AllOf(HasSubstr("was there already"),
                               HasSubstr("it is drained and takes no new leases"),
                               HasSubstr("`stickyctl drain smol --resume`")));
  EXPECT_EQ(Ask({"load", path, "--wait"})["state"]["closed"], true);
  EXPECT_EQ(Run({"run", "--state", "smol", "--", "true"}).code, 75);
  const CtlResult replaced = Run({"load", path, "--replace", "--wait"});
  EXPECT_THAT(replaced.out, Not(HasSubstr("drained")));
  EXPECT_EQ(Run({"run", "--state", "smol", "--", "true"}).code, 0);
}

TEST_F(StickyctlTold, ALoadWithAnotherPolicyNamesWhatTheStateKeeps) {
  const std::string first = MakeTemplate("smol", 1 << 20, "priority: -1\nlabels: {a: b, c: d}\n");
  EXPECT_THAT(Run({"load", first, "--wait"}).err, Not(HasSubstr("keeps")));
  const std::string second = MakeSecondTemplate(
      "smol", "lifetime: {pin: true, idle: 5min}\npriority: -2\nlabels: {c: d, a: b}\n");

  const CtlResult same = Run({"load", first, "--wait"});
  const CtlResult other = Run({"load", second, "--wait"});
  const Json document = Ask({"load", second, "--wait"});
  const CtlResult ran = Run({"run", "--template", second, "--", "true"});

  EXPECT_EQ(same.err, "");
  EXPECT_EQ(other.code, 0);
  EXPECT_THAT(other.err,
              AllOf(HasSubstr("state 'smol' keeps its own lifetime.idle, priority: "),
                    HasSubstr("--replace"), Not(HasSubstr("labels")), Not(HasSubstr("pin"))));
  EXPECT_EQ(document["policy_differs"], (Json{"lifetime.idle", "priority"}));
  EXPECT_EQ(document["state"]["policy"]["pin"], true) << "its owner's pin is taken";
  EXPECT_EQ(document["state"]["policy"]["idle_ms"], 0);
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.err, HasSubstr("keeps its own lifetime.idle, priority"));
  EXPECT_EQ(Ask({"load", second, "--replace", "--wait"})["policy_differs"], Json::array());
}

TEST_F(StickyctlTold, ALeaseThatAChildKeepsSaysThatItsProcessHasEnded) {
  ASSERT_EQ(Run({"load", MakeTemplate("smol"), "--wait"}).code, 0);
  const std::string pid_file = folder_ / "child";
  const CtlResult parent =
      Run({"run", "--state", "smol", "--", "sh", "-c", "sleep 600 & echo $! > \"$0\"", pid_file});
  ASSERT_EQ(parent.code, 0) << parent.err;

  const Json leases = Ask({"leases"})["leases"];
  ASSERT_EQ(leases.size(), 1U);
  EXPECT_EQ(leases[0]["process_ended"], true);
  EXPECT_THAT(Run({"leases"}).out,
              HasSubstr("(process ended; its connection is kept by another)\n"));
  ::kill(std::stoi(ReadText(pid_file)), SIGKILL);
  EXPECT_TRUE(daemon_->LeaseCountBecomes(0));
}

}  // namespace
}  // namespace sticky::testing
