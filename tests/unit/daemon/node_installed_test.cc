// Installed templates: states that the daemon has built by itself.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/daemon/core_rig.h"

namespace sticky::daemon {
namespace {

using ::testing::HasSubstr;
using wire::StatePhase;

constexpr std::uint32_t kStranger = 1001;

Installed Template(const std::string& name, BuildWhen build, AccessMode mode = AccessMode::kNode) {
  Installed installed;
  installed.name = name;
  installed.path = "/etc/stickyinvoc/templates.d/" + name + ".yaml";
  installed.build = build;
  installed.access.mode = mode;
  installed.template_digest.bytes.fill(1);
  return installed;
}

// As the requester asks for it.
wire::LoadRequest LoadOf(const std::string& name, AccessMode mode = AccessMode::kNode) {
  wire::LoadRequest load = CoreRig::Load(name);
  load.policy.access.mode = mode;
  return load;
}

struct InstalledRig : CoreRig {
  explicit InstalledRig(std::vector<Installed> installed) {
    Keep(core.Install(std::move(installed), /*gid=*/kOurUid, now_ns));
    Connect(1);
    Connect(2, kStranger);
  }
  void EndRequester(const Error& error) {
    Keep(core.RequesterEnded(Last<StartRequester>()->state, error, now_ns));
  }
};

TEST(InstalledTemplates, AnAttachBuildsTheStateAndGetsIt) {
  InstalledRig rig({Template("m", BuildWhen::kOnDemand)});
  EXPECT_EQ(rig.Count<StartRequester>(), 0);

  rig.Ask(2, 1, CoreRig::AttachTo("m", 1000));

  ASSERT_EQ(rig.Count<StartRequester>(), 1);
  EXPECT_EQ(rig.Last<StartRequester>()->path, "/etc/stickyinvoc/templates.d/m.yaml");
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kQueued);
  rig.Ask(1, 1, LoadOf("m"));
  EXPECT_EQ(rig.Last<StartLoader>()->state, rig.Last<StartRequester>()->state);
  rig.EndRequester(Error{Code::kInternal, "it has nothing left to do"});
  rig.Plan(100);
  rig.Fill();
  EXPECT_NE(rig.Answer<wire::AttachReply>(2, 1), nullptr);
  EXPECT_EQ(rig.InfoOf("m")->uid, kOurUid) << "it is the node's";
}

TEST(InstalledTemplates, OneRequesterServesAllWhoAttachMeanwhile) {
  InstalledRig rig({Template("m", BuildWhen::kOnDemand)});

  for (std::uint32_t i = 0; i < 5; ++i) rig.Ask(2, i, CoreRig::AttachTo("m", 1000));

  EXPECT_EQ(rig.Count<StartRequester>(), 1);
  rig.Ask(1, 1, LoadOf("m"));
  rig.Plan(100);
  rig.Fill();
  for (std::uint32_t i = 0; i < 5; ++i) {
    EXPECT_NE(rig.Answer<wire::AttachReply>(2, i), nullptr) << i;
  }
}

TEST(InstalledTemplates, AnAttachThatDoesNotWaitBeginsTheBuildToo) {
  InstalledRig rig({Template("m", BuildWhen::kOnDemand)});

  rig.Ask(2, 1, CoreRig::AttachTo("m"));

  EXPECT_EQ(rig.Answer<wire::Failure>(2, 1)->code, Code::kUnavailable);
  EXPECT_EQ(rig.Count<StartRequester>(), 1);
}

TEST(InstalledTemplates, WhoMayNotUseItFindsNothingAndBeginsNothing) {
  InstalledRig rig({Template("m", BuildWhen::kOnDemand, AccessMode::kOwner)});

  rig.Ask(2, 1, CoreRig::AttachTo("m", 1000));

  EXPECT_EQ(rig.Answer<wire::Failure>(2, 1)->code, Code::kNotFound);
  EXPECT_EQ(rig.Count<StartRequester>(), 0);
}

TEST(InstalledTemplates, AManualOneIsBuiltByALoadAlone) {
  InstalledRig rig({Template("m", BuildWhen::kManual)});

  rig.Ask(2, 1, CoreRig::AttachTo("m", 1000));

  EXPECT_EQ(rig.Answer<wire::Failure>(2, 1)->code, Code::kNotFound);
  EXPECT_EQ(rig.Count<StartRequester>(), 0);
}

TEST(InstalledTemplates, ThoseOfTheStartAreBegunAFewAtATime) {
  std::vector<Installed> many;
  for (int i = 0; i < 10; ++i) {
    many.push_back(Template("m" + std::to_string(i), BuildWhen::kAtStart));
  }
  InstalledRig rig(std::move(many));

  EXPECT_EQ(rig.Count<StartRequester>(), 4);
  EXPECT_EQ(rig.core.state_count(), 10U) << "all are expected, and can be waited for";
  rig.EndRequester(Error{Code::kNotFound, "no such model"});
  EXPECT_EQ(rig.Count<StartRequester>(), 5);
  EXPECT_EQ(rig.PhaseOf("m3"), StatePhase::kFailed);
}

TEST(InstalledTemplates, TheReasonOfAFailureReachesWhoeverWaits) {
  InstalledRig rig({Template("m", BuildWhen::kOnDemand)});
  rig.Ask(2, 1, CoreRig::AttachTo("m", 1000));

  rig.EndRequester(Error{Code::kNotFound, "find '/models/m': no such file"});

  const auto* const failure = rig.Answer<wire::Failure>(2, 1);
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->code, Code::kNotFound);
  EXPECT_THAT(failure->message, HasSubstr("find '/models/m': no such file"));
  EXPECT_THAT(failure->message, HasSubstr("templates.d/m.yaml"));
  rig.Ask(2, 2, CoreRig::AttachTo("m", 1000));
  EXPECT_EQ(rig.Count<StartRequester>(), 1) << "not tried again by everyone who comes";
  rig.Tick(CoreRig::DefaultLimits().failed_kept_ns + kMs);
  rig.Ask(2, 3, CoreRig::AttachTo("m", 1000));
  EXPECT_EQ(rig.Count<StartRequester>(), 2) << "but once the failure is forgotten";
}

