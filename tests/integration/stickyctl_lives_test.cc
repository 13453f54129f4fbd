// The lives of states as users and admins lead them with the real programs: states that are
// replaced, wait for memory, are drained, held and evicted; and what is told of them meanwhile.

#include <csignal>
#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/testing/ctl_daemon.h"

namespace sticky::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class StickyctlLives : public CtlDaemon {
 protected:
  // Another template of the same name and size.
  std::string MakeSecondTemplate(const std::string& name) const {
    return WriteTemplate(name + "2.yaml", name, name + ".safetensors", "dtype: f32\n");
  }
};

// --- load ---------------------------------------------------------------------------------------

TEST_F(StickyctlLives, ReplaceBuildsTheNewStateBesideTheOldOneWhichDrains) {
  Start();
  ASSERT_EQ(Run({"load", MakeTemplate("smol"), "--wait"}).code, 0);
  CtlRun user(Words({"run", "--state", "smol", "--", "sleep", "600"}));
  ASSERT_TRUE(daemon_->LeaseCountBecomes(1));
  const std::string second = MakeSecondTemplate("smol");
  EXPECT_EQ(Run({"load", second, "--wait"}).code, 65);

  const Json loaded = Ask({"load", second, "--replace", "--wait"});

  EXPECT_EQ(loaded["joined"], false);
  EXPECT_EQ(loaded["state"]["epoch"], 2);
  const Json states = Ask({"ls"})["states"];
  ASSERT_EQ(states.size(), 2U);
  EXPECT_EQ(states[0]["phase"], "draining");
  EXPECT_EQ(states[1]["phase"], "ready");
  const Json leases = Ask({"leases"})["leases"];
  ASSERT_EQ(leases.size(), 1U);
  EXPECT_EQ(leases[0]["epoch"], 1) << "who has the old one keeps it";
  EXPECT_EQ(Run({"run", "--state", "smol", "--", "true"}).code, 0);
  EXPECT_EQ(Ask({"show", "smol"})["leases"].size(), 0U) << "of the new one there are none";
}

TEST_F(StickyctlLives, InPlaceNeedsNoRoomForBoth) {
  StartWithMemory("48MiB");
  ASSERT_EQ(Run({"load", MakeTemplate("smol", 32 << 20), "--wait"}).code, 0);
  const std::string second = MakeSecondTemplate("smol");

  const CtlResult beside = Run({"load", second, "--replace", "--wait=0.2"});
  const std::uint64_t old_epoch = Ask({"show", "smol"})["state"]["epoch"];
  const CtlResult in_place = Run({"load", second, "--in-place", "--wait", "--json"});

  EXPECT_EQ(beside.code, 75);
  EXPECT_THAT(beside.err, HasSubstr("--in-place drains the old one first"));
  EXPECT_EQ(old_epoch, 1U) << "what could not be replaced is as it was";
  ASSERT_EQ(in_place.code, 0) << in_place.err;
  EXPECT_EQ(Json::parse(in_place.out)["state"]["phase"], "ready");
  EXPECT_EQ(Ask({"ls"})["states"].size(), 1U);
}

// --- other users --------------------------------------------------------------------------------

TEST_F(StickyctlLives, AnotherUserMayOpenALentFileForReadingAndAModelsMemoryNotAtAll) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  Start();
  WriteText(folder_ / "words", "hello");
  WriteText(folder_ / "f.yaml",
            "name: f\nsource: {files: [{name: w, path: words}]}\naccess: {mode: node}\n");
  ASSERT_EQ(Run({"load", folder_ / "f.yaml", "--wait"}).code, 0);
  ASSERT_EQ(Run({"load", MakeTemplate("m", 1 << 20, "access: {mode: node}\n"), "--wait"}).code, 0);
  OpenToAll();

  const CtlResult reads = RunAsNobody({"run", "--as-file", "w=f/w", "--", "cat", "{w}"});
  const CtlResult writes =
      RunAsNobody({"run", "--as-file", "w=f/w", "--", "sh", "-c", "exec 9<>{w}"});
  const char* const kOpen = "exec 9</proc/self/fd/${STICKYINVOC_LEASE##*:}";
  const CtlResult opens = RunAsNobody({"run", "--state", "m", "--", "sh", "-c", kOpen});

  EXPECT_EQ(reads.code, 0) << reads.err;
  EXPECT_EQ(reads.out, "hello");
  EXPECT_NE(writes.code, 0) << "it could be locked for writing then";
  EXPECT_THAT(writes.err, HasSubstr("ermission denied"));
  EXPECT_NE(opens.code, 0) << "it could be kept unseen then";
  EXPECT_THAT(opens.err, HasSubstr("ermission denied"));
}

