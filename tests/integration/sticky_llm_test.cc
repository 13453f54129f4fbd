// The main job, with the real programs and the real model: a state is built once, many processes
// use it and end in any way, and a private load gives the same bytes.

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/testing/daemon_process.h"
#include "tests/testing/data_dir.h"

namespace sticky {
namespace {

using nlohmann::json;
using sticky::testing::DaemonProcess;
using sticky::testing::ExitStatus;
using sticky::testing::GoldenDir;
using sticky::testing::Process;
using sticky::testing::ProgramPrefix;
using sticky::testing::ReadText;
using sticky::testing::SmolLm2Path;
using sticky::testing::TempFolder;
using sticky::testing::WaitUntil;
using sticky::testing::WriteText;

constexpr std::int64_t kPatienceMs = 100'000;  // two cores, and sanitizers

struct Ran {
  int code = -1;
  std::string output;
};

// One daemon and one state for all tests of this program: that is the product.
class StickyLlm : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(std::filesystem::exists(SmolLm2Path()))
        << SmolLm2Path() << " is missing: run tools/dev/fetch_model";
    daemon_ = new DaemonProcess();
    WriteText(daemon_->folder() / "smollm2.yaml",
              "name: smollm2\nsource:\n  path: " + SmolLm2Path().string() + "\n");
    const Ran loaded = Run({"stickyctl", "load", daemon_->folder() / "smollm2.yaml", "--wait"});
    ASSERT_EQ(loaded.code, 0) << loaded.output;
  }
  static void TearDownTestSuite() { delete daemon_; }

  static Process Start(std::vector<std::string> command, const std::string& output) {
    command[0] = ProgramPrefix() + "/bin/" + command[0];
    return Process::Start({.command = command,
                           .environment = {{"STICKYINVOC_SOCKET", daemon_->socket_path()}},
                           .output_path = output,
                           .before_exec = {}});
  }

  static Ran Run(const std::vector<std::string>& command) {
    const TempFolder folder;
    Process process = Start(command, folder / "output");
    const std::optional<ExitStatus> status = process.Wait(kPatienceMs);
    return {status ? status->code : -1, ReadText(folder / "output")};
  }

  static std::string Claims(int first, int count) {
    std::string text;
    for (int i = first; i < first + count; ++i) {
      text += json{{"id", i},
                   {"claim", "The number " + std::to_string(i) + " is even."},
                   {"label", i % 2 == 0 ? "SUPPORTS" : "REFUTES"}}
                  .dump() +
              "\n";
    }
    return text;
  }

  static DaemonProcess* daemon_;
};
DaemonProcess* StickyLlm::daemon_ = nullptr;

TEST_F(StickyLlm, GreedyTokensAreTheReferencesOnAStateAndPrivately) {
  const json reference =
      json::parse(sticky::testing::ReadFile(GoldenDir() / "smollm2" / "reference.json"));
  const json& row = reference.at("rows")[0];
  const std::string text = row.at("text");
  const std::vector<std::vector<std::string>> sources = {{"--state", "smollm2"},
                                                         {"--model", SmolLm2Path().string()}};
  for (const auto& source : sources) {
    SCOPED_TRACE(source[0]);
    const Ran ran = Run({"sticky-llm", "generate", source[0], source[1], "--prompt", text, "-n",
                         std::to_string(row.at("greedy_ids").size()), "--json"});
    ASSERT_EQ(ran.code, 0) << ran.output;
    const json facts = json::parse(ran.output);
    EXPECT_EQ(facts.at("ids"), row.at("greedy_ids"));
    EXPECT_EQ(facts.at("finish_reason"), "stop");
    EXPECT_EQ(facts.at("shared"), source[0] == "--state");
    EXPECT_GT(facts.at("timings").at("first_token_ms"), facts.at("timings").at("attached_ms"));
  }
}

