// The node config: every key is read, every mistake named at its place, and the installed example
// documents every key with the default that the code has.

#include "config/node_config.h"

#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace sticky::config {
namespace {

using ::sticky::testing::FailsWith;
using ::sticky::testing::IsOk;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Result<NodeConfig> Parse(std::string_view text) { return ParseNodeConfig(text, "n.yaml"); }

std::string ExampleText() {
  std::ifstream file(STICKY_SOURCE_DIR "/config/stickyinvoc.yaml");
  EXPECT_TRUE(file.is_open());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(NodeConfig, EveryKeyIsRead) {
  const Result<NodeConfig> config = Parse(
      "memory:\n  host: 3GiB\n"
      "limits:\n  connections: 1\n  leases: 2\n  states: 3\n  loads: 4\n  queue: 0\n"
      "  per_user: {connections: 9, loads: 10, memory: 16GiB, leases: 11}\n"
      "deadlines: {handshake_ms: 5, plan_ms: 6, fill_stall_ms: 7, shutdown_ms: 8}\n"
      "templates: {folder: /srv//templates/}\n"
      "access: {users: [1001, root, 0], groups: [root]}\n"
      "journal: {events: 100}\n");

  ASSERT_THAT(config, IsOk());
  NodeConfig want;
  want.memory_host_bytes = 3ULL << 30;
  want.connection_count_max = 1;
  want.lease_count_max = 2;
  want.state_count_max = 3;
  want.load_count_max = 4;
  want.handshake_ms = 5;
  want.plan_ms = 6;
  want.fill_stall_ms = 7;
  want.shutdown_ms = 8;
  want.queued_load_count_max = 0;
  want.per_user.connection_count_max = 9;
  want.per_user.load_count_max = 10;
  want.per_user.memory_bytes_max = 16ULL << 30;
  want.per_user.lease_count_max = 11;
  want.template_folder = "/srv/templates";
  want.access = ConnectAccess{{0, 1001}, {0}};
  want.socket = AccessMode::kNode;
  want.journal_event_count = 100;
  EXPECT_TRUE(config.value() == want);
}

TEST(NodeConfig, EmptyTextSectionsAndAutoMeanTheDefaults) {
  for (const char* text :
       {"", "# nothing\n", "{}", "memory:\nlimits:\ndeadlines:\n",
        "templates:\naccess:\njournal:\n", "limits:\n  per_user:\n", "memory:\n  host: auto\n"}) {
    const Result<NodeConfig> config = Parse(text);

    ASSERT_THAT(config, IsOk()) << text;
    EXPECT_TRUE(config.value() == NodeConfig()) << text;
  }
}

TEST(NodeConfig, AnEmptyListLetsNobodyInAndAnAbsentOneEverybody) {
  EXPECT_EQ(Parse("access: {}\n").value().access, std::nullopt);
  EXPECT_EQ(Parse("access: {}\n").value().socket, AccessMode::kOwner);
  EXPECT_EQ(Parse("access: {socket: group}\n").value().socket, AccessMode::kGroup);
  EXPECT_EQ(Parse("access: {socket: owner, users: [0]}\n").value().socket, AccessMode::kOwner);
  EXPECT_EQ(Parse("access: {users: []}\n").value().access, ConnectAccess());
}

TEST(NodeConfig, TheInstalledExampleDocumentsTheDefaults) {
  const Result<NodeConfig> config = LoadNodeConfig(STICKY_SOURCE_DIR "/config/stickyinvoc.yaml");

  ASSERT_THAT(config, IsOk());
  EXPECT_TRUE(config.value() == NodeConfig());
}

// With each of its values changed in turn, the example must mean something else: so every key in it
// is one that the code reads, and each documented default really stands there.
TEST(NodeConfig, EveryLineOfTheInstalledExampleIsRead) {
  const std::string text = ExampleText();
  const std::regex number(R"(( +[a-z_]+: +)([0-9]+))");
  int found = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), number), end; it != end; ++it) {
    const std::smatch& match = *it;
    ++found;

    const Result<NodeConfig> config =
        Parse(text.substr(0, static_cast<std::size_t>(match.position(0))) + match[0].str() + "3" +
              match.suffix().str());

    ASSERT_THAT(config, IsOk()) << match[0];
    EXPECT_FALSE(config.value() == NodeConfig()) << match[0];
  }
  EXPECT_EQ(found, 13) << "a key of NodeConfig is not in the example";
}