TEST_F(StickyctlLives, TheNodeConfigLetsOtherUsersReachTheSocket) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  DaemonOptions options;
  options.config = "access: {users: [65534]}\n";
  Start(options);
  ::chmod(daemon_->folder().path().c_str(), 0755);
  ::chmod((daemon_->folder() / "run").c_str(), 0755);
  ::chmod(folder_.path().c_str(), 0755);
  std::filesystem::copy_file(ProgramPrefix() + "/bin/stickyctl", folder_ / "stickyctl");
  const auto become_other = [] {
    if (::setgid(65533) != 0 || ::setuid(65533) != 0) ::_exit(1);
  };

  EXPECT_EQ(RunAsNobody({"status"}).code, 0);
  const CtlResult other = CtlRun(Words({"status"}), become_other, folder_ / "stickyctl").Wait();
  EXPECT_EQ(other.code, 77);
  EXPECT_THAT(other.err, HasSubstr("not among those that the node config lets in"));
  ASSERT_EQ(::unlink(daemon_->socket_path().c_str()), 0);
  EXPECT_TRUE(WaitUntil([&] { return RunAsNobody({"status"}).code == 0; }))
      << "also when the socket has come back";
}

// --- budget -------------------------------------------------------------------------------------

TEST_F(StickyctlLives, ABudgetBelowWhatIsHeldTakesNothingFromWhoUsesIt) {
  StartWithMemory("64MiB");
  ASSERT_EQ(Run({"load", MakeTemplate("used", 16 << 20), "--wait"}).code, 0);
  ASSERT_EQ(Run({"load", MakeTemplate("free", 16 << 20), "--wait"}).code, 0);
  CtlRun user(Words({"run", "--state", "used", "--", "sleep", "600"}));
  ASSERT_TRUE(daemon_->LeaseCountBecomes(1));

  const CtlResult late = Run({"budget", "8MiB", "--wait=0.5"});
  const CtlResult now = Run({"budget", "8MiB"});
  const CtlResult load = Run({"load", MakeTemplate("new", 1 << 20), "--wait=0.2"});
  const std::string status = Run({"status"}).out;

  EXPECT_EQ(late.code, 75);
  EXPECT_THAT(late.err, HasSubstr("more are in use or pinned"));
  EXPECT_EQ(now.code, 0) << now.err;
  EXPECT_EQ(load.code, 75) << load.err;
  EXPECT_THAT(status, HasSubstr("over it"));
  EXPECT_EQ(Ask({"show", "used"})["state"]["phase"], "ready");
  EXPECT_EQ(Run({"run", "--state", "used", "--", "true"}).code, 0) << "who comes may use it too";
  ASSERT_EQ(::kill(user.process().pid(), SIGKILL), 0);
  EXPECT_TRUE(WaitUntil([&] { return Ask({"status"})["daemon"]["used_bytes"] == 0; }))
      << "it goes with its last lease";
  EXPECT_EQ(Run({"budget", "8"}).code, 64);
}

TEST_F(StickyctlLives, WhereANewStateStandsIsOneOfTwo) {
  Start();

  const CtlResult both = Run({"load", MakeTemplate("smol"), "--replace", "--in-place"});

  EXPECT_EQ(both.code, 64);
  EXPECT_THAT(both.err, HasSubstr("give one of them"));
  EXPECT_TRUE(Ask({"ls"})["states"].empty());
}

TEST_F(StickyctlLives, ALoadOfAStateThatDrainsBuildsTheNextEpoch) {
  Start();
  const std::string path = MakeTemplate("smol");
  ASSERT_EQ(Run({"load", path, "--wait"}).code, 0);
  CtlRun user(Words({"run", "--state", "smol", "--", "sleep", "600"}));
  ASSERT_TRUE(daemon_->LeaseCountBecomes(1));
  ASSERT_EQ(Run({"evict", "smol"}).code, 0);

  const Json loaded = Ask({"load", path, "--wait"});

  EXPECT_EQ(loaded["joined"], false);
  EXPECT_EQ(loaded["state"]["epoch"], 2);
  EXPECT_EQ(loaded["state"]["phase"], "ready");
  EXPECT_EQ(Ask({"leases"})["leases"][0]["epoch"], 1);
}

