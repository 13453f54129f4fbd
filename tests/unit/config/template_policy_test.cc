// What a template says of a state's life among others: every key is read, within its limits, and
// every mistake is an error at its place.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/template.h"
#include "tests/testing/matchers.h"

namespace sticky::config {
namespace {

using ::sticky::testing::FailsWith;
using ::sticky::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Result<Template> Parse(const std::string& policy) {
  return ParseTemplate("name: a\nsource: {path: /m}\n" + policy, "/", "t.yaml");
}

TEST(TemplatePolicy, EveryKeyIsRead) {
  const Result<Template> made = Parse(
      "lifetime: {pin: true, idle: 30s, ttl: 2h}\n"
      "priority: -7\n"
      "access: {mode: group, users: [7, root, 5, 7], groups: [root]}\n"
      "labels: {team/x: blue, a.b: '', n: 12}\n"
      "max_leases: 9\n");

  ASSERT_THAT(made, IsOk());
  const Policy& policy = made.value().policy;
  EXPECT_TRUE(policy.pin);
  EXPECT_EQ(policy.idle_ms, 30'000u);
  EXPECT_EQ(policy.ttl_ms, 7'200'000u);
  EXPECT_EQ(policy.priority, -7);
  EXPECT_EQ(policy.access.mode, AccessMode::kGroup);
  EXPECT_THAT(policy.access.users, ElementsAre(0, 5, 7));
  EXPECT_THAT(policy.access.groups, ElementsAre(0));
  EXPECT_THAT(policy.labels,
              ElementsAre(Label{"a.b", ""}, Label{"n", "12"}, Label{"team/x", "blue"}));
  EXPECT_EQ(policy.lease_count_max, 9u);
}

TEST(TemplatePolicy, DurationsHaveOneUnitAndAreAtMostAYear) {
  const auto idle_ms = [](const std::string& text) {
    return Parse("lifetime: {idle: " + text + "}\n").value().policy.idle_ms;
  };

  EXPECT_EQ(idle_ms("1ms"), 1u);
  EXPECT_EQ(idle_ms("10min"), 600'000u);
  EXPECT_EQ(idle_ms("1d"), 86'400'000u);
  EXPECT_EQ(idle_ms("365d"), 365ull * 86'400'000u);
  for (const char* text : {"30", "1.5h", "-1s", "1 h", "1h30min", "s", "1m", "1y", "forever",
                           "99999999999999999999d", "9223372036854775807d"}) {
    EXPECT_THAT(Parse("lifetime: {idle: " + std::string(text) + "}\n").error().message,
                HasSubstr("'lifetime.idle' wants a duration such as 30s, 10min, 2h or 1d"))
        << text;
  }
  for (const char* text : {"0s", "366d", "8761h"}) {
    EXPECT_THAT(Parse("lifetime: {ttl: " + std::string(text) + "}\n").error().message,
                HasSubstr("'lifetime.ttl' wants a duration from 1ms to 365d, found"))
        << text;
  }
}

std::string ManyLabels(std::size_t count) {
  std::string text = "labels:\n";
  for (std::size_t i = 0; i < count; ++i) text += "  k" + std::to_string(i) + ": v\n";
  return text;
}

TEST(TemplatePolicy, LimitsHoldToTheLastOne) {
  const auto users = [](std::size_t count) {
    std::string text = "access:\n  users:\n";
    for (std::size_t i = 0; i < count; ++i) text += "    - " + std::to_string(i) + "\n";
    return text;
  };
  const auto label = [](std::size_t key_bytes, std::size_t value_bytes) {
    return "labels:\n  " + std::string(key_bytes, 'k') + ": " + std::string(value_bytes, 'v');
  };

  EXPECT_THAT(Parse(ManyLabels(kLabelsMax)), IsOk());
  EXPECT_THAT(Parse(ManyLabels(kLabelsMax + 1)), FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(Parse(users(kAccessIdsMax)), IsOk());
  EXPECT_THAT(Parse(users(kAccessIdsMax + 1)), FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(Parse(label(kLabelKeyBytesMax, kLabelValueBytesMax)), IsOk());
  EXPECT_THAT(Parse(label(kLabelKeyBytesMax + 1, 1)), FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(Parse(label(1, kLabelValueBytesMax + 1)), FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(Parse("priority: 100\nmax_leases: 1048576\n"), IsOk());
  EXPECT_THAT(Parse("access: {users: [4294967294]}\n"), IsOk());
}

struct Mistake {
  const char* title;
  const char* text;   // from the third line on
  const char* place;  // how the message begins
  const char* reason;
};

class TemplatePolicyMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(TemplatePolicyMistake, IsNamedAtItsPlace) {
  const Result<Template> made = Parse(GetParam().text);

  ASSERT_THAT(made, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(made.error().message, StartsWith(GetParam().place));
  EXPECT_THAT(made.error().message, HasSubstr(GetParam().reason));
}

constexpr Mistake kMistakes[] = {
    {"PriorityTooHigh", "priority: 101\n",
     "t.yaml:3:11: ", "'priority' wants a whole number from -100 to 100, found '101'"},
    {"PriorityIsQuoted", "priority: '1'\n", "t.yaml:3:11: ", "found text in quotes"},
    {"PriorityIsNothing", "priority:\n", "t.yaml:3:1: ", "found nothing"},
    {"NoLeases", "max_leases: 0\n", "t.yaml:3:13: ", "from 1 to 1048576, found '0'"},
    {"UnknownMode", "access: {mode: world}\n",
     "t.yaml:3:16: ", "'access.mode' wants owner, group or node, found 'world'"},
    {"UnknownAccessKey", "access:\n  user: [root]\n", "t.yaml:4:3: ", "did you mean 'users'?"},
    {"UsersAreNoList", "access: {users: root}\n",
     "t.yaml:3:17: ", "'access.users' wants a list, found 'root'"},
    {"UnknownUser", "access:\n  users:\n    - root\n    - no-such-user\n",
     "t.yaml:6:7: ", "this node has no user 'no-such-user'"},
    {"UnknownGroup", "access: {groups: [no-such-group]}\n",
     "t.yaml:3:19: ", "this node has no group 'no-such-group'"},
    {"EmptyUser", "access: {users: ['']}\n", "t.yaml:3:18: ", "this node has no user ''"},
    {"NoUserId", "access: {users: [4294967295]}\n", "t.yaml:3:18: ", "from 0 to 4294967294"},
    {"UserIsAMapping", "access: {users: [{a: b}]}\n",
     "t.yaml:3:18: ", "'access.users[0]' wants text, found a mapping"},
    {"LabelsAreAList", "labels: [a]\n", "t.yaml:3:9: ", "'labels' wants a mapping, found a list"},
    {"LabelKeyHasABlank", "labels:\n  a b: c\n", "t.yaml:4:3: ", "found 'a b'"},
    {"LabelIsNothing", "labels:\n  a:\n", "t.yaml:4:3: ", "'labels.a' wants text, found nothing"},
    {"LabelHasANewline", "labels: {a: \"b\\nc\"}\n", "t.yaml:3:13: ", "control characters"},
    {"LabelHasAC1Control", "labels: {a: \"b\\u009bc\"}\n", "t.yaml:3:13: ", "control characters"},
    {"LabelTwice", "labels:\n  a: b\n  a: c\n", "t.yaml:5:3: ", "key 'a' stands twice"},
};

INSTANTIATE_TEST_SUITE_P(Each, TemplatePolicyMistake, ::testing::ValuesIn(kMistakes),
                         [](const auto& mistake) { return mistake.param.title; });

}  // namespace
}  // namespace sticky::config
