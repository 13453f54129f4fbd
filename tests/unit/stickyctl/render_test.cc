// What stickyctl prints: the JSON keys that scripts rely on, tables that line up, and nothing that
// a terminal obeys, whatever a peer calls its things.

#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/stickyctl/render_json.h"
#include "tools/stickyctl/render_text.h"

namespace sticky::stickyctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

wire::StateInfo SampleState() {
  wire::StateInfo state;
  state.name = "smol";
  state.phase = wire::StatePhase::kReady;
  state.device = "host";
  state.content_digest = Digest{{1, 2, 3}};
  state.template_digest = Digest{{4, 5, 6}};
  state.epoch = 7;
  state.arena_bytes = 3ULL << 30;
  state.tensor_count = 273;
  state.lease_count = 2;
  state.age_ms = 61'000;
  state.load_ms = 1500;
  state.source = "/models/smol.gguf";
  state.huge_pages = "thp";
  return state;
}

wire::LeaseInfo SampleLease() {
  return {.lease_id = 9,
          .state = "smol",
          .pid = 4711,
          .uid = 1000,
          .age_ms = 12,
          .command = "claims",
          .hold = true,
          .epoch = 7};
}

std::vector<std::string> Keys(const Json& json) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  return keys;
}

TEST(RenderJson, KeysOfAStateAreStable) {
  EXPECT_THAT(
      Keys(StateJson(SampleState())),
      ElementsAre("name", "phase", "device", "dtype", "source", "content_digest", "template_digest",
                  "epoch", "arena_bytes", "done_bytes", "tensor_count", "lease_count", "hold_count",
                  "pinned", "huge_pages", "age_ms", "load_ms", "failure"));
}

TEST(RenderJson, KeysOfLeasesAndStatusAreStable) {
  EXPECT_THAT(Keys(LeasesJson({SampleLease()})[0]),
              ElementsAre("lease_id", "state", "epoch", "pid", "uid", "age_ms", "hold", "command"));
  EXPECT_THAT(
      Keys(StatusJson({})),
      ElementsAre("version", "pid", "uid", "uptime_ms", "daemon_nonce", "socket_path", "cgroup",
                  "device", "auto_dtype", "shutting_down", "budget_bytes", "used_bytes",
                  "state_count", "lease_count", "connection_count", "connection_count_max"));
}

TEST(RenderJson, StalenessIsABooleanOrUnknown) {
  using Verdict = Staleness::Verdict;
  const auto json = [](Verdict verdict, const char* reason) {
    Json state = Json::object();
    AddStaleness({verdict, reason}, state);
    return Dump(state);
  };
  EXPECT_EQ(json(Verdict::kFresh, ""), R"({"stale":false,"stale_reason":null})");
  EXPECT_EQ(json(Verdict::kStale, "x"), R"({"stale":true,"stale_reason":"x"})");
  EXPECT_EQ(json(Verdict::kUnknown, "y"), R"({"stale":null,"stale_reason":"y"})");
}

// docs/stickyctl.md has a row for each object, with its keys.
TEST(RenderJson, EveryKeyIsDocumented) {
  std::ifstream file(STICKY_SOURCE_DIR "/docs/stickyctl.md");
  ASSERT_TRUE(file.is_open());
  std::map<std::string, std::string> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("| ")) rows[line.substr(2, line.find(' ', 2) - 2)] = line;
  }

  Json state = StateJson(SampleState());
  AddStaleness({}, state);

  const std::vector<std::pair<std::string, Json>> objects = {
      {"state", state}, {"lease", LeasesJson({SampleLease()})[0]}, {"daemon", StatusJson({})}};
  for (const auto& [object, json] : objects) {
    for (const std::string& key : Keys(json)) {
      EXPECT_THAT(rows[object], HasSubstr("`" + key + "`")) << object;
    }
  }
}

TEST(RenderJson, ADocumentBeginsWithItsSchemaVersionAndIsOneLine) {
  Json document = Document();
  document["states"] = StatesJson({SampleState()});

  EXPECT_THAT(Dump(document),
              ::testing::StartsWith("{\"schema_version\":1,\"states\":[{\"name\":\"smol\""));
  EXPECT_THAT(Dump(document), Not(HasSubstr("\n")));
}

TEST(RenderJson, NumbersStayWholeAtTheirLargest) {
  wire::StateInfo state = SampleState();
  state.arena_bytes = std::numeric_limits<std::uint64_t>::max();

  EXPECT_THAT(Dump(StateJson(state)), HasSubstr("\"arena_bytes\":18446744073709551615"));
}

TEST(RenderJson, AnErrorHasItsExitCode) {
  const client::Failed failed{Stage::kAnswer, Error{Code::kNotFound, "show 'x': none", 2}};

  EXPECT_EQ(
      Dump(ErrorJson(failed)),
      "{\"schema_version\":1,\"error\":{\"code\":\"not_found\",\"message\":\"show 'x': none\","
      "\"os_code\":2,\"exit_code\":66}}");
}

