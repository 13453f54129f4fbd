// stickyctl against the real stickyd and sticky-loader: every command, as people and as scripts see
// it.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "device/host_arena.h"
#include "tests/testing/ctl_daemon.h"
#include "tests/testing/data_dir.h"

namespace sticky::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Stickyctl : public CtlDaemon {
 protected:
  Stickyctl() { Start(); }
};

TEST_F(Stickyctl, AStateThatWasLoadedIsToldBySeveralCommandsAlike) {
  const std::string path = MakeTemplate("smol", 3 << 20);

  const Json loaded = Ask({"load", path, "--wait"});

  EXPECT_EQ(loaded["schema_version"], 1);
  EXPECT_EQ(loaded["joined"], false);
  const Json& state = loaded["state"];
  EXPECT_EQ(state["name"], "smol");
  EXPECT_EQ(state["phase"], "ready");
  EXPECT_EQ(state["tensor_count"], 1);
  EXPECT_GE(state["arena_bytes"].get<std::uint64_t>(), 3U << 20);
  const Json listed = Ask({"ls"});
  ASSERT_EQ(listed["states"].size(), 1U);
  EXPECT_EQ(listed["states"][0]["content_digest"], state["content_digest"]);
  const Json shown = Ask({"show", "smol", "--tensors"});
  EXPECT_EQ(shown["state"]["content_digest"], state["content_digest"]);
  ASSERT_EQ(shown["tensors"].size(), 1U);
  EXPECT_EQ(shown["tensors"][0]["name"], "data");
  EXPECT_EQ(shown["tensors"][0]["dtype"], "u8");
  EXPECT_EQ(shown["tensors"][0]["shape"], Json::array({3 << 20}));
  EXPECT_EQ(shown["tensors"][0]["size_bytes"], 3 << 20);
  const Json status = Ask({"status"});
  EXPECT_EQ(status["daemon"]["used_bytes"], state["arena_bytes"]);
  EXPECT_EQ(status["daemon"]["state_count"], 1);
  EXPECT_EQ(status["daemon"]["pid"], daemon_->pid());
  EXPECT_EQ(Ask({"version"})["stickyd"], status["daemon"]["version"]);
}

TEST_F(Stickyctl, PeopleReadTables) {
  ASSERT_EQ(Run({"load", MakeTemplate("smol"), "--wait"}).code, 0);

  EXPECT_THAT(Run({"ls"}).out, HasSubstr("smol  ready"));
  EXPECT_THAT(Run({"show", "smol", "--tensors"}).out, HasSubstr("\ndata    u8"));
  EXPECT_THAT(Run({"status"}).out, HasSubstr("states:       1\n"));
  EXPECT_EQ(Run({"leases"}).out, "no leases\n");
  EXPECT_THAT(Run({"evict", "smol", "--wait"}).out, HasSubstr("state 'smol' is gone"));
}

TEST_F(Stickyctl, ShowTellsWhatTheLoaderNoted) {
  const std::string model = (GoldenDir() / "models" / "llama-mha-tied").string();
  ASSERT_EQ(Run({"load", WriteTemplate("noted.yaml", "noted", model), "--wait"}).code, 0);
  ASSERT_EQ(Run({"load", MakeTemplate("plain"), "--wait"}).code, 0);

  const Json notes = Ask({"show", "noted"})["notes"];
  ASSERT_EQ(notes.size(), 1U) << notes;
  EXPECT_THAT(notes[0].get<std::string>(), HasSubstr("no tokenizer.json"));
  EXPECT_THAT(Run({"show", "noted"}).out, HasSubstr("\nnote: the model has no tokenizer.json"));
  EXPECT_EQ(Ask({"show", "plain"})["notes"], Json::array());
  EXPECT_THAT(Run({"show", "plain"}).out, Not(HasSubstr("note:")));
}

