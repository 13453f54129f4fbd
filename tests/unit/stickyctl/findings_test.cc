// What doctor makes of a node: nothing is wrong with a sound one, each fault is found with what to
// do about it, and the exit code follows.

#include "tools/stickyctl/doctor/findings.h"

#include <cerrno>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/stickyctl/doctor/render_findings.h"

namespace sticky::stickyctl {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::uint64_t kGiB = 1u << 30;

// A node on which everything works and a daemon answers.
NodeFacts Sound() {
  NodeFacts facts;
  facts.stickyctl_version = "1.2.3";
  facts.protocol_min = 1;
  facts.protocol_max = 1;
  facts.uid = 1000;
  facts.socket.chosen = {"/run/user/1000/stickyinvoc/stickyd.sock", "$XDG_RUNTIME_DIR"};
  facts.socket.file = {FileFacts::Kind::kSocket, 1000, 0600};
  facts.socket.folder = "/run/user/1000/stickyinvoc";
  facts.socket.folder_file = {FileFacts::Kind::kFolder, 1000, 0700};
  facts.daemon.failure.reset();
  facts.daemon.version = "1.2.3";
  facts.daemon.pid = 4711;
  facts.daemon.uid = 1000;
  facts.daemon.budget_bytes = 8 * kGiB;
  facts.daemon.keeper = "systemd";
  facts.daemon.used_bytes = 2 * kGiB;
  facts.daemon.largest_state_bytes = 2 * kGiB;
  facts.daemon.connection_count_max = 4096;
  facts.daemon.limits = {Limit{65536, 65536}, Limit{0, 0}, Limit{kUnlimited, kUnlimited}};
  facts.daemon.group = GroupFacts{"/app.slice/stickyd.service", kUnlimited, kUnlimited, 0};
  facts.library_version = "1.2.3";
  facts.library_path = "/usr/lib/libstickyinvoc.so.0";
  facts.memory = {
      16 * kGiB, 12 * kGiB, {"/user.slice", kUnlimited, kUnlimited, kUnlimited}, 0, 8 * kGiB};
  facts.huge_pages = {"madvise", "madvise", "never", 0, 0};
  facts.limits = {Limit{1024, 4096}, Limit{8u << 20, 8u << 20}, Limit{kUnlimited, kUnlimited}};
  facts.kernel.release = "6.1.0";
  return facts;
}

// The findings about `what` that are no mere record, as "level: found -> do" lines.
std::string Complaints(const NodeFacts& facts, const std::string& what) {
  std::string lines;
  for (const Finding& finding : Diagnose(facts)) {
    if (finding.what != what || finding.level == Level::kOk) continue;
    lines += std::string(Name(finding.level)) + ": " + finding.found + " -> " + finding.remedy;
  }
  return lines;
}

int ExitCodeFor(const NodeFacts& facts) { return ExitCodeOf(facts, Diagnose(facts)); }

NodeFacts WithoutDaemon(Code code, int exit_code) {
  NodeFacts facts = Sound();
  facts.daemon = DaemonFacts{};
  facts.daemon.failure = Error{code, "connect to stickyd at '/x': it said no"};
  facts.daemon.exit_code = exit_code;
  return facts;
}

TEST(Diagnose, EachUnusableTemplateIsToldWithItsReason) {
  NodeFacts facts = Sound();
  facts.daemon.template_problems = {"/t/a.yaml:1:1: no name", "read '/t/b.yaml': no rights"};

  const std::string complaints = Complaints(facts, "templates");

  EXPECT_THAT(complaints,
              HasSubstr("warning: an installed template cannot be used: /t/a.yaml:1:1"));
  EXPECT_THAT(complaints, HasSubstr("read '/t/b.yaml': no rights"));
  EXPECT_EQ(ExitCodeFor(facts), 0) << "the others work";
}

TEST(Diagnose, NothingIsWrongWithASoundNode) {
  const std::vector<Finding> findings = Diagnose(Sound());

  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.level, Level::kOk) << finding.what << ": " << finding.found;
    EXPECT_THAT(finding.remedy, IsEmpty()) << finding.what;
    EXPECT_THAT(finding.found, Not(IsEmpty())) << finding.what;
  }
  EXPECT_EQ(ExitCodeOf(Sound(), findings), kExitOk);
}

// --- the socket and the daemon ------------------------------------------------------------------