TEST(RenderJson, AFailedStateSaysWhy) {
  wire::StateInfo state = SampleState();
  state.phase = wire::StatePhase::kFailed;
  state.failure = wire::Failure{Code::kCorrupt, "short file", 0};

  EXPECT_THAT(
      Dump(StateJson(state)),
      HasSubstr("\"failure\":{\"code\":\"corrupt\",\"message\":\"short file\",\"os_code\":0}"));
}

// Every byte, alone and after the escape character: a terminal may be told nothing by them.
TEST(Render, TextOfOthersIsHarmless) {
  std::string evil =
      "\x1b[2J\x1b]0;title\x07\r\n\x9b"
      "31m\xc2\x9b"
      "31m\xff\xfe\xe2\x80";
  for (int byte = 1; byte < 256; ++byte) evil += static_cast<char>(byte);
  wire::LeaseInfo lease = SampleLease();
  lease.command = evil;
  wire::StateInfo state = SampleState();
  state.source = evil;
  state.huge_pages = evil;
  state.device = evil;
  state.failure = wire::Failure{Code::kInternal, evil, 0};
  wire::StatusReply status;
  wire::Manifest manifest;
  manifest.state = "smol";
  manifest.arena_bytes = {4096};
  manifest.notes = {evil};
  const std::vector<std::uint8_t> bytes = wire::EncodeManifest(manifest);
  const wire::ManifestView view = wire::ManifestView::Open(bytes).value();
  status.cgroup = status.socket_path = status.version = status.device = evil;

  for (const std::string& text :
       {LeasesText({lease}), StatesText({state}), StateText(state), StatusText(status),
        StalenessText({Staleness::Verdict::kStale, evil}), StalenessText({{}, evil}),
        NotesText(view), Dump(NotesJson(view)), Dump(LeasesJson({lease})), Dump(StateJson(state)),
        Dump(StatusJson(status)),
        Dump(ErrorJson({Stage::kAnswer, Error{Code::kInternal, evil}}))}) {
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      EXPECT_TRUE(byte == '\n' || (byte >= 0x20 && byte != 0x7F)) << int{byte} << " in " << text;
    }
    EXPECT_THAT(text, Not(HasSubstr("\xc2\x9b")));
  }
}

TEST(RenderText, ColumnsLineUp) {
  EXPECT_EQ(Table({"NAME", ">SIZE", "NOTE"}, {{"a", "5", ""}, {"lange\xc3\xbc", "12345", "x"}}),
            "NAME     SIZE  NOTE\n"
            "a           5\n"
            "lange\xc3\xbc  12345  x\n");
}

TEST(RenderText, AnEmptyListSaysWhatToDo) {
  EXPECT_THAT(StatesText({}), HasSubstr("stickyctl load TEMPLATE"));
  EXPECT_EQ(LeasesText({}), "no leases\n");
}

TEST(RenderText, AStateInATableTellsItsSizeUseAndAge) {
  wire::StateInfo filling = SampleState();
  filling.name = "big";
  filling.phase = wire::StatePhase::kFilling;
  filling.bytes_done = 1ULL << 30;
  filling.hold_count = 1;

  const std::string text = StatesText({SampleState(), filling});

  EXPECT_EQ(text,
            "NAME  PHASE            SIZE  TENSORS  LEASES  KEPT    AGE    SOURCE\n"
            "smol  ready        3.00 GiB      273       2  -       1 min  /models/smol.gguf\n"
            "big   filling 33%  3.00 GiB      273       2  1 held  1 min  /models/smol.gguf\n");
}

TEST(RenderText, StatesHaveAColumnForStalenessWhenItWasAskedFor) {
  using Verdict = Staleness::Verdict;
  const Staleness staleness[] = {{Verdict::kFresh, ""}, {Verdict::kStale, "x"}};

  const std::string text = StatesText({SampleState(), SampleState()}, staleness);

  EXPECT_THAT(text, HasSubstr("AGE    STALE  SOURCE\n"));
  EXPECT_THAT(text, HasSubstr("1 min  no     /models/smol.gguf\n"));
  EXPECT_THAT(text, HasSubstr("1 min  yes    /models/smol.gguf\n"));
}

TEST(RenderText, DurationsAreReadable) {
  EXPECT_EQ(Duration(0), "0 ms");
  EXPECT_EQ(Duration(999), "999 ms");
  EXPECT_EQ(Duration(3456), "3.4 s");
  EXPECT_EQ(Duration(59'999), "59.9 s");
  EXPECT_EQ(Duration(60'000), "1 min");
  EXPECT_EQ(Duration(2 * 3'600'000 + 600'000), "2 h 10 min");
  EXPECT_EQ(Duration(76 * 3'600'000ULL), "3 d 4 h");
}

}  // namespace
}  // namespace sticky::stickyctl