TEST(InstalledTemplates, ARequesterThatHangsIsEndedAndItsStateFails) {
  InstalledRig rig({Template("m", BuildWhen::kOnDemand)});
  rig.Ask(2, 1, CoreRig::AttachTo("m", 600'000));

  rig.Tick(CoreRig::DefaultLimits().plan_ns + kMs);

  EXPECT_THAT(rig.Answer<wire::Failure>(2, 1)->message, HasSubstr("were not opened within 60.0 s"));
  EXPECT_EQ(rig.Last<KillLoader>()->state, rig.Last<StartRequester>()->state);
}

TEST(InstalledTemplates, AnotherUsersLoadOfThatNameDoesNotTakeItsPlace) {
  InstalledRig rig({Template("m", BuildWhen::kOnDemand)});
  rig.Ask(2, 1, CoreRig::AttachTo("m", 1000));
  wire::LoadRequest other = CoreRig::Load("m");
  other.template_digest.bytes.fill(2);

  rig.Ask(2, 2, other);
  rig.Ask(2, 3, CoreRig::Load("m", 1000));

  EXPECT_EQ(rig.Answer<wire::Failure>(2, 2)->code, Code::kUnavailable);
  EXPECT_EQ(rig.AnswerCount(2, 3), 0) << "the same template: it waits with the others";
  EXPECT_EQ(rig.Count<StartLoader>(), 0);
}

TEST(InstalledTemplates, TheirNamesAreTheNodesOwners) {
  InstalledRig rig({Template("m", BuildWhen::kOnDemand), Template("n", BuildWhen::kManual)});

  rig.Ask(2, 1, CoreRig::Load("m"));
  rig.Ask(2, 2, CoreRig::Load("n"));
  rig.Ask(2, 3, wire::BuildRequest{.state = "m"});

  for (const std::uint32_t request : {1U, 2U, 3U}) {
    const auto* const failure = rig.Answer<wire::Failure>(2, request);
    ASSERT_NE(failure, nullptr) << request;
    EXPECT_EQ(failure->code, Code::kPermissionDenied);
    EXPECT_THAT(failure->message, HasSubstr("an installed template's"));
  }
  EXPECT_EQ(rig.core.state_count(), 0U);
}

TEST(InstalledTemplates, WhoWaitsGetsNothingThatIsNotForThemInTheEnd) {
  InstalledRig rig({Template("m", BuildWhen::kOnDemand)});
  rig.Ask(2, 1, CoreRig::AttachTo("m", 1000));

  rig.Ask(1, 1, LoadOf("m", AccessMode::kOwner));  // the file says so by now
  rig.Plan(100);
  rig.Fill();

  ASSERT_NE(rig.Answer<wire::Failure>(2, 1), nullptr);
  EXPECT_EQ(rig.Answer<wire::Failure>(2, 1)->code, Code::kPermissionDenied);
  EXPECT_EQ(rig.core.leases().count(), 0U);
}

TEST(InstalledTemplates, APassingHitchIsNotRememberedForLong) {
  InstalledRig rig({Template("m", BuildWhen::kOnDemand)});
  rig.Ask(2, 1, CoreRig::AttachTo("m", 1000));
  rig.EndRequester(Error{Code::kUnavailable, "the node is being drained"});

  rig.Ask(2, 2, CoreRig::AttachTo("m", 1000));
  EXPECT_EQ(rig.Count<StartRequester>(), 1) << "not tried again at once";
  rig.now_ns += 3000 * kMs;
  rig.Ask(2, 3, CoreRig::AttachTo("m", 1000));

  EXPECT_EQ(rig.Count<StartRequester>(), 2);
}

TEST(InstalledTemplates, AnEvictedStateIsBuiltAgainBesideWhatDrains) {
  InstalledRig rig({Template("m", BuildWhen::kOnDemand)});
  rig.MakeReady(LoadOf("m"), 100);
  rig.Ask(2, 1, CoreRig::AttachTo("m"));
  rig.Ask(1, 2, wire::EvictRequest{"m", 0});
  EXPECT_EQ(rig.PhaseOf("m"), StatePhase::kDraining);

  rig.Ask(2, 3, CoreRig::AttachTo("m", 1000));

  EXPECT_EQ(rig.Count<StartRequester>(), 1);
}

TEST(InstalledTemplates, ADrainedNodeBuildsNone) {
  InstalledRig rig({Template("m", BuildWhen::kOnDemand)});
  rig.Ask(1, 1, wire::DrainRequest{});

  rig.Ask(2, 2, CoreRig::AttachTo("m", 1000));

  EXPECT_EQ(rig.Answer<wire::Failure>(2, 2)->code, Code::kUnavailable);
  EXPECT_EQ(rig.Count<StartRequester>(), 0);
}

TEST(InstalledTemplates, EveryoneIsToldThoseThatTheyMayUseAndTheOwnerWhatIsWrong) {
  Installed broken;
  broken.path = "/etc/stickyinvoc/templates.d/b.yaml";
  broken.problem = "b.yaml:1:1: no";
  InstalledRig rig({Template("a", BuildWhen::kManual, AccessMode::kOwner), broken,
                    Template("c", BuildWhen::kOnDemand)});

  rig.Ask(1, 1, wire::TemplatesRequest{});
  rig.Ask(2, 2, wire::TemplatesRequest{});

  const auto* const owner = rig.Answer<wire::TemplatesReply>(1, 1);
  const auto* const stranger = rig.Answer<wire::TemplatesReply>(2, 2);
  ASSERT_EQ(owner->templates.size(), 3U);
  EXPECT_EQ(owner->templates[1].problem, "b.yaml:1:1: no");
  ASSERT_EQ(stranger->templates.size(), 1U);
  EXPECT_EQ(stranger->templates[0].name, "c");
}

TEST(InstalledTemplates, AShutdownEndsWhatIsExpected) {
  InstalledRig rig({Template("m", BuildWhen::kOnDemand)});
  rig.Ask(2, 1, CoreRig::AttachTo("m", 1000));

  rig.Keep(rig.core.ShutDown(rig.now_ns));

  EXPECT_EQ(rig.AnswerCount(2, 1), 1);
  EXPECT_EQ(rig.Last<KillLoader>()->state, rig.Last<StartRequester>()->state);
}

}  // namespace
}  // namespace sticky::daemon
