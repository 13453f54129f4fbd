// `stickyctl template check`, `template init` and `config check` with the real program: what they
// find out without a daemon and with one, and the exit code of each way to be wrong.

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tests/testing/ctl_run.h"
#include "tests/testing/tiny_llama.h"

namespace sticky::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class StickyctlTemplate : public ::testing::Test {
 protected:
  CtlResult Run(std::vector<std::string> words) const {
    const std::string socket = daemon_ ? daemon_->socket_path() : folder_ / "none.sock";
    words.insert(words.begin(), {"--socket", socket});
    return Ctl(words);
  }
  Json Ask(std::vector<std::string> words) const {
    words.push_back("--json");
    return Json::parse(Run(std::move(words)).out, nullptr, /*allow_exceptions=*/false);
  }
  std::string Write(const std::string& name, const std::string& text) const {
    std::string path = folder_ / name;
    fs::create_directories(fs::path(path).parent_path());
    WriteText(path, text);
    return path;
  }
  // A language model in a folder, with a name that no state could have.
  std::string WriteLlama(const std::string& folder = "My Tiny: Llama") const {
    const TinyLlama llama;
    Write(folder + "/model.safetensors", llama.Safetensors().Finish());
    Write(folder + "/config.json", llama.ConfigJson());
    return folder_ / folder;
  }
  std::string WriteTensors(const std::string& name) const {
    return Write(name, SafetensorsWriter().Add("a", "F32", {2, 2}, std::string(16, 'x')).Finish());
  }

  TempFolder folder_;
  std::optional<DaemonProcess> daemon_;
};

// SHA-256 of the bytes, by an implementation that is not under test: `sha256sum`.
std::string Sha256sum(const std::string& path) {
  FILE* const pipe = ::popen(("sha256sum '" + path + "'").c_str(), "r");
  char hex[65] = {};
  const std::size_t count = pipe == nullptr ? 0 : std::fread(hex, 1, 64, pipe);
  EXPECT_EQ(count, 64u);
  if (pipe != nullptr) ::pclose(pipe);
  return hex;
}

// --- template check -----------------------------------------------------------------------------

TEST_F(StickyctlTemplate, CheckPlansALoadWithoutADaemon) {
  const std::string model = WriteLlama();
  const std::string path =
      Write("t.yaml", "name: tiny\nsource: {path: '" + model +
                          "'}\ndtype: f16\npriority: 5\nlabels: {team: blue}\n");

  const CtlResult result = Run({"template", "check", path});
  const Json report = Ask({"template", "check", path});

  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, HasSubstr("safetensors, llama, context of 128 positions"));
  EXPECT_THAT(result.out, HasSubstr("is not known without a daemon"));
  EXPECT_THAT(result.out, HasSubstr("team: blue"));
  EXPECT_EQ(report["template"]["name"], "tiny");
  EXPECT_EQ(report["template"]["policy"]["priority"], 5);
  EXPECT_EQ(report["source"]["text"], model);
  EXPECT_EQ(report["files"].size(), 2u);
  EXPECT_EQ(report["files"][0]["role"], "weights");
  EXPECT_EQ(report["files"][1]["role"], "small");
  EXPECT_EQ(report["model"]["architecture"], "llama");
  EXPECT_EQ(report["model"]["context_length"], 128);
  EXPECT_EQ(report["model"]["stored"][0]["dtype"], "f32");
  EXPECT_EQ(report["model"]["arena"][0]["dtype"], "f16");
  EXPECT_EQ(report["needed_bytes"], report["model"]["arena_bytes"]);
  EXPECT_EQ(report["fits"], nullptr);
  EXPECT_THAT(std::string(report["no_budget"]), HasSubstr("none.sock"));
}

// What the check says is what a load does.
TEST_F(StickyctlTemplate, CheckForetellsTheLoad) {
  daemon_.emplace();
  const std::string path = Write("t.yaml", "name: tiny\nsource: {path: '" + WriteLlama() + "'}\n");

  const Json report = Ask({"template", "check", path});
  const Json loaded = Ask({"load", path, "--wait"});

  EXPECT_EQ(report["fits"], true) << report.dump();
  EXPECT_EQ(report["used_bytes"], 0);
  ASSERT_EQ(loaded["state"]["phase"], "ready") << loaded.dump();
  EXPECT_EQ(report["needed_bytes"], loaded["state"]["arena_bytes"]);
  EXPECT_EQ(report["model"]["tensor_count"], loaded["state"]["tensor_count"]);
  EXPECT_EQ(report["template"]["template_digest"], loaded["state"]["template_digest"]);
}