// W21: a state is a copy. Its files may change without harm to whoever has it, and it is told that
// they did.
TEST_F(Stickyctl, AStateWhoseFilesChangedIsStaleAndStaysWhatItWas) {
  const std::string file = folder_ / "smol.safetensors";
  const std::string path = MakeTemplate("smol");
  ASSERT_EQ(Run({"load", path, "--wait"}).code, 0);
  EXPECT_EQ(Ask({"show", "smol"})["state"]["stale"], false);
  EXPECT_EQ(Ask({"ls", "--check-sources"})["states"][0]["stale"], false);
  EXPECT_FALSE(Ask({"ls"})["states"][0].contains("stale")) << "ls by itself opens no file";
  WireClient client = daemon_->Client();
  const wire::Received lent = client.Ask(wire::AttachRequest{"smol", {}, 0, false}).value();
  const device::Mapping arena = device::Mapping::ReadOnly(lent.fds.at(1).get(), 1 << 20).value();
  const std::string digest = Ask({"show", "smol"})["state"]["content_digest"];

  std::filesystem::resize_file(file, 100);

  EXPECT_EQ(arena.bytes()[3], 4);
  EXPECT_EQ(arena.bytes()[(1 << 20) - 1], 0) << "pages past the file's new end are there";
  const Json shown = Ask({"show", "smol"})["state"];
  EXPECT_EQ(shown["stale"], true);
  EXPECT_THAT(shown["stale_reason"].get<std::string>(),
              HasSubstr("'smol.safetensors' has 100 bytes, had"));
  EXPECT_EQ(shown["content_digest"], digest);
  EXPECT_EQ(Ask({"ls", "--check-sources"})["states"][0]["stale"], true);
  EXPECT_THAT(Run({"show", "smol"}).out, HasSubstr("\nstale: yes: 'smol.safetensors' has 100"));
  EXPECT_EQ(Run({"run", "--state", "smol", "--", "true"}).code, 0);
  std::filesystem::remove(file);
  EXPECT_EQ(Ask({"show", "smol"})["state"]["stale"], true);
  EXPECT_EQ(arena.bytes()[3], 4);
}

// Of the same size, at another time: what `make` would see.
TEST_F(Stickyctl, AStateWhoseFileWasWrittenToIsStale) {
  const std::string path = MakeTemplate("smol");
  ASSERT_EQ(Run({"load", path, "--wait"}).code, 0);

  const std::filesystem::path file = folder_ / "smol.safetensors";
  std::filesystem::last_write_time(
      file, std::filesystem::last_write_time(file) + std::chrono::seconds(1));

  EXPECT_THAT(Run({"show", "smol"}).out, HasSubstr("'smol.safetensors' was written to"));
  EXPECT_THAT(Run({"ls", "--check-sources"}).out, HasSubstr("  yes    "));
}

TEST_F(Stickyctl, EveryGoldenModelOfTheLlamaFamilyLoads) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenDir() / "models")) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("llama")) continue;
    ++count;

    const CtlResult result =
        Run({"load", WriteTemplate(name + ".yaml", name, entry.path().string(), "dtype: f32\n"),
             "--wait"});

    EXPECT_EQ(result.code, 0) << name << ": " << result.err;
  }
  EXPECT_GT(count, 0) << "no golden models in " << GoldenDir();
  EXPECT_EQ(Ask({"ls"})["states"].size(), static_cast<std::size_t>(count));
}

TEST_F(Stickyctl, TwoLoadsOfOneTemplateAreOneLoad) {
  const std::string path = MakeTemplate("smol", 64 << 20);

  CtlRun first(Words({"load", path, "--wait", "--json"}));
  CtlRun second(Words({"load", path, "--wait", "--json"}));
  const CtlResult one = first.Wait();
  const CtlResult two = second.Wait();

  ASSERT_EQ(one.code, 0) << one.err;
  ASSERT_EQ(two.code, 0) << two.err;
  const Json a = Json::parse(one.out);
  const Json b = Json::parse(two.out);
  EXPECT_NE(a["joined"], b["joined"]) << "one of them found the other's";
  EXPECT_EQ(a["state"]["epoch"], b["state"]["epoch"]);
  EXPECT_EQ(Ask({"ls"})["states"].size(), 1U);
}

TEST_F(Stickyctl, HoldKeepsAStateUntilASignalAndNoLonger) {
  CtlRun hold(Words({"hold", MakeTemplate("smol"), "--json"}));
  ASSERT_TRUE(WaitUntil([&] { return hold.out().ends_with("\n"); })) << hold.err();

  const Json ready = Json::parse(hold.out());
  EXPECT_EQ(ready["state"]["phase"], "ready");
  const Json leases = Ask({"leases"})["leases"];
  ASSERT_EQ(leases.size(), 1U);
  EXPECT_EQ(leases[0]["hold"], true);
  EXPECT_EQ(leases[0]["pid"], hold.process().pid());
  EXPECT_EQ(leases[0]["lease_id"], ready["lease_id"]);
  hold.process().Signal(SIGTERM);
  EXPECT_EQ(hold.Wait().code, 0);
  EXPECT_TRUE(WaitUntil([&] { return Ask({"ls"})["states"].empty(); }));
}