struct Mistake {
  const char* title;
  const char* text;
  const char* place;
  const char* reason;
};

class NodeConfigMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(NodeConfigMistake, IsNamedAtItsPlace) {
  const Result<NodeConfig> config = Parse(GetParam().text);

  ASSERT_THAT(config, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(config.error().message, StartsWith(GetParam().place));
  EXPECT_THAT(config.error().message, HasSubstr(GetParam().reason));
}

constexpr Mistake kMistakes[] = {
    {"UnknownSection", "memroy: {host: 1GiB}\n", "n.yaml:1:1: ", "did you mean 'memory'?"},
    {"UnknownLimit", "limits:\n  lease: 3\n", "n.yaml:2:3: ", "did you mean 'leases'?"},
    {"UnknownDeadline", "deadlines:\n  plan_m: 3\n", "n.yaml:2:3: ", "did you mean 'plan_ms'?"},
    {"Twice", "limits:\n  loads: 3\n  loads: 4\n", "n.yaml:3:3: ", "key 'loads' stands twice"},
    {"NoSize", "memory:\n  host: much\n",
     "n.yaml:2:9: ", "'memory.host' wants a size such as 8GiB, found 'much'"},
    {"SizeWithoutAUnit", "memory:\n  host: 8\n",
     "n.yaml:2:9: ", "'memory.host' wants 1.00 MiB or more, found '8'"},
    {"NegativeSize", "memory:\n  host: -1\n", "n.yaml:2:9: ", "found '-1'"},
    {"ZeroLimit", "limits: {loads: 0}\n",
     "n.yaml:1:17: ", "'limits.loads' wants a whole number from 1 to 64, found '0'"},
    {"LimitTooLarge", "limits: {states: 5000}\n", "n.yaml:1:18: ", "from 1 to 4096"},
    {"Fraction", "deadlines: {plan_ms: 1.5}\n", "n.yaml:1:22: ", "whole number"},
    {"Unit", "deadlines: {plan_ms: 60s}\n", "n.yaml:1:22: ", "found '60s'"},
    {"Huge", "deadlines: {plan_ms: 99999999999999}\n", "n.yaml:1:22: ", "whole number"},
    {"UnknownUserLimit", "limits:\n  per_user:\n    load: 3\n",
     "n.yaml:3:5: ", "unknown key 'limits.per_user.load'; did you mean 'loads'?"},
    {"UserMemoryWithoutAUnit", "limits: {per_user: {memory: 16}}\n",
     "n.yaml:1:29: ", "'limits.per_user.memory' wants 1.00 MiB or more, found '16'"},
    {"QueueTooLong", "limits: {queue: 4097}\n", "n.yaml:1:17: ", "from 0 to 4096"},
    {"FolderOfNothing", "templates: {folder: templates.d}\n",
     "n.yaml:1:21: ", "'templates.folder' wants a whole path, found 'templates.d'"},
    {"UnknownUser", "access:\n  users: [root, no-such-user]\n",
     "n.yaml:2:17: ", "this node has no user 'no-such-user'"},
    {"UnknownGroup", "access:\n  groups:\n    - no-such-group\n",
     "n.yaml:3:7: ", "this node has no group 'no-such-group'"},
    {"UserWithoutAList", "access: {users: root}\n",
     "n.yaml:1:17: ", "'access.users' wants a list, found 'root'"},
    {"UnknownSocketMode", "access: {socket: all}\n", "n.yaml:1:18: ", "owner, group or node"},
    {"FewEvents", "journal: {events: 63}\n", "n.yaml:1:19: ", "from 64 to 1000000"},
    {"List", "limits: [1]\n", "n.yaml:1:9: ", "'limits' wants a mapping, found a list"},
};

INSTANTIATE_TEST_SUITE_P(Each, NodeConfigMistake, ::testing::ValuesIn(kMistakes),
                         [](const auto& mistake) { return mistake.param.title; });

}  // namespace
}  // namespace sticky::config