TEST_F(StickyctlTemplate, CheckEndsWith75WhenTheStateIsLargerThanTheBudget) {
  DaemonOptions options;
  options.arguments = {"--memory", "1MiB"};
  daemon_.emplace(options);
  WriteTensorFile(folder_ / "big.safetensors", 2u << 20);
  const std::string path = Write("t.yaml", "name: big\nsource: {path: big.safetensors}\n");

  const CtlResult result = Run({"template", "check", path});
  const Json report = Ask({"template", "check", path});

  EXPECT_EQ(result.code, 75) << result.err;
  EXPECT_THAT(result.err, HasSubstr("but this node's budget is 1.00 MiB"));
  EXPECT_THAT(result.out, HasSubstr("no: the budget is 1.00 MiB"));
  EXPECT_EQ(report["fits"], false);
  EXPECT_EQ(report["budget_bytes"], 1 << 20);
  EXPECT_EQ(report["error"]["exit_code"], 75);
}

TEST_F(StickyctlTemplate, CheckOfFilesKeptWholeGivesThemAndTheirWholePages) {
  Write("a/data.bin", std::string(100, 'a'));
  Write("b/data.bin", std::string(23, 'b'));
  const std::string path =
      Write("t.yaml",
            "name: files\nsource:\n  files: [a/data.bin, {name: more.bin, path: b/data.bin}]\n"
            "  expect: {bytes: 123}\n");

  const CtlResult result = Run({"template", "check", path});
  const Json report = Ask({"template", "check", path});

  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(report["model"], nullptr);
  EXPECT_EQ(report["needed_bytes"], 2 * ::sysconf(_SC_PAGESIZE)) << "each has pages of its own";
  EXPECT_EQ(report["files"][1]["name"], "more.bin");
  EXPECT_EQ(report["files"][1]["role"], "whole");
}

TEST_F(StickyctlTemplate, CheckReadsTheSha256sOnlyWhenAsked) {
  const std::string file = WriteTensors("m.safetensors");
  const std::string hex = Sha256sum(file);
  const auto with = [&](const std::string& expected) {
    return Write("t.yaml",
                 "name: a\nsource: {path: m.safetensors, expect: {sha256: " + expected + "}}\n");
  };
  const std::string wrong(64, '0');

  EXPECT_THAT(Run({"template", "check", with(hex)}).out, HasSubstr("expected, not read"));
  EXPECT_THAT(Run({"template", "check", with(hex), "--sha256"}).out,
              HasSubstr(hex + ", as expected"));
  EXPECT_EQ(Run({"template", "check", with(wrong)}).code, 0);
  const CtlResult refused = Run({"template", "check", with(wrong), "--sha256"});
  EXPECT_EQ(refused.code, 65);
  EXPECT_THAT(refused.err, HasSubstr("has the SHA-256 " + hex));
  EXPECT_THAT(refused.err, HasSubstr("says " + wrong));
}

// The hub's cache keeps a large file under its SHA-256: that is compared without reading.
TEST_F(StickyctlTemplate, CheckComparesTheNamesOfTheHubsBlobs) {
  const std::string hex(64, 'c');
  WriteTensors("blobs.tmp");
  fs::create_directories(folder_ / "blobs");
  fs::rename(folder_ / "blobs.tmp", folder_ / "blobs/" + hex);
  fs::create_directories(folder_ / "snapshots/1234");
  fs::create_symlink("../../blobs/" + hex, folder_ / "snapshots/1234/model.safetensors");
  const auto with = [&](const std::string& expected) {
    return Write("t.yaml",
                 "name: a\nsource:\n  path: snapshots/1234\n  expect:\n    sha256: "
                 "{model.safetensors: " +
                     expected + "}\n");
  };

  EXPECT_THAT(Run({"template", "check", with(hex)}).out,
              HasSubstr(hex + ", as expected (by its name in the hub's cache)"));
  EXPECT_EQ(Run({"template", "check", with(std::string(64, 'd'))}).code, 65);
  EXPECT_EQ(Run({"template", "check", with(hex), "--sha256"}).code, 65)
      << "what is read counts for more than a name";
}