TEST_F(StickyctlLives, ALoadThatWaitsForMemoryTellsItsPlaceAndEndsWithAllOfIt) {
  StartWithMemory("48MiB");
  ASSERT_EQ(Run({"load", MakeTemplate("first", 32 << 20), "--wait"}).code, 0);
  CtlRun user(Words({"run", "--state", "first", "--", "sleep", "600"}));
  ASSERT_TRUE(daemon_->LeaseCountBecomes(1));

  CtlRun load(Words({"load", MakeTemplate("second", 32 << 20), "--wait", "--json"}));
  ASSERT_TRUE(WaitUntil([&] { return load.err().ends_with("\n"); }));

  EXPECT_EQ(load.err(), "load 'second': place 1 of the queue, needs 32.00 MiB\n");
  const Json queued = Ask({"show", "second"})["state"];
  EXPECT_EQ(queued["phase"], "queued");
  EXPECT_EQ(queued["queue_place"], 1);
  EXPECT_EQ(queued["wanted_bytes"], 32 << 20);
  EXPECT_THAT(Run({"ls"}).out, HasSubstr("\nsecond  queued, place 1  "));
  EXPECT_THAT(Run({"top"}).out, HasSubstr("  place 1 of the queue, needs 32.00 MiB\n"));
  EXPECT_EQ(Ask({"status"})["daemon"]["queue_count"], 1);
  user.process().Signal(SIGTERM);
  const CtlResult result = load.Wait();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, EndsWith("load 'second': 100%, 32.00 MiB of 32.00 MiB\n"));
  EXPECT_EQ(Ask({"status"})["daemon"]["evict_total"], 1);
}

TEST_F(StickyctlLives, RunTakesTheNameOfItsTemplate) {
  Start();
  const std::string path = MakeTemplate("smol");

  const CtlResult result =
      Run({"run", "--template", path, "--", "sh", "-c", "echo $STICKYINVOC_STATE"});

  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "smol\n");
  const CtlResult other = Run({"run", "--state", "x", "--template", path, "--", "true"});
  EXPECT_EQ(other.code, 65);
  EXPECT_THAT(other.err, HasSubstr("leave out --state"));
}

// --- show, leases -------------------------------------------------------------------------------