TEST(Diagnose, NothingAtTheSocketSaysHowADaemonIsStartedAndWhereElseASocketIs) {
  NodeFacts facts = WithoutDaemon(Code::kUnavailable, kExitNoDaemon);
  facts.socket.file = {};
  facts.socket.others = {{"/run/stickyinvoc/stickyd.sock", "the default"}};

  EXPECT_EQ(ExitCodeFor(facts), kExitNoDaemon);
  const std::string told = Complaints(facts, "daemon");
  EXPECT_THAT(told, HasSubstr("problem: no daemon listens"));
  EXPECT_THAT(told, HasSubstr("systemctl --user start stickyd.socket"));
  EXPECT_THAT(told, HasSubstr("'/run/stickyinvoc/stickyd.sock' (the default): --socket"));
}

TEST(Diagnose, WhatADeadDaemonLeftIsReplacedByTheNext) {
  const NodeFacts facts = WithoutDaemon(Code::kUnavailable, kExitNoDaemon);

  EXPECT_THAT(Complaints(facts, "daemon"), HasSubstr("replaces what a dead one left"));
}

TEST(Diagnose, AFileThatIsNoSocketIsNamed) {
  NodeFacts facts = WithoutDaemon(Code::kUnavailable, kExitNoDaemon);
  facts.socket.file.kind = FileFacts::Kind::kOther;

  EXPECT_THAT(Complaints(facts, "daemon"), HasSubstr("is no socket -> move it away"));
}

TEST(Diagnose, TheExitCodeSaysWhyNoDaemonAnswers) {
  const NodeFacts foreign = WithoutDaemon(Code::kPermissionDenied, kExitNotAllowed);
  EXPECT_EQ(ExitCodeFor(foreign), kExitNotAllowed);
  EXPECT_THAT(Complaints(foreign, "daemon"), HasSubstr("-> it is for others"));
  const NodeFacts long_path = WithoutDaemon(Code::kInvalidArgument, kExitUsage);
  EXPECT_EQ(ExitCodeFor(long_path), kExitUsage);
  EXPECT_THAT(Complaints(long_path, "daemon"), HasSubstr("-> name a shorter path"));
  const NodeFacts garbled = WithoutDaemon(Code::kCorrupt, kExitInternal);
  EXPECT_EQ(ExitCodeFor(garbled), kExitInternal);
  EXPECT_THAT(Complaints(garbled, "daemon"), HasSubstr("-> see the daemon's log"));
}

TEST(Diagnose, AFolderThatOthersMayWriteToIsAProblem) {
  NodeFacts facts = Sound();
  facts.socket.folder_file.mode = 0770;
  EXPECT_THAT(Complaints(facts, "folder"), HasSubstr("problem: others may write"));
  EXPECT_EQ(ExitCodeFor(facts), kExitTryAgain);
  facts.socket.folder_file = {FileFacts::Kind::kOther, 1000, 0700};
  EXPECT_THAT(Complaints(facts, "folder"), HasSubstr("is no folder"));
}

TEST(Diagnose, AFolderOfRootIsFineAndThatOfAStrangerIsNot) {
  NodeFacts facts = Sound();
  facts.socket.folder_file = {FileFacts::Kind::kFolder, 0, 0755};
  EXPECT_THAT(Complaints(facts, "folder"), IsEmpty());
  facts.socket.folder_file.uid = 1001;
  EXPECT_THAT(Complaints(facts, "folder"), HasSubstr("warning: '/run/user/1000/stickyinvoc' "
                                                     "belongs to user 1001"));
}

TEST(Diagnose, AnotherVersionOfDaemonOrLibraryIsTold) {
  NodeFacts facts = Sound();
  facts.daemon.version = "1.2.2";
  EXPECT_THAT(Complaints(facts, "versions"),
              HasSubstr("stickyd is version 1.2.2, stickyctl 1.2.3"));
  facts = Sound();
  facts.library_version = "0.9\x1b[2J";
  EXPECT_THAT(Complaints(facts, "versions"), HasSubstr("is version 0.9\\x1b[2J"));
  EXPECT_EQ(ExitCodeFor(facts), kExitOk) << "a warning is no problem";
  facts.library_version.reset();
  EXPECT_THAT(Complaints(facts, "library"), HasSubstr("note: "));
}

TEST(Diagnose, WhatBecomesOfStatesWhenTheDaemonDiesIsTold) {
  NodeFacts facts = Sound();
  facts.daemon.keeper = "";
  EXPECT_THAT(Complaints(facts, "keeper"), HasSubstr("note: none: states end with the daemon"));
  facts.daemon.keeper = "sticky-keeper";
  facts.daemon.keeper_lost = true;
  EXPECT_THAT(Complaints(facts, "keeper"), HasSubstr("warning: sticky-keeper has gone"));
  facts.daemon.keeper_lost = false;
  EXPECT_THAT(Complaints(facts, "keeper"), IsEmpty());
  facts.daemon.foreign_count = 2;
  facts.daemon.foreign_bytes = 3 * kGiB;
  EXPECT_THAT(Complaints(facts, "keeper"),
              HasSubstr("2 states of a stickyd of another version are kept, and hold 3.00 GiB"));
}