TEST_F(StickyctlTemplate, CheckFailsWithTheCodeOfWhatIsWrong) {
  const std::string short_file = WriteTensors("short.safetensors");
  fs::resize_file(short_file, 20);
  WriteTensors("m.safetensors");
  const auto code = [&](const std::string& text) {
    return Run({"template", "check", Write("t.yaml", text)}).code;
  };

  EXPECT_EQ(Run({"template", "check", folder_ / "none.yaml"}).code, 66);
  EXPECT_EQ(code("name: a\nsource: {path: m.safetensors}\ndtpye: f32\n"), 65);
  EXPECT_EQ(code("name: a\nsource: {path: [x.gguf, y.gguf]}\n"), 66);
  EXPECT_EQ(code("name: a\nsource: {path: [x.gguf, m.safetensors]}\n"), 0);
  EXPECT_EQ(code("name: a\nsource: {path: short.safetensors}\n"), 65);
  EXPECT_EQ(code("name: a\nsource: {path: m.safetensors, expect: {bytes: 7}}\n"), 65);
  EXPECT_EQ(Run({"template", "check"}).code, 64);
}

TEST_F(StickyctlTemplate, CheckOfFilesKeptWholeForetellsTheLoad) {
  daemon_.emplace();
  Write("empty", "");
  Write("odd", std::string(5000, 'o'));
  const std::string path = Write("t.yaml", "name: whole\nsource: {files: [empty, odd]}\n");

  const Json report = Ask({"template", "check", path});
  const Json loaded = Ask({"load", path, "--wait"});

  ASSERT_EQ(loaded["state"]["phase"], "ready") << loaded.dump();
  EXPECT_EQ(report["needed_bytes"], loaded["state"]["arena_bytes"]);
}

TEST_F(StickyctlTemplate, CheckRefusesMoreFilesKeptWholeThanALoadTakes) {
  std::string list;
  for (int i = 0; i < 65; ++i) {
    Write("f" + std::to_string(i), "data");
    list += (i > 0 ? ", f" : "f") + std::to_string(i);
  }

  const CtlResult result =
      Run({"template", "check", Write("t.yaml", "name: many\nsource: {files: [" + list + "]}\n")});

  EXPECT_EQ(result.code, 65);
  EXPECT_THAT(result.err, HasSubstr("has 65 files; at most 64 are kept whole"));
}

TEST_F(StickyctlTemplate, ATemplateForBuildersIsRightAndALoadOfItSaysWhatTakesIt) {
  const std::string path = Write("t.yaml", "name: made\nlifetime: {idle: 5min}\n");

  const CtlResult checked = Run({"template", "check", path});
  const CtlResult loaded = Run({"load", path});

  EXPECT_EQ(checked.code, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("is right, for `stickyctl build --template`"));
  EXPECT_THAT(checked.out, HasSubstr("idle 5 min"));
  EXPECT_EQ(Ask({"template", "check", path})["for_builder"], true);
  EXPECT_EQ(loaded.code, 65);
  EXPECT_THAT(loaded.err, HasSubstr("a template without a source is for `stickyctl build`"));
}

// --- what loads do with the new keys ------------------------------------------------------------

TEST_F(StickyctlTemplate, AModelOfSeveralFilesIsLoadedWithoutAnIndex) {
  daemon_.emplace();
  Write("x/1.safetensors", SafetensorsWriter().Add("a", "F32", {4}, std::string(16, 'x')).Finish());
  Write("y/2.safetensors", SafetensorsWriter().Add("b", "F32", {2}, std::string(8, 'y')).Finish());
  const std::string path =
      Write("t.yaml", "name: two\nsource: {paths: [y/2.safetensors, x/1.safetensors]}\n");

  const Json loaded = Ask({"load", path, "--wait"});
  const Json shown = Ask({"show", "two"});

  ASSERT_EQ(loaded["state"]["phase"], "ready") << loaded.dump();
  EXPECT_EQ(loaded["state"]["tensor_count"], 2);
  EXPECT_THAT(std::string(loaded["state"]["source"]), StartsWith("2 files: /"));
  EXPECT_EQ(shown["state"]["stale"], nullptr) << "no path to look at, no verdict";
}