TEST_F(StickyctlLives, ShowTellsPolicyLeasesJobsAndHolders) {
  Start();
  const std::string path = MakeTemplate("smol", 1 << 20,
                                        "lifetime: {idle: 10min, ttl: 2h}\npriority: -3\n"
                                        "labels: {team: blue}\nmax_leases: 7\n");
  ::setenv("SLURM_JOB_ID", "77", 1);  // NOLINT(concurrency-mt-unsafe)
  CtlRun hold(Words({"hold", path}));
  ASSERT_TRUE(WaitUntil([&] { return hold.out().ends_with("\n"); })) << hold.err();
  CtlRun user(Words({"run", "--state", "smol", "--", "sleep", "600"}));
  ASSERT_TRUE(daemon_->LeaseCountBecomes(2));
  ::unsetenv("SLURM_JOB_ID");  // NOLINT(concurrency-mt-unsafe)

  const Json shown = Ask({"show", "smol"});
  const std::string text = Run({"show", "smol"}).out;

  EXPECT_EQ(shown["state"]["uid"], ::geteuid());
  EXPECT_EQ(shown["state"]["policy"]["idle_ms"], 600'000);
  EXPECT_EQ(shown["state"]["policy"]["labels"], Json({{"team", "blue"}}));
  EXPECT_EQ(shown["state"]["policy"]["lease_count_max"], 7);
  EXPECT_EQ(shown["state"]["idle_ms"], nullptr);
  ASSERT_EQ(shown["leases"].size(), 2U);
  EXPECT_EQ(shown["leases"][0]["hold"], true);
  EXPECT_EQ(shown["leases"][0]["job"], "slurm 77");
  EXPECT_EQ(shown["leases"][1]["job"], "slurm 77");
  const std::string pid = std::to_string(hold.process().pid());
  EXPECT_THAT(text, AllOf(HasSubstr("kept by:          held by pid " + pid + " of user " +
                                    OwnName() + "\n"),
                          HasSubstr("last used:        now\n"),
                          HasSubstr("label:            team: "
                                    "blue\n"),
                          HasSubstr("max leases:       7\n"), HasSubstr("  slurm 77  ")));
  EXPECT_THAT(Run({"leases"}).out, HasSubstr("  " + OwnName() + "  "));
  EXPECT_THAT(Run({"ls"}).out, HasSubstr("  held, idle 10 min, ttl 2 h  "));
}

TEST_F(StickyctlLives, ShowTellsWhenAnIdleStateWasUsedLast) {
  Start();
  ASSERT_EQ(Run({"load", MakeTemplate("smol"), "--wait"}).code, 0);

  EXPECT_THAT(Run({"show", "smol"}).out, HasSubstr(" ms ago\n"));
  EXPECT_TRUE(Ask({"show", "smol"})["state"]["idle_ms"].is_number());
  EXPECT_EQ(Ask({"show", "smol"})["leases"], Json::array());
}

// --- evict --------------------------------------------------------------------------------------

TEST_F(StickyctlLives, AnEvictionThatAHoldKeepsFromComingSaysWhoHolds) {
  Start();
  CtlRun hold(Words({"hold", MakeTemplate("smol")}));
  ASSERT_TRUE(WaitUntil([&] { return hold.out().ends_with("\n"); })) << hold.err();
  const std::string holder =
      "held by pid " + std::to_string(hold.process().pid()) + " of user " + OwnName();

  CtlRun waiting(Words({"evict", "smol", "--wait"}));
  ASSERT_TRUE(WaitUntil([&] { return waiting.err().ends_with("\n"); }));
  EXPECT_EQ(waiting.err(), "stickyctl: evict 'smol': waits, for it is " + holder + "\n");
  const CtlResult plain = Run({"evict", "smol"});
  const CtlResult late = Run({"evict", "smol", "--wait=0.05"});
  hold.process().Signal(SIGTERM);

  EXPECT_EQ(plain.code, 0);
  EXPECT_THAT(plain.out, HasSubstr(", and is " + holder + ":\n"));
  EXPECT_EQ(late.code, 75);
  EXPECT_THAT(late.err, HasSubstr("after 0.05 s of waiting, and is " + holder));
  EXPECT_EQ(waiting.Wait().code, 0);
}

// --- drain --------------------------------------------------------------------------------------

TEST_F(StickyctlLives, ADrainedStateTakesNoNewLeasesUntilItIsResumed) {
  Start();
  ASSERT_EQ(Run({"load", MakeTemplate("smol"), "--wait"}).code, 0);
  CtlRun user(Words({"run", "--state", "smol", "--", "sleep", "600"}));
  ASSERT_TRUE(daemon_->LeaseCountBecomes(1));

  const CtlResult drained = Run({"drain", "smol"});
  const CtlResult refused = Run({"run", "--state", "smol", "--", "true"});
  const CtlResult late = Run({"drain", "smol", "--wait=0.05", "--json"});

  EXPECT_EQ(drained.code, 0) << drained.err;
  EXPECT_THAT(drained.out, StartsWith("state 'smol' takes no new leases; 1 are left. "));
  EXPECT_THAT(drained.out, HasSubstr("`stickyctl drain smol --resume`"));
  EXPECT_THAT(drained.out, HasSubstr("  " + std::to_string(user.process().pid()) + "  "));
  EXPECT_EQ(refused.code, 75) << refused.err;
  EXPECT_EQ(late.code, 75);
  const Json document = Json::parse(late.out);
  EXPECT_EQ(document["error"]["code"], "unavailable");
  EXPECT_EQ(document["empty"], false);
  ASSERT_EQ(document["leases"].size(), 1U);
  EXPECT_EQ(document["leases"][0]["pid"], user.process().pid());
  EXPECT_EQ(document["state"]["closed"], true);
  EXPECT_THAT(Run({"ls"}).out, HasSubstr("\nsmol  ready, closed  "));
  EXPECT_THAT(Run({"show", "smol"}).out, HasSubstr("\nclosed:           takes no new leases"));
  EXPECT_EQ(Run({"drain", "smol", "--resume"}).out, "state 'smol' takes new leases again\n");
  EXPECT_EQ(Run({"run", "--state", "smol", "--", "true"}).code, 0);
}

TEST_F(StickyctlLives, ADrainThatWaitsEndsWithTheLastLease) {
  Start();
  ASSERT_EQ(Run({"load", MakeTemplate("smol"), "--wait"}).code, 0);
  CtlRun user(Words({"run", "--state", "smol", "--", "sleep", "600"}));
  ASSERT_TRUE(daemon_->LeaseCountBecomes(1));
  CtlRun drain(Words({"drain", "--wait", "--json"}));
  ASSERT_TRUE(WaitUntil([&] { return Ask({"status"})["daemon"]["draining"] == true; }));

  user.process().Signal(SIGTERM);

  const CtlResult end = drain.Wait();
  EXPECT_EQ(end.code, 0) << end.err;
  const Json document = Json::parse(end.out);
  EXPECT_EQ(document["empty"], true);
  EXPECT_EQ(document["state"], nullptr);
  EXPECT_EQ(document["leases"], Json::array());
}

TEST_F(StickyctlLives, ADrainedNodeTakesNothingNewUntilItIsResumed) {
  Start();
  const std::string path = MakeTemplate("smol");
  ASSERT_EQ(Run({"load", path, "--wait"}).code, 0);

  const CtlResult drained = Run({"drain"});

  EXPECT_EQ(drained.code, 0) << drained.err;
  EXPECT_THAT(drained.out,
              StartsWith("the node takes no new leases and no new loads; none is left. "));
  EXPECT_EQ(Run({"run", "--state", "smol", "--", "true"}).code, 75);
  EXPECT_EQ(Run({"load", MakeTemplate("other")}).code, 75);
  EXPECT_THAT(Run({"status"}).out, HasSubstr("\ndraining: "));
  EXPECT_THAT(Run({"top"}).out, HasSubstr("DRAINING"));
  EXPECT_THAT(Run({"doctor"}).out, HasSubstr("being drained"));
  EXPECT_EQ(Run({"drain", "--resume"}).out, "the node takes new leases and loads again\n");
  EXPECT_EQ(Run({"run", "--state", "smol", "--", "true"}).code, 0);
  EXPECT_THAT(Run({"status"}).out, Not(HasSubstr("draining")));
}

TEST_F(StickyctlLives, WhatIsBeingEvictedIsNotSavedByResuming) {
  Start();
  ASSERT_EQ(Run({"load", MakeTemplate("smol"), "--wait"}).code, 0);
  CtlRun user(Words({"run", "--state", "smol", "--", "sleep", "600"}));
  ASSERT_TRUE(daemon_->LeaseCountBecomes(1));
  ASSERT_EQ(Run({"evict", "smol"}).code, 0);

  EXPECT_THAT(Run({"drain", "smol", "--resume"}).out, HasSubstr("cannot be undone"));
}

TEST_F(StickyctlLives, DrainsThatCannotBeAreRefused) {
  Start();

  EXPECT_EQ(Run({"drain", "none"}).code, 66);
  EXPECT_EQ(Run({"drain", "a/b"}).code, 64);
  EXPECT_EQ(Run({"drain", "a", "b"}).code, 64);
  EXPECT_EQ(Run({"drain", "--resume", "--wait"}).code, 64);
}

// --- two users ----------------------------------------------------------------------------------

TEST_F(StickyctlLives, ANodeAndItsStatesAreDrainedByTheirOwnersAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become two users";
  Start();
  ASSERT_EQ(Run({"load", MakeTemplate("shared", 1 << 20, "access: {mode: node}\n"), "--wait"}).code,
            0);
  OpenToAll();

  const CtlResult node = RunAsNobody({"drain"});
  const CtlResult state = RunAsNobody({"drain", "shared"});
  const CtlResult replaced = RunAsNobody({"load", folder_ / "shared.yaml", "--replace"});

  EXPECT_EQ(node.code, 77);
  EXPECT_THAT(node.err, HasSubstr("for the node's owner"));
  EXPECT_EQ(state.code, 77);
  EXPECT_THAT(state.err, HasSubstr("for its owner and the node's owner"));
  EXPECT_EQ(replaced.code, 77);
  EXPECT_THAT(replaced.err, HasSubstr("to replace it is for its owner"));
  EXPECT_EQ(RunAsNobody({"run", "--state", "shared", "--", "true"}).code, 0);
}

TEST_F(StickyctlLives, AUsersOwnStateIsTheirsToDrainAndTellsTheirName) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become two users";
  Start();
  const std::string path = MakeTemplate("theirs");
  OpenToAll();

  ASSERT_EQ(RunAsNobody({"load", path, "--wait"}).code, 0);
  const CtlResult drained = RunAsNobody({"drain", "theirs"});

  EXPECT_EQ(drained.code, 0) << drained.err;
  EXPECT_THAT(Run({"show", "theirs"}).out, HasSubstr("\nowner:            nobody (65534)\n"));
  EXPECT_THAT(Run({"top"}).out, HasSubstr("  nobody  "));
  EXPECT_EQ(Ask({"show", "theirs"})["state"]["uid"], 65534);
}

}  // namespace
}  // namespace sticky::testing