TEST_F(Stickyctl, HoldUnderNohupOutlivesItsTerminal) {
  CtlRun hold(Words({"hold", MakeTemplate("smol")}), [] { ::signal(SIGHUP, SIG_IGN); });
  ASSERT_TRUE(WaitUntil([&] { return hold.out().ends_with("\n"); })) << hold.err();

  hold.process().Signal(SIGHUP);
  hold.process().Signal(SIGINT);

  EXPECT_EQ(hold.Wait().code, 0) << "SIGINT ends it; SIGHUP, which came first, did not";
}

TEST_F(Stickyctl, HoldSaysWhenTheDaemonGoesAway) {
  CtlRun hold(Words({"hold", MakeTemplate("smol")}));
  ASSERT_TRUE(WaitUntil([&] { return hold.out().ends_with("\n"); })) << hold.err();

  daemon_->process().KillAndReap();

  const CtlResult end = hold.Wait();
  EXPECT_EQ(end.code, 69);
  EXPECT_THAT(end.err, HasSubstr("went away"));
}

TEST_F(Stickyctl, RunBecomesTheCommandWithItsExitCodeAndEnvironment) {
  ASSERT_EQ(Run({"load", MakeTemplate("smol"), "--wait"}).code, 0);

  const CtlResult result = Run({"run", "--state", "smol", "--", "sh", "-c",
                                "echo \"$STICKYINVOC_STATE $STICKYINVOC_SOCKET\"; cat; exit 7"});

  EXPECT_EQ(result.code, 7);
  EXPECT_EQ(result.out, "smol " + daemon_->socket_path() + "\n");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(Run({"run", "--state", "smol", "sh", "-c", "kill -9 $$"}).signal, SIGKILL);
  EXPECT_TRUE(daemon_->LeaseCountBecomes(0));
}

TEST_F(Stickyctl, RunBuildsTheStateWhenAskedTo) {
  const std::string path = MakeTemplate("smol");

  EXPECT_EQ(Run({"run", "--state", "smol", "--", "true"}).code, 66);
  EXPECT_EQ(Run({"run", "--state", "smol", "--template", path, "--", "true"}).code, 0);
  EXPECT_EQ(Run({"run", "--state", "smol", "--template", path, "--", "true"}).code, 0);
  EXPECT_EQ(Run({"run", "--state", "other", "--template", path, "--", "true"}).code, 65);
}

TEST_F(Stickyctl, TheCommandOfRunAttachesWithoutAskingTheDaemon) {
  ASSERT_EQ(Run({"load", MakeTemplate("smol"), "--wait"}).code, 0);

  const std::string probe = std::string(STICKY_BUILD_DIR) + "/tests/shim_adopt_probe";
  EXPECT_EQ(Run({"run", "--state", "smol", "--", probe}).code, 0);
}

TEST_F(Stickyctl, ALeaseOfRunOutlivesExecAndIsOverWithTheCommand) {
  ASSERT_EQ(Run({"load", MakeTemplate("smol"), "--wait"}).code, 0);
  CtlRun run(Words({"run", "--state", "smol", "--", "sleep", "600"}));
  ASSERT_TRUE(daemon_->LeaseCountBecomes(1));
  ASSERT_TRUE(WaitUntil([&] { return Ask({"leases"})["leases"][0]["command"] == "sleep 600"; }));

  EXPECT_EQ(Ask({"leases"})["leases"][0]["pid"], run.process().pid());
  const Json evicted = Ask({"evict", "smol"});
  EXPECT_EQ(evicted["freed"], false);
  EXPECT_EQ(evicted["state"]["phase"], "draining");
  ASSERT_EQ(evicted["leases"].size(), 1U);
  EXPECT_EQ(evicted["leases"][0]["pid"], run.process().pid());
  EXPECT_EQ(Run({"run", "--state", "smol", "--", "true"}).code, 75);
  EXPECT_EQ(Run({"evict", "smol", "--wait=0.05"}).code, 75);
  EXPECT_GT(Ask({"status"})["daemon"]["used_bytes"], 0);
  run.process().Signal(SIGKILL);
  EXPECT_EQ(run.Wait().signal, SIGKILL);
  EXPECT_TRUE(WaitUntil([&] { return Ask({"ls"})["states"].empty(); }));
  EXPECT_EQ(Ask({"status"})["daemon"]["used_bytes"], 0);
}