TEST_F(StickyctlTemplate, MoreFilesKeptWholeThanAStateHoldsAreRefusedWithTheLimit) {
  daemon_.emplace();
  const auto load = [&](int count) {
    std::string list;
    for (int i = 0; i < count; ++i) {
      Write("f" + std::to_string(i), "data");
      list += (i > 0 ? ", f" : "f") + std::to_string(i);
    }
    const std::string name = "of" + std::to_string(count);
    return Run({"load", "--wait",
                Write(name + ".yaml", "name: " + name + "\nsource: {files: [" + list + "]}\n")});
  };

  EXPECT_EQ(load(64).code, 0);
  const CtlResult result = load(65);
  EXPECT_EQ(result.code, 65);
  EXPECT_THAT(result.err, HasSubstr("has 65 files; at most 64 are kept whole"));
}

TEST_F(StickyctlTemplate, ALoadHoldsTheFilesAgainstTheirSha256AndPublishesNothingElse) {
  daemon_.emplace();
  const std::string hex = Sha256sum(WriteTensors("m.safetensors"));
  const std::string wrong(64, '0');
  const auto load = [&](const std::string& kind, const std::string& expected) {
    return Run({"load", "--wait",
                Write("t.yaml", "name: a\nsource:\n  " + kind + ": [m.safetensors]\n  expect: " +
                                    "{sha256: " + expected + "}\n")});
  };

  for (const char* const kind : {"path", "paths", "files"}) {
    SCOPED_TRACE(kind);
    const CtlResult refused = load(kind, wrong);
    EXPECT_EQ(refused.code, 65);
    EXPECT_THAT(refused.err, HasSubstr("check 'm.safetensors': its SHA-256 is " + hex));
    EXPECT_THAT(refused.err, HasSubstr("says " + wrong));
    EXPECT_EQ(Ask({"show", "a"})["state"]["phase"], "failed");
    EXPECT_EQ(Run({"run", "--state", "a", "--", "true"}).code, 65);
    EXPECT_EQ(load(kind, hex).code, 0);
    EXPECT_EQ(Run({"evict", "a", "--wait"}).code, 0);
  }
}

TEST_F(StickyctlTemplate, ALoadHoldsTheContentAgainstItsDigest) {
  daemon_.emplace();
  WriteTensors("m.safetensors");
  const std::string plain = Write("t.yaml", "name: a\nsource: {path: m.safetensors}\n");
  const auto with = [&](const std::string& digest) {
    return Write("d.yaml",
                 "name: b\nsource: {path: m.safetensors, expect: {digest: " + digest + "}}\n");
  };
  const std::string found = Ask({"load", plain, "--wait"})["state"]["content_digest"];
  const std::string wrong(32, '7');

  const CtlResult refused = Run({"load", with(wrong), "--wait"});

  EXPECT_EQ(refused.code, 65);
  EXPECT_THAT(refused.err, HasSubstr("its digest is " + found));
  EXPECT_THAT(refused.err, HasSubstr("says " + wrong));
  EXPECT_EQ(Ask({"show", "b"})["state"]["phase"], "failed");
  EXPECT_EQ(Run({"load", with(found), "--wait"}).code, 0);
}

// --- template init ------------------------------------------------------------------------------

TEST_F(StickyctlTemplate, WhatInitWritesPassesTheCheck) {
  const std::string model = WriteLlama();
  const std::string output = folder_ / "new.yaml";

  const CtlResult made = Run({"template", "init", model, "--output", output});
  const Json report = Ask({"template", "check", output});

  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(report["template"]["name"], "My-Tiny-Llama") << report.dump();
  EXPECT_EQ(report["template"]["dtype"], "auto");
  EXPECT_EQ(report["source"]["text"], model);
  const std::string text = ReadText(output);
  EXPECT_THAT(text, HasSubstr("# format:        safetensors, 1 file, "));
  EXPECT_THAT(text, HasSubstr("# architecture:  llama, context of 128 positions\n"));
  EXPECT_EQ(Run({"template", "init", model}).out, text);
}

