// What stickyctl prints: the JSON keys that scripts rely on, tables that line up, and nothing that
// a terminal obeys, whatever a peer calls its things.

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/stickyctl/render_events.h"
#include "tools/stickyctl/render_json.h"
#include "tools/stickyctl/render_policy.h"
#include "tools/stickyctl/render_text.h"
#include "tools/stickyctl/render_top.h"

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
          .epoch = 7,
          .job = "slurm 77.0"};
}

std::string Users(std::uint32_t uid) { return uid == 1000 ? "alice" : Number(uid); }

std::vector<std::string> Keys(const Json& json) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  return keys;
}

TEST(RenderJson, KeysOfAStateAreStable) {
  EXPECT_THAT(Keys(StateJson(SampleState())),
              ElementsAre("name", "phase", "device", "dtype", "source", "content_digest",
                          "template_digest", "epoch", "arena_bytes", "done_bytes", "tensor_count",
                          "lease_count", "hold_count", "outlives_daemon", "pinned", "huge_pages",
                          "age_ms", "load_ms", "failure", "uid", "policy", "idle_ms", "queue_place",
                          "wanted_bytes", "closed", "builder", "base", "queued_ms", "cancelled"));
}

TEST(RenderJson, KeysOfLeasesAndStatusAreStable) {
  EXPECT_THAT(Keys(LeasesJson({SampleLease()})[0]),
              ElementsAre("lease_id", "state", "epoch", "pid", "uid", "age_ms", "hold", "command",
                          "job", "process_ended"));
  EXPECT_THAT(Keys(StatusJson({})),
              ElementsAre("version", "pid", "uid", "uptime_ms", "daemon_nonce", "socket_path",
                          "cgroup", "device", "auto_dtype", "shutting_down", "budget_bytes",
                          "used_bytes", "state_count", "lease_count", "connection_count",
                          "connection_count_max", "draining", "queue_count", "load_count",
                          "attach_total", "evict_total", "refusal_total", "keeper", "keeper_lost",
                          "foreign_state_count", "foreign_bytes", "own_bytes", "own_bytes_max"));
}