TEST_F(StickyLlm, VerdictsAreTheSameBytesForAnyBatchAndSource) {
  const TempFolder folder;
  WriteText(folder / "claims", Claims(1, 7));
  std::string first;
  const std::vector<std::vector<std::string>> ways = {
      {"--state", "smollm2", "--batch", "1"},
      {"--state", "smollm2", "--batch", "3"},
      {"--state", "smollm2", "--batch", "64"},
      {"--model", SmolLm2Path().string(), "--batch", "4"}};
  for (const auto& way : ways) {
    SCOPED_TRACE(way[0] + " " + way[3]);
    std::vector<std::string> command = {"sticky-llm",      "verify",   "--input",
                                        folder / "claims", "--output", folder / "verdicts"};
    command.insert(command.end(), way.begin(), way.end());
    const Ran ran = Run(command);
    ASSERT_EQ(ran.code, 0) << ran.output;
    const std::string verdicts = ReadText(folder / "verdicts");
    EXPECT_EQ(std::count(verdicts.begin(), verdicts.end(), '\n'), 7);
    if (first.empty()) first = verdicts;
    EXPECT_EQ(verdicts, first);
  }
}

TEST_F(StickyLlm, AKilledRunGoesOnWithoutDoingClaimsTwice) {
  const TempFolder folder;
  WriteText(folder / "claims", Claims(1, 24));
  const std::vector<std::string> command = {
      "sticky-llm",      "verify",   "--state",           "smollm2", "--input",
      folder / "claims", "--output", folder / "verdicts", "--json"};
  Process victim = Start(command, folder / "log");
  const auto lines = [&] {
    const std::string text = ReadText(folder / "verdicts.partial");
    return std::count(text.begin(), text.end(), '\n');
  };
  ASSERT_TRUE(WaitUntil([&] { return lines() >= 3; }, kPatienceMs));
  victim.Signal(SIGKILL);
  ASSERT_TRUE(victim.Wait().has_value());
  EXPECT_TRUE(daemon_->LeaseCountBecomes(0, 1000));
  EXPECT_EQ(ReadText(folder / "verdicts"), "");
  const std::string begun = ReadText(folder / "verdicts.partial");

  const Ran ran = Run(command);

  ASSERT_EQ(ran.code, 0) << ran.output;
  const json facts = json::parse(ran.output);
  EXPECT_GE(facts.at("resumed_claims"), 2);
  EXPECT_EQ(facts.at("claims"), 24);
  const std::string verdicts = ReadText(folder / "verdicts");
  EXPECT_EQ(std::count(verdicts.begin(), verdicts.end(), '\n'), 24);

  // An input that has changed since, or a partial file that is not what a run of it left.
  const std::string header = begun.substr(0, begun.find('\n') + 1);
  const std::string first = verdicts.substr(0, verdicts.find('\n') + 1);
  const std::string rest = verdicts.substr(first.size());
  for (const std::string& partial : {header + rest, header + first + first + rest}) {
    WriteText(folder / "verdicts.partial", partial);
    const Ran refused = Run(command);
    EXPECT_EQ(refused.code, 65) << refused.output;
    EXPECT_NE(refused.output.find("remove the file"), std::string::npos) << refused.output;
  }
  WriteText(folder / "verdicts.partial", header + first);
  WriteText(folder / "claims", Claims(2, 24));
  EXPECT_EQ(Run(command).code, 65);
}

TEST_F(StickyLlm, ABadLineIsReportedWithItsNumberAndTheRestGoesOn) {
  const TempFolder folder;
  WriteText(folder / "claims", Claims(1, 1) + "{\n" + Claims(2, 1));
  const std::vector<std::string> command = {"sticky-llm", "verify",           "--state",
                                            "smollm2",    "--input",          folder / "claims",
                                            "--output",   folder / "verdicts"};
  const Ran ran = Run(command);
  EXPECT_EQ(ran.code, 0);
  EXPECT_NE(ran.output.find("claims:2:"), std::string::npos) << ran.output;
  const std::string verdicts = ReadText(folder / "verdicts");
  EXPECT_EQ(std::count(verdicts.begin(), verdicts.end(), '\n'), 2);

  std::vector<std::string> strict = command;
  strict.push_back("--strict");
  EXPECT_EQ(Run(strict).code, 65);
}