TEST_F(StickyctlTemplate, InitNeverWritesOverAFile) {
  const std::string model = WriteTensors("m.safetensors");
  const std::string mine = Write("mine.yaml", "precious");
  fs::create_symlink("nowhere", folder_ / "link.yaml");

  const CtlResult refused = Run({"template", "init", model, "--output", mine});

  EXPECT_EQ(refused.code, 65);
  EXPECT_THAT(refused.err, HasSubstr("it is there already"));
  EXPECT_EQ(ReadText(mine), "precious");
  EXPECT_EQ(Run({"template", "init", model, "--output", folder_ / "link.yaml"}).code, 65);
  EXPECT_FALSE(fs::exists(folder_ / "nowhere"));
  EXPECT_EQ(Run({"template", "init", model, "--output", folder_ / "no/such/x"}).code, 74);
}

TEST_F(StickyctlTemplate, InitTakesOddNamesAndRefusesThoseThatNoTemplateCanHave) {
  for (const std::string name : {"a\"b\\c: #d.safetensors", "line\nbreak.safetensors",
                                 "'~.safetensors", "\xc3\xa4\x1b[31m.safetensors"}) {
    const CtlResult made = Run({"template", "init", WriteTensors(name)});
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_THAT(made.out, Not(HasSubstr("\x1b")));
    EXPECT_EQ(Ask({"template", "check", Write("t.yaml", made.out)})["source"]["text"],
              folder_ / name);
  }
  EXPECT_EQ(Run({"template", "init", WriteTensors("${HOME}.safetensors")}).code, 65);
  EXPECT_EQ(Run({"template", "init", WriteTensors("\xff.safetensors")}).code, 65);
  EXPECT_EQ(Run({"template", "init", folder_ / "none"}).code, 66);
}

// --- config check -------------------------------------------------------------------------------

TEST_F(StickyctlTemplate, ConfigCheckTellsEveryValueInForce) {
  const std::string path =
      Write("n.yaml", "memory: {host: 2GiB}\nlimits: {queue: 7}\naccess: {users: [root]}\n");

  const CtlResult result = Run({"config", "check", path});
  const Json config = Ask({"config", "check", path})["config"];

  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("2.00 GiB (2147483648 bytes)"));
  EXPECT_THAT(result.out, HasSubstr("limits.per_user.memory:       no limit"));
  EXPECT_EQ(config["memory_host_bytes"], 2147483648u);
  EXPECT_EQ(config["queued_load_count_max"], 7);
  EXPECT_EQ(config["connection_count_max"], 4096);
  EXPECT_EQ(config["per_user"]["load_count_max"], 8);
  EXPECT_EQ(config["access"]["users"], Json::array({0}));
}

TEST_F(StickyctlTemplate, ConfigCheckNamesMistakesAsStickydDoes) {
  const CtlResult wrong = Run({"config", "check", Write("n.yaml", "limits: {load: 7}\n")});

  EXPECT_EQ(wrong.code, 65);
  EXPECT_THAT(wrong.err, HasSubstr("n.yaml:1:10: unknown key 'limits.load'"));
  EXPECT_EQ(Run({"config", "check", folder_ / "none.yaml"}).code, 66);
}

// --- commands of two words ----------------------------------------------------------------------

TEST_F(StickyctlTemplate, HalfACommandSaysWhatTheOtherHalfMayBe) {
  EXPECT_EQ(Run({"template"}).code, 64);
  EXPECT_THAT(Run({"template"}).err, HasSubstr("want `template check` or `template ls`"));
  EXPECT_THAT(Run({"template", "chekc", "x"}).err, HasSubstr("did you mean 'template check'?"));
  EXPECT_THAT(Run({"template", "--help"}).out, HasSubstr("usage: stickyctl template init MODEL"));
  EXPECT_THAT(Run({"template", "check", "--help"}).out, Not(HasSubstr("template init")));
  EXPECT_THAT(Run({"help", "config", "check"}).out, HasSubstr("usage: stickyctl config check"));
}

}  // namespace
}  // namespace sticky::testing