TEST_F(Stickyctl, EvictWaitsForTheLastUser) {
  ASSERT_EQ(Run({"load", MakeTemplate("smol"), "--wait"}).code, 0);
  CtlRun run(Words({"run", "--state", "smol", "--", "sleep", "600"}));
  ASSERT_TRUE(daemon_->LeaseCountBecomes(1));
  CtlRun evict(Words({"evict", "smol", "--wait", "--json"}));
  ASSERT_TRUE(WaitUntil([&] { return Ask({"show", "smol"})["state"]["phase"] == "draining"; }));

  run.process().Signal(SIGTERM);

  const CtlResult end = evict.Wait();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(Json::parse(end.out)["freed"], true);
}

// A process may call itself anything: tables stay tables, and the terminal hears nothing of it.
TEST_F(Stickyctl, CommandsWithTerminalEscapesAreHarmless) {
  ASSERT_EQ(Run({"load", MakeTemplate("smol"), "--wait"}).code, 0);
  CtlRun run(Words({"run", "--state", "smol", "--", "bash", "-c",
                    "exec -a $'\\e[2J\\e]0;owned\\a\\nfake row' sleep 600"}));
  ASSERT_TRUE(WaitUntil([&] {
    const Json leases = Ask({"leases"})["leases"];
    if (leases.size() != 1) return false;
    const std::string command = leases[0]["command"];
    // The shell's own command line has the words as well, until it has become what it runs.
    return command.find("bash") == std::string::npos &&
           command.find("fake row") != std::string::npos;
  }));

  for (const CtlResult& result :
       {Run({"leases"}), Run({"leases", "--json"}), Run({"evict", "smol"})}) {
    EXPECT_THAT(result.out, HasSubstr("fake row"));
    EXPECT_THAT(result.out, Not(HasSubstr("\x1b")));
    EXPECT_THAT(result.out, Not(HasSubstr("\x07")));
    EXPECT_THAT(result.out, Not(HasSubstr("\nfake row")));
  }
}

// --- what stands on which output ----------------------------------------------------------------

TEST_F(Stickyctl, EveryCommandPrintsOneJsonDocumentWithADaemonAndWithoutOne) {
  const std::string path = MakeTemplate("smol");
  const std::vector<std::vector<std::string>> commands = {{"load", path, "--wait"},
                                                          {"load", path},
                                                          {"ls"},
                                                          {"show", "smol"},
                                                          {"show", "none"},
                                                          {"show", "smol", "--tensors"},
                                                          {"status"},
                                                          {"leases"},
                                                          {"top"},
                                                          {"drain", "smol"},
                                                          {"drain", "none"},
                                                          {"drain", "smol", "--resume"},
                                                          {"version"},
                                                          {"doctor"},
                                                          {"evict", "none"},
                                                          {"evict", "smol"},
                                                          {"hold", "/no/such.yaml"},
                                                          {"run", "--state", "none", "--", "true"},
                                                          {"lod"},
                                                          {"show"},
                                                          {"ls", "--verbose"}};
  for (const bool daemon_runs : {true, false}) {
    if (!daemon_runs) daemon_->process().KillAndReap();
    for (std::vector<std::string> words : commands) {
      words.insert(words.begin(), "--json");
      const CtlResult result = Run(words);

      EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1) << words[1];
      const Json document = Json::parse(result.out, nullptr, /*allow_exceptions=*/false);
      ASSERT_TRUE(document.is_object()) << words[1] << ": " << result.out;
      EXPECT_EQ(document["schema_version"], 1) << words[1];
      EXPECT_EQ(document.contains("error"), result.code != 0) << words[1];
      if (result.code != 0) {
        EXPECT_EQ(document["error"]["exit_code"], result.code);
      }
    }
  }
}

}  // namespace
}  // namespace sticky::testing