TEST_F(StickyLlm, TerminatedGenerationEndsAtTheNextTokenAndGivesItsLeaseBack) {
  const TempFolder folder;
  Process process = Start(
      {"sticky-llm", "generate", "--state", "smollm2", "--prompt", "Count: 1, 2, 3,", "-n", "8000"},
      folder / "output");
  ASSERT_TRUE(WaitUntil([&] { return ReadText(folder / "output").size() > 4; }, kPatienceMs));
  process.Signal(SIGTERM);
  const std::optional<ExitStatus> status = process.Wait(kPatienceMs);
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->code, 143);
  EXPECT_TRUE(daemon_->LeaseCountBecomes(0));
}

TEST_F(StickyLlm, APromptLongerThanTheContextIsRefusedWithBothNumbers) {
  const TempFolder folder;
  WriteText(folder / "prompt", std::string(100'000, '7'));
  const Ran ran = Run(
      {"sticky-llm", "generate", "--state", "smollm2", "--prompt", ReadText(folder / "prompt")});
  EXPECT_EQ(ran.code, 65);
  EXPECT_NE(ran.output.find("100000 tokens, the model's context"), std::string::npos)
      << ran.output.substr(0, 400);
}

// T13: the model loads and goes on writing; only a conversation has no form to be written in.
TEST_F(StickyLlm, AnUnknownChatTemplateIsAnErrorForChatsAlone) {
  const TempFolder folder;
  const std::filesystem::path model = folder / "model";
  std::filesystem::copy(GoldenDir() / "models" / "llama-gqa-tied", model);
  json config = json::parse(sticky::testing::ReadFile(model / "tokenizer_config.json"));
  config["chat_template"] = "{% for m in messages %}<<{{ m.content }}>>{% endfor %}";
  std::filesystem::remove(model / "tokenizer_config.json");
  WriteText(model / "tokenizer_config.json", config.dump());
  WriteText(folder / "t.yaml", "name: odd\nsource:\n  path: " + model.string() + "\n");

  const Ran loaded = Run({"stickyctl", "load", folder / "t.yaml", "--wait"});
  const Ran plain =
      Run({"sticky-llm", "generate", "--state", "odd", "--prompt", "hello", "-n", "1"});
  const Ran chat = Run({"sticky-llm", "generate", "--state", "odd", "--chat", "--prompt", "hello"});

  EXPECT_EQ(loaded.code, 0) << loaded.output;
  EXPECT_EQ(plain.code, 0) << plain.output;
  EXPECT_EQ(chat.code, 65) << chat.output;
  EXPECT_NE(chat.output.find("known: "), std::string::npos) << chat.output;
  EXPECT_EQ(Run({"stickyctl", "evict", "odd", "--wait"}).code, 0);
}

TEST_F(StickyLlm, OutputThatIsNotTakenIsNoSuccess) {
  for (const std::string flag : {"", " --json"}) {
    const Ran ran =
        Run({"stickyctl", "run", "--state", "smollm2", "--", "/bin/sh", "-c",
             ProgramPrefix() + "/bin/sticky-llm generate --state smollm2 --prompt Once -n 2" +
                 flag + " >/dev/full"});
    EXPECT_EQ(ran.code, 74) << ran.output;
    EXPECT_NE(ran.output.find("write to standard output"), std::string::npos) << ran.output;
  }
}

TEST_F(StickyLlm, MistakesOnTheCommandLineAreUsageErrorsWithJsonToo) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"generate", "--state", "smollm2", "-n", "x"},
           {"generate", "--state", "smollm2", "--temperature", "-1"},
           {"generate", "--state", "smollm2", "--top-p", "2"},
           {"generate", "--state", "smollm2", "--dtype", "f32"},
           {"generate", "--state", "smollm2", "--system", "x"},
           {"generate", "--model", "x", "--wait", "1"},
           {"generate", "--state", "no good"},
           {"generate", "--prompt", "x"},
           {"genrate"}}) {
    std::vector<std::string> command = {"sticky-llm"};
    command.insert(command.end(), words.begin(), words.end());
    command.insert(command.end(), {"--prompt", "x", "--json"});
    const Ran ran = Run(command);
    EXPECT_EQ(ran.code, 64) << ran.output;
    const json facts = json::parse(ran.output.substr(ran.output.find("\n{") + 1), nullptr, false);
    ASSERT_TRUE(facts.is_object()) << ran.output;
    EXPECT_EQ(facts.at("error").at("exit_code"), 64);
  }
}