TEST(RenderJson, APolicyHasItsLabelsAsAnObject) {
  Policy policy;
  policy.ttl_ms = 5000;
  policy.access = {AccessMode::kGroup, {1000}, {50, 51}};
  policy.labels = {{"team", "blue"}, {"a/b", "\x1b[2J\n"}};

  EXPECT_EQ(Dump(PolicyJson(policy)),
            R"({"pin":false,"idle_ms":0,"ttl_ms":5000,"priority":0,)"
            R"("access":{"mode":"group","users":[1000],"groups":[50,51]},)"
            R"("labels":{"team":"blue","a/b":"\u001b[2J\n"},"lease_count_max":0})");
}

TEST(RenderJson, WhatDoesNotApplyToAStateIsNull) {
  wire::StateInfo idle = SampleState();
  idle.lease_count = 0;
  idle.idle_ms = 7;
  wire::StateInfo queued = SampleState();
  queued.phase = wire::StatePhase::kQueued;
  queued.queue_place = 2;

  EXPECT_EQ(StateJson(idle)["idle_ms"], 7);
  EXPECT_EQ(StateJson(idle)["queue_place"], nullptr);
  EXPECT_EQ(StateJson(SampleState())["idle_ms"], nullptr) << "it is leased";
  EXPECT_EQ(StateJson(queued)["queue_place"], 2);
  EXPECT_EQ(LeasesJson({SampleLease()})[0]["job"], "slurm 77.0");
}

TEST(RenderJson, KeysOfAnEventAreStable) {
  EXPECT_THAT(Keys(EventJson({})), ElementsAre("schema_version", "sequence", "time_ms", "kind",
                                               "state", "epoch", "uid", "pid", "text"));
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
      {"state", state},
      {"lease", LeasesJson({SampleLease()})[0]},
      {"daemon", StatusJson({})},
      {"event", EventJson({})},
      {"policy", PolicyJson({})}};
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

// What a peer may call its things: every byte, alone and after the escape character, and more of
// them than any table is wide.
std::string Evil() {
  std::string evil =
      "\x1b[2J\x1b]0;title\x07\r\n\x9b"
      "31m\xc2\x9b"
      "31m\xff\xfe\xe2\x80";
  for (int byte = 1; byte < 256; ++byte) evil += static_cast<char>(byte);
  return evil + std::string(10'000, 'x');
}

TEST(Render, AStateOfABuilderTellsWhoMadeItAndOfWhat) {
  wire::StateInfo state = SampleState();
  state.builder = "./build_table 1000";
  state.base = "roots";
  state.source = "";
  wire::Manifest manifest;
  manifest.state = "smol";
  manifest.arena_bytes = {4096};
  manifest.base = "roots";
  manifest.cpu = "x86-64-v3";
  manifest.base_digest = Digest{{7}};
  const std::vector<std::uint8_t> bytes = wire::EncodeManifest(manifest);
  const wire::ManifestView view = wire::ManifestView::Open(bytes).value();
  Json json = StateJson(state);

  const std::string text = StateText(state, {}, Users, &view);
  AddMaking(&view, json);

  EXPECT_THAT(text, HasSubstr("builder:          ./build_table 1000\n"));
  EXPECT_THAT(text, HasSubstr("base:             roots (07000000000000000000000000000000)\n"));
  EXPECT_THAT(text, HasSubstr("cpu:              for x86-64-v3\n"));
  EXPECT_THAT(StatesText({state}), HasSubstr("./build_table 1000")) << "in place of a source";
  EXPECT_EQ(json["base_digest"], "07000000000000000000000000000000");
  EXPECT_EQ(json["cpu"], "x86-64-v3");
  EXPECT_EQ(json["whole_files"], false);
}

TEST(Render, AFileStateTellsItsFilesAndNoTensors) {
  wire::Manifest manifest;
  manifest.state = "smol";
  manifest.whole_files = true;
  manifest.arena_bytes = {5000};
  manifest.assets = {{"a.txt", 0, 0, 5000}, {"none", 0, 0, 0}};
  const std::vector<std::uint8_t> bytes = wire::EncodeManifest(manifest);
  const wire::ManifestView view = wire::ManifestView::Open(bytes).value();

  const std::string text = StateText(SampleState(), {}, Users, &view);

  EXPECT_THAT(text, HasSubstr("files:            2\n"));
  EXPECT_THAT(text, Not(HasSubstr("tensors")));
  EXPECT_EQ(ManifestText(view),
            "FILE       SIZE  BYTES\n"
            "a.txt  4.88 KiB   5000\n"
            "none        0 B      0\n");
}

TEST(Render, TextOfOthersIsHarmless) {
  const std::string evil = Evil();
  wire::LeaseInfo lease = SampleLease();
  lease.state = lease.command = lease.job = evil;
  wire::StateInfo state = SampleState();
  state.name = state.source = state.huge_pages = state.device = state.builder = state.base = evil;
  state.closed = true;
  state.policy.labels = {{evil, evil}};
  state.failure = wire::Failure{Code::kInternal, evil, 0};
  wire::Event event;
  event.state = event.text = evil;
  wire::StatusReply status;
  status.cgroup = status.socket_path = status.version = status.device = evil;
  wire::Manifest manifest;
  manifest.state = "smol";
  manifest.arena_bytes = {4096};
  manifest.notes = {evil.substr(0, 300)};  // as long as a manifest takes them
  manifest.cpu = evil.substr(0, 300);
  const std::vector<std::uint8_t> bytes = wire::EncodeManifest(manifest);
  const wire::ManifestView view = wire::ManifestView::Open(bytes).value();

  for (const std::string& text :
       {LeasesText({lease}, Users), StatesText({state}), StateText(state, {lease}, Users, &view),
        StatusText(status, Users), EventTable().Lines({event}, Users), HoldersText({lease}, Users),
        TopText({status, {state}}, nullptr, {}, Users),
        StalenessText({Staleness::Verdict::kStale, evil}), StalenessText({{}, evil}),
        NotesText(view), Dump(NotesJson(view)), Dump(LeasesJson({lease})), Dump(StateJson(state)),
        Dump(StatusJson(status)), Dump(EventJson(event)),
        Dump(ErrorJson({Stage::kAnswer, Error{Code::kInternal, evil}}))}) {
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      EXPECT_TRUE(byte == '\n' || (byte >= 0x20 && byte != 0x7F)) << int{byte} << " in " << text;
    }
    EXPECT_THAT(text, Not(HasSubstr("\xc2\x9b")));
  }
}

TEST(Render, JsonOfOthersTextIsOneLineOfAscii) {
  const std::string evil = Evil();
  wire::StateInfo state = SampleState();
  state.name = evil;
  state.policy.labels = {{evil, evil}};
  wire::Event event;
  event.state = event.text = evil;

  for (const std::string& text : {Dump(StateJson(state)), Dump(EventJson(event))}) {
    for (const char c : text) {
      EXPECT_TRUE(c >= 0x20 && c < 0x7F) << int{static_cast<unsigned char>(c)};
    }
    EXPECT_TRUE(Json::accept(text));
    EXPECT_THAT(text, HasSubstr(std::string(10'000, 'x'))) << "whole, as scripts want it";
  }
}

// One name that is long or has line breaks does not make the table unreadable.
TEST(Render, ATableOfOthersTextHasOneLineARow) {
  wire::LeaseInfo lease = SampleLease();
  lease.state = lease.command = lease.job = Evil();
  wire::StateInfo state = SampleState();
  state.name = state.source = Evil();

  for (const std::string& text :
       {LeasesText({lease, SampleLease()}, Users), StatesText({state, SampleState()})}) {
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
    for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
      EXPECT_LT(text.find('\n', at) - at, 600U) << text;
    }
  }
}

TEST(RenderText, ColumnsLineUp) {
  EXPECT_EQ(Table({"NAME", ">SIZE", "NOTE"}, {{"a", "5", ""}, {"lange\xc3\xbc", "12345", "x"}}),
            "NAME     SIZE  NOTE\n"
            "a           5\n"
            "lange\xc3\xbc  12345  x\n");
}

TEST(RenderText, CellsAreCutBetweenCharacters) {
  EXPECT_EQ(Cell("short", 5), "short");
  EXPECT_EQ(Cell("longer", 5), "lo...");
  EXPECT_EQ(Cell("\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc", 4), "\xc3\xbc...");
  EXPECT_EQ(CellOfEnd("/models/smol.gguf", 12), "...smol.gguf");
  EXPECT_EQ(CellOfEnd("\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc", 4), "...\xc3\xbc");
}

TEST(RenderText, AnEmptyListSaysWhatToDo) {
  EXPECT_THAT(StatesText({}), HasSubstr("stickyctl load TEMPLATE"));
  EXPECT_EQ(LeasesText({}, Users), "no leases\n");
}

TEST(RenderText, AStateInATableTellsItsSizeUseAndAge) {
  wire::StateInfo filling = SampleState();
  filling.name = "big";
  filling.phase = wire::StatePhase::kFilling;
  filling.bytes_done = 1ULL << 30;
  filling.hold_count = 1;

  const std::string text = StatesText({SampleState(), filling});

  EXPECT_EQ(text,
            "NAME  PHASE            SIZE  LEASES  KEPT  AGE    SOURCE\n"
            "smol  ready        3.00 GiB       2  -     1 min  /models/smol.gguf\n"
            "big   filling 33%  3.00 GiB       2  held  1 min  /models/smol.gguf\n");
}

TEST(RenderText, ATableOfStatesTellsWhatKeepsAndWhatEndsThem) {
  const auto kept = [](bool pinned, std::uint32_t holds, std::uint64_t idle_ms,
                       std::uint64_t ttl_ms) {
    wire::StateInfo state = SampleState();
    state.pinned = pinned;
    state.hold_count = holds;
    state.policy.idle_ms = idle_ms;
    state.policy.ttl_ms = ttl_ms;
    return StatesText({state});
  };

  EXPECT_THAT(kept(true, 0, 0, 0), HasSubstr("  pin   "));
  EXPECT_THAT(kept(false, 3, 0, 0), HasSubstr("  held  "));
  EXPECT_THAT(kept(false, 0, 600'000, 0), HasSubstr("  idle 10 min  "));
  EXPECT_THAT(kept(false, 0, 0, 7'200'000), HasSubstr("  ttl 2 h  "));
  EXPECT_THAT(kept(true, 1, 600'000, 60'000), HasSubstr("  pin, held, ttl 1 min  "))
      << "a pinned state does not go when it is idle";
}

TEST(RenderText, ATableOfStatesMarksClosedAndQueuedOnes) {
  wire::StateInfo closed = SampleState();
  closed.closed = true;
  wire::StateInfo queued = SampleState();
  queued.phase = wire::StatePhase::kQueued;
  queued.queue_place = 2;

  const std::string text = StatesText({closed, queued});

  EXPECT_THAT(text, HasSubstr("\nsmol  ready, closed  "));
  EXPECT_THAT(text, HasSubstr("\nsmol  queued, place 2  "));
}

TEST(RenderText, TwoStatesOfOneNameAreToldApartByTheirEpochs) {
  wire::StateInfo next = SampleState();
  next.epoch = 12;
  next.phase = wire::StatePhase::kPlanning;
  wire::StateInfo other = SampleState();
  other.name = "other";

  EXPECT_EQ(StatesText({SampleState(), next}),
            "NAME  PHASE         SIZE  LEASES  KEPT  AGE    EPOCH  SOURCE\n"
            "smol  ready     3.00 GiB       2  -     1 min      7  /models/smol.gguf\n"
            "smol  planning  3.00 GiB       2  -     1 min     12  /models/smol.gguf\n");
  EXPECT_THAT(StatesText({SampleState(), other}), Not(HasSubstr("EPOCH")));
}

TEST(RenderText, ALoadThatWasCancelledIsNotToldAsAFailure) {
  wire::StateInfo state = SampleState();
  state.phase = wire::StatePhase::kFailed;
  state.failure = wire::Failure{Code::kUnavailable, "load 'smol': cancelled", 0};
  state.cancelled = true;

  EXPECT_THAT(StatesText({state}), HasSubstr("\nsmol  cancelled  "));
  const std::string text = StateText(state, {}, Users);
  EXPECT_THAT(text, HasSubstr("\ncancelled:        unavailable: load 'smol': cancelled\n"));
  EXPECT_THAT(text, Not(HasSubstr("fail")));
}

TEST(RenderText, TheTimeOfALoadAndItsTimeInTheQueueAreToldApart) {
  wire::StateInfo state = SampleState();
  EXPECT_THAT(StateText(state, {}, Users), HasSubstr("\nload took:        1.5 s\n"));

  state.queued_ms = 12'000;

  EXPECT_THAT(StateText(state, {}, Users),
              HasSubstr("\nload took:        1.5 s, after 12.0 s in the queue\n"));
}

TEST(RenderText, AReadyStateTellsTheDtypesThatItGot) {
  wire::Manifest manifest;
  manifest.state = "smol";
  manifest.arena_bytes = {1 << 20};
  manifest.tensors = {{"a", Dtype::kF32, {4, 4}, 0, 0, 64},
                      {"b", Dtype::kBf16, {32, 32}, 0, 256, 2048},
                      {"norm", Dtype::kF16, {8}, 0, 4096, 16}};
  const std::vector<std::uint8_t> bytes = wire::EncodeManifest(manifest);
  const wire::ManifestView view = wire::ManifestView::Open(bytes).value();
  wire::StateInfo chosen = SampleState();
  chosen.dtype = DtypeChoice::kBf16;
  Json json = StateJson(SampleState());

  AddMaking(&view, json);

  EXPECT_THAT(StateText(SampleState(), {}, Users, &view),
              HasSubstr("\ndtype:            bf16, f32 (auto)\n"));
  EXPECT_THAT(StateText(chosen, {}, Users, &view), HasSubstr("\ndtype:            bf16, f32\n"));
  EXPECT_THAT(StateText(SampleState(), {}, Users), HasSubstr("\ndtype:            auto\n"));
  EXPECT_EQ(json["matrix_dtypes"], (Json{"bf16", "f32"}));
}

TEST(RenderText, AStateThatIsDrainedSaysHowToGetItBack) {
  EXPECT_EQ(ClosedText(SampleState()), "");
  wire::StateInfo closed = SampleState();
  closed.closed = true;

  EXPECT_THAT(ClosedText(closed), HasSubstr("takes no new leases"));
  EXPECT_THAT(ClosedText(closed), HasSubstr("`stickyctl drain smol --resume`"));
  EXPECT_THAT(ClosedText(closed), HasSubstr("--replace"));
}

TEST(RenderPolicy, WhatDiffersIsNamedAsTemplatesNameIt) {
  Policy kept;
  kept.access.users = {1, 2};
  kept.labels = {{"a", "1"}, {"b", "2"}};
  Policy same = kept;
  same.access.users = {2, 1};
  same.labels = {{"b", "2"}, {"a", "1"}};
  Policy other;
  other.pin = true;
  other.idle_ms = other.ttl_ms = 5;
  other.priority = -1;
  other.lease_count_max = 3;

  EXPECT_THAT(PolicyDifferences(same, kept), ElementsAre()) << "order means nothing";
  EXPECT_THAT(PolicyDifferences(other, kept),
              ElementsAre("lifetime.pin", "lifetime.idle", "lifetime.ttl", "priority", "access",
                          "labels", "max_leases"));
  EXPECT_EQ(KeptPolicyText("m", {}), "");
  EXPECT_THAT(KeptPolicyText("m", {"priority", "labels"}),
              HasSubstr("state 'm' keeps its own priority, labels"));
}

TEST(RenderText, ATableOfStatesFitsAHundredColumns) {
  wire::StateInfo state = SampleState();
  state.name = "llama-3.1-8b-instruct";
  state.phase = wire::StatePhase::kFilling;
  state.arena_bytes = 15ULL << 30;
  state.bytes_done = 10ULL << 30;
  state.lease_count = 128;
  state.policy.idle_ms = 90 * 60'000;
  state.age_ms = 130 * 60'000;
  state.source = "/scratch/models/meta-llama/Llama-3.1-8B-Instruct";

  const std::string text = StatesText({SampleState(), state});

  EXPECT_THAT(text, HasSubstr("...1-8B-Instruct\n")) << "a path's end tells more";
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    EXPECT_LE(text.find('\n', at) - at, 100U) << text;
  }
}

TEST(RenderText, AStateTellsItsOwnerPolicyAndWhoHoldsIt) {
  wire::StateInfo state = SampleState();
  state.uid = 1000;
  state.hold_count = 1;
  state.policy.priority = -5;
  state.policy.access.users = {1000, 1001};
  state.policy.labels = {{"team", "blue"}};
  state.closed = true;

  const std::string text = StateText(state, {SampleLease()}, Users);

  EXPECT_THAT(text, HasSubstr("\nowner:            alice (1000)\n"));
  EXPECT_THAT(text, HasSubstr("\nlast used:        now\n"));
  EXPECT_THAT(text, HasSubstr("\nkept by:          held by pid 4711 of user alice\n"));
  EXPECT_THAT(text, HasSubstr("\npriority:         -5\n"));
  EXPECT_THAT(text, HasSubstr("\naccess:           owner; users alice, 1001\n"));
  EXPECT_THAT(text, HasSubstr("\nlabel:            team: blue\n"));
  EXPECT_THAT(text, HasSubstr("`stickyctl drain smol --resume`"));
}

TEST(RenderText, AStateTellsWhenItWasUsedLastAndWhereItWaits) {
  wire::StateInfo idle = SampleState();
  idle.lease_count = 0;
  idle.idle_ms = 600'000;
  wire::StateInfo queued = idle;
  queued.phase = wire::StatePhase::kQueued;
  queued.queue_place = 2;
  queued.wanted_bytes = 4ULL << 30;

  EXPECT_THAT(StateText(idle, {}, Users), HasSubstr("\nlast used:        10 min ago\n"));
  EXPECT_THAT(StateText(queued, {}, Users),
              HasSubstr("\nwaits at:         place 2 of the queue, needs 4.00 GiB\n"));
}

TEST(RenderText, HoldersAreNamedUpToAFew) {
  wire::LeaseInfo use = SampleLease();
  use.hold = false;
  std::vector<wire::LeaseInfo> leases = {use};
  EXPECT_EQ(HoldersText(leases, Users), "") << "who only uses it does not hold it";

  for (std::uint64_t pid = 1; pid <= 6; ++pid) {
    leases.push_back(SampleLease());
    leases.back().pid = pid;
  }

  EXPECT_EQ(HoldersText(leases, Users),
            "held by pid 1 of user alice, pid 2 of user alice, pid 3 of user alice, pid 4 of user "
            "alice and 2 more");
}

TEST(RenderText, LeasesTellUserAndJob) {
  wire::LeaseInfo stranger = SampleLease();
  stranger.uid = 1001;
  stranger.job = "";
  stranger.hold = false;

  EXPECT_EQ(LeasesText({SampleLease(), stranger}, Users),
            "LEASE  STATE  EPOCH   PID  USER   AGE    KIND  JOB         COMMAND\n"
            "    9  smol       7  4711  alice  12 ms  hold  slurm 77.0  claims\n"
            "    9  smol       7  4711  1001   12 ms  use   -           claims\n");
}

TEST(RenderText, ALeaseWhoseProcessHasEndedSaysThatAnotherKeepsIt) {
  wire::LeaseInfo lease = SampleLease();
  lease.process_ended = true;

  EXPECT_THAT(LeasesText({lease}, Users),
              HasSubstr("  (process ended; its connection is kept by another)\n"));
}

TEST(RenderText, StatusTellsDrainQueueAndTotals) {
  wire::StatusReply status;
  status.version = "1.2.3";
  EXPECT_THAT(StatusText(status, Users), Not(HasSubstr("drain")));
  status.draining = true;
  status.load_count = 2;
  status.queue_count = 3;
  status.attach_total = 1;
  status.evict_total = 5;

  const std::string text = StatusText(status, Users);

  EXPECT_THAT(text, HasSubstr("\ndraining:     no new leases, no new loads; `stickyctl drain"));
  EXPECT_THAT(text, HasSubstr("\nloads:        2 running, 3 in the queue\n"));
  EXPECT_THAT(text, HasSubstr("\nsince start:  1 attach, 5 evictions for room, 0 refusals\n"));
}

TEST(RenderText, StatesHaveAColumnForStalenessWhenItWasAskedFor) {
  using Verdict = Staleness::Verdict;
  const Staleness staleness[] = {{Verdict::kFresh, ""}, {Verdict::kStale, "x"}};

  wire::StateInfo other = SampleState();
  other.name = "more";

  const std::string text = StatesText({SampleState(), other}, staleness);

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
  EXPECT_EQ(Duration(2 * 3'600'000), "2 h") << "nothing is said of no minutes";
  EXPECT_EQ(Duration(76 * 3'600'000ULL), "3 d 4 h");
  EXPECT_EQ(Duration(72 * 3'600'000ULL), "3 d");
}

}  // namespace
}  // namespace sticky::stickyctl