TEST(Diagnose, ADaemonThatEndsIsNoneToStartWith) {
  NodeFacts facts = Sound();
  facts.daemon.shutting_down = true;

  EXPECT_THAT(Complaints(facts, "daemon"),
              HasSubstr("warning: it is being drained, or shuts down"));
}

// --- memory -------------------------------------------------------------------------------------

TEST(Diagnose, ABudgetThatTheCgroupCannotGiveIsAProblem) {
  NodeFacts facts = Sound();
  facts.daemon.group = GroupFacts{"/job_7", 8 * kGiB - 1, 7 * kGiB};

  EXPECT_THAT(Complaints(facts, "budget"), HasSubstr("problem: the daemon's budget is 8.00 GiB"));
  EXPECT_THAT(Complaints(facts, "budget"), HasSubstr("-> lower memory.host"));
  EXPECT_EQ(ExitCodeFor(facts), kExitTryAgain);
  facts.daemon.group = GroupFacts{"/job_7", 8 * kGiB, 6 * kGiB};
  EXPECT_THAT(Complaints(facts, "budget"), IsEmpty());
}

TEST(Diagnose, ABudgetThatIsNotThereNowIsAWarning) {
  NodeFacts facts = Sound();
  facts.daemon.group = GroupFacts{"/job_7", 8 * kGiB, 6 * kGiB - 1};
  EXPECT_THAT(Complaints(facts, "budget"), HasSubstr("warning: "));
  facts = Sound();
  facts.memory.available_bytes = 6 * kGiB - 1;
  EXPECT_THAT(Complaints(facts, "budget"), HasSubstr("but the node has 6.00 GiB available"));
  EXPECT_EQ(ExitCodeFor(facts), kExitOk);
}

TEST(Diagnose, SwapIsToldWhereStatesMayGoThere) {
  NodeFacts facts = Sound();
  facts.memory.swap_bytes = 4 * kGiB;
  EXPECT_THAT(Complaints(facts, "swap"), IsEmpty()) << "the unit keeps states out of it";
  facts.daemon.group->swap_limit_bytes = kUnlimited;
  EXPECT_THAT(Complaints(facts, "swap"), HasSubstr("note: the node has 4.00 GiB of swap"));
  EXPECT_THAT(Complaints(facts, "swap"), HasSubstr("MemorySwapMax=0"));
  facts.daemon.group.reset();
  EXPECT_THAT(Complaints(facts, "swap"), IsEmpty()) << "nobody knows";
  facts = Sound();
  facts.daemon.group->swap_limit_bytes = kUnlimited;
  EXPECT_THAT(Complaints(facts, "swap"), IsEmpty()) << "there is none";
}

TEST(Diagnose, ASmallDevShmIsExplained) {
  NodeFacts facts = Sound();
  facts.memory.dev_shm_bytes = 64u << 20;

  EXPECT_EQ(Complaints(facts, "dev-shm"),
            "note: /dev/shm has 64.00 MiB; states do not lie there and need none of it -> ");
}

TEST(Diagnose, SmallPagesAreAWarningOnlyWhereNothingJoinsThem) {
  NodeFacts facts = Sound();
  facts.kernel.collapse = EINVAL;
  EXPECT_THAT(Complaints(facts, "huge-pages"), HasSubstr("-> Linux 6.1 or later, or as root"));
  facts.huge_pages.shmem_enabled = "deny";
  EXPECT_THAT(Complaints(facts, "huge-pages"), HasSubstr("-> as root: echo advise"));
  facts.huge_pages.shmem_enabled = "advise";
  EXPECT_THAT(Complaints(facts, "huge-pages"), IsEmpty());
}

// --- limits and the kernel ----------------------------------------------------------------------

TEST(Diagnose, TooFewDescriptorsForTheDaemonsConnectionsAreTold) {
  NodeFacts facts = Sound();
  facts.daemon.limits.open_files = Limit{1024, 1024};
  EXPECT_THAT(Complaints(facts, "open-files"), HasSubstr("warning: here 1024 (hard 4096), the "
                                                         "daemon 1024: too few for 4096"));
  facts = Sound();
  facts.limits.open_files = Limit{20, 100};
  EXPECT_THAT(Complaints(facts, "open-files"), HasSubstr("-> ulimit -n 100"));
}