TEST_F(StickyLlm, AnOutputThatCannotBeWrittenIsSaidSo) {
  const TempFolder folder;
  WriteText(folder / "claims", Claims(1, 1));
  const Ran ran = Run({"sticky-llm", "verify", "--state", "smollm2", "--input", folder / "claims",
                       "--output", folder / "none/verdicts"});
  EXPECT_EQ(ran.code, 74) << ran.output;
  EXPECT_NE(ran.output.find("none/verdicts"), std::string::npos) << ran.output;
}

TEST_F(StickyLlm, UnderRunTheStateIsTheInheritedOne) {
  const Ran ran =
      Run({"stickyctl", "run", "--state", "smollm2", "--", ProgramPrefix() + "/bin/sticky-llm",
           "generate", "--prompt", "x", "-n", "1"});
  EXPECT_EQ(ran.code, 0) << ran.output;
}

// Case O08: what users ask is theirs.
TEST_F(StickyLlm, NoPromptAndNoClaimIsInTheDaemonsLog) {
  const std::string secret = "xyzzy-plugh";
  const Ran made =
      Run({"sticky-llm", "generate", "--state", "smollm2", "--prompt", secret, "-n", "1"});
  ASSERT_EQ(made.code, 0) << made.output;
  const Ran refused =
      Run({"sticky-llm", "generate", "--state", secret, "--prompt", "x", "-n", "1"});
  EXPECT_EQ(refused.code, 66) << refused.output;

  const std::string log = daemon_->log();
  EXPECT_NE(log.find("listening"), std::string::npos) << log;
  EXPECT_EQ(log.find(secret), std::string::npos) << log;
}

// Each cause of a failed start has its own code, and none becomes a private load in silence.
TEST_F(StickyLlm, EveryCauseOfAFailedAttachHasItsOwnExitCode) {
  EXPECT_EQ(Run({"sticky-llm", "generate", "--state", "nosuch", "--prompt", "x"}).code, 66);
  EXPECT_EQ(Run({"sticky-llm", "generate", "--state", "smollm2", "--socket", "/nonexistent/s",
                 "--prompt", "x"})
                .code,
            69);
  EXPECT_EQ(Run({"sticky-llm", "generate", "--model", "/nonexistent", "--prompt", "x"}).code, 66);
  EXPECT_EQ(Run({"sticky-llm", "generate", "--prompt", "x"}).code, 64);
  EXPECT_EQ(Run({"sticky-llm", "generate", "--state", "a", "--model", "b", "--prompt", "x"}).code,
            64);
}

TEST_F(StickyLlm, UnderRunTheLeaseThatCameWithTheProcessIsUsed) {
  const Ran ran =
      Run({"stickyctl", "run", "--state", "smollm2", "--", ProgramPrefix() + "/bin/sticky-llm",
           "generate", "--state", "smollm2", "--prompt", "The capital of France is", "-n", "1"});
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_EQ(ran.output, " Paris\n");
}

TEST_F(StickyLlm, EightAtOnceHaveLittleMemoryOfTheirOwn) {
  const TempFolder folder;
  std::vector<Process> processes;
  for (int i = 0; i < 8; ++i) {
    processes.push_back(Start({"sticky-llm", "generate", "--state", "smollm2", "--prompt",
                               "Once upon a time", "-n", "2000", "--threads", "1"},
                              folder / std::to_string(i)));
  }
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(
        WaitUntil([&] { return ReadText(folder / std::to_string(i)).size() > 8; }, kPatienceMs));
  }
  // The KV cache of 2,004 positions: 30 layers, keys and values, 192 floats.
  constexpr std::uint64_t kKvCacheBytes = 2004ull * 30 * 2 * 192 * 4;
  for (const Process& process : processes) {
    const std::string rollup = ReadText("/proc/" + std::to_string(process.pid()) + "/smaps_rollup");
    std::uint64_t private_kib = 0;
    for (const char* key : {"Private_Clean:", "Private_Dirty:"}) {
      const std::size_t at = rollup.find(key);
      ASSERT_NE(at, std::string::npos);
      private_kib += std::stoull(rollup.substr(at + std::strlen(key)));
    }
    EXPECT_LE(private_kib * 1024, kKvCacheBytes + (40u << 20)) << rollup;
  }
}

}  // namespace
}  // namespace sticky