TEST(Diagnose, AnAddressSpaceSmallerThanAStateIsAProblem) {
  NodeFacts facts = Sound();
  facts.limits.address_space_bytes = Limit{2 * kGiB, 2 * kGiB};
  EXPECT_THAT(Complaints(facts, "address-space"), HasSubstr("problem: "));
  facts.limits.address_space_bytes = Limit{3 * kGiB, 3 * kGiB};
  EXPECT_THAT(Complaints(facts, "address-space"), HasSubstr("note: "));
  EXPECT_EQ(ExitCodeFor(facts), kExitOk);
  facts = Sound();
  facts.daemon.limits.address_space_bytes = Limit{kGiB, kGiB};
  EXPECT_THAT(Complaints(facts, "address-space"), HasSubstr("warning: the daemon may map"));
}

TEST(Diagnose, AKernelWithoutWhatStatesRestOnIsAProblem) {
  for (int KernelFacts::*feature : {&KernelFacts::memfd_sealing, &KernelFacts::open_file_locks,
                                    &KernelFacts::peer_credentials}) {
    NodeFacts facts = Sound();
    facts.kernel.*feature = ENOSYS;
    EXPECT_THAT(Complaints(facts, "kernel"), HasSubstr("problem: "));
    EXPECT_EQ(ExitCodeFor(facts), kExitTryAgain);
  }
  NodeFacts facts = Sound();
  facts.kernel.populate_write = EINVAL;
  facts.kernel.memfd_huge = ENOSYS;
  EXPECT_EQ(ExitCodeFor(facts), kExitOk) << "they can be done without";
  EXPECT_THAT(Complaints(facts, "kernel"), HasSubstr("note: MADV_POPULATE_WRITE cannot be had"));
}

TEST(Diagnose, ASysctlThatRefusesMemfdsIsNamedOnlyWhenItDoes) {
  NodeFacts facts = Sound();
  facts.kernel.memfd_noexec = 2;
  EXPECT_EQ(ExitCodeFor(facts), kExitOk);
  facts.kernel.memfd_sealing = EINVAL;
  EXPECT_THAT(Complaints(facts, "kernel"), HasSubstr("-> set the sysctl vm.memfd_noexec to 1"));
}

TEST(Diagnose, WhatTheNodeLacksOrHidesIsTold) {
  NodeFacts facts = Sound();
  facts.kernel.file_max = 10'000;
  facts.kernel.file_count = 9'000;
  facts.kernel.proc_is_hidden = true;
  facts.gpu_sign = "/dev/nvidiactl";

  EXPECT_THAT(Complaints(facts, "file-max"), HasSubstr("9000 of 10000 files"));
  EXPECT_THAT(Complaints(facts, "hidepid"), HasSubstr("note: "));
  EXPECT_THAT(Complaints(facts, "gpu"), HasSubstr("host memory only"));
  EXPECT_EQ(ExitCodeFor(facts), kExitOk);
}

// --- how it is printed --------------------------------------------------------------------------

TEST(FindingsText, ProblemsComeFirstWithWhatToDoAndLinesFitATerminal) {
  NodeFacts facts = Sound();
  facts.gpu_sign = "/dev/nvidiactl";
  facts.kernel.memfd_sealing = ENOSYS;
  facts.daemon.version = "9";
  const std::string text = FindingsText(Diagnose(facts));

  EXPECT_THAT(text, ::testing::StartsWith("1 problem, 1 warning, 1 note\n\nproblem  kernel: "));
  EXPECT_LT(text.find("\nproblem"), text.find("\nwarning"));
  EXPECT_LT(text.find("\nwarning"), text.find("\nnote"));
  EXPECT_LT(text.find("\nnote"), text.find("\nsocket: "));
  EXPECT_THAT(text, HasSubstr("\n  do:    states need it: another kernel"));
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    EXPECT_LE(end - begin, 80U) << text.substr(begin, end - begin);
  }
}

TEST(FindingsJson, HasTheFourKeysOfEachFinding) {
  const Json json = FindingsJson(
      {{Level::kOk, "cpu", "found", ""}, {Level::kProblem, "daemon", "none", "start one"}});

  EXPECT_EQ(json.dump(), R"([{"level":"ok","what":"cpu","found":"found","do":null},)"
                         R"({"level":"problem","what":"daemon","found":"none","do":"start one"}])");
}

}  // namespace
}  // namespace sticky::stickyctl
