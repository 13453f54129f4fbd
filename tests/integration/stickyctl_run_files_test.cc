// `stickyctl run --as-file` with the real programs: programs that know nothing of us open a file of
// a state by its path, read the very memory that the node holds, and their lease ends with them.

#include <csignal>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "tests/testing/ctl_run.h"

namespace sticky::testing {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kOddName = "=x{m} $(a)\n'\"\xc3\xa9";

// A line of /proc/PID/smaps.
struct Memory {
  std::uint64_t rss_kib = 0;
  std::uint64_t shared_kib = 0;
  std::uint64_t anonymous_kib = 0;
};

// Of the mappings of `pid` whose name has `name` in it.
Memory MemoryOf(pid_t pid, const std::string& name) {
  std::istringstream lines(ReadText(Format("/proc/%d/smaps", static_cast<int>(pid))));
  Memory memory;
  bool is_ours = false;
  for (std::string line; std::getline(lines, line);) {
    unsigned long long kib = 0;
    if (line.find('-') < line.find(' ')) is_ours = line.find(name) != std::string::npos;
    if (!is_ours) continue;
    if (std::sscanf(line.c_str(), "Rss: %llu", &kib) == 1) memory.rss_kib += kib;
    if (std::sscanf(line.c_str(), "Anonymous: %llu", &kib) == 1) memory.anonymous_kib += kib;
    const bool is_shared = std::sscanf(line.c_str(), "Shared_Clean: %llu", &kib) == 1 ||
                           std::sscanf(line.c_str(), "Shared_Dirty: %llu", &kib) == 1;
    if (is_shared) memory.shared_kib += kib;
  }
  return memory;
}

class RunFiles : public ::testing::Test {
 protected:
  // Loads a state of these files, which are written first: names and contents.
  void Load(const std::string& state,
            const std::vector<std::pair<std::string, std::string>>& files) {
    Json list = Json::array();
    for (std::size_t i = 0; i < files.size(); ++i) {
      const std::string path = daemon_.folder() / Format("%s-%zu", state.c_str(), i);
      WriteText(path, files[i].second);
      list.push_back({{"name", files[i].first}, {"path", path}});
    }
    const std::string path = daemon_.folder() / (state + ".yaml");
    WriteText(path, "name: " + state + "\nsource: {files: " + list.dump(-1, ' ', true) + "}\n");
    const CtlResult loaded = Run({"load", path, "--wait"});
    ASSERT_EQ(loaded.code, 0) << loaded.err;
  }
  std::vector<std::string> Words(std::vector<std::string> words) const {
    words.insert(words.begin(), {"--socket", daemon_.socket_path()});
    return words;
  }
  CtlResult Run(const std::vector<std::string>& words) const { return Ctl(Words(words)); }
  Json Ask(std::vector<std::string> words) const {
    words.push_back("--json");
    return Json::parse(Run(words).out, nullptr, /*allow_exceptions=*/false);
  }
  bool LeasesBecome(std::size_t count) const {
    return WaitUntil([&] { return Ask({"leases"})["leases"].size() == count; });
  }

  DaemonProcess daemon_;
};

TEST_F(RunFiles, AnyProgramOpensTheFilesByTheirPaths) {
  const std::string text = "one\ntwo\n" + std::string(5000, 'x');
  Load("s", {{"a.txt", text}, {"b", "bee"}});

  const CtlResult cat = Run({"run", "--as-file", "a=s/a.txt", "--", "cat", "{a}"});
  const CtlResult both =
      Run({"run", "--as-file=a=s/a.txt", "--as-file=b=s/b", "--", "sh", "-c",
           "cmp {a} \"$0\" && stat -L -c %s {a} {b} && test {b} = $STICKYINVOC_FILE_B && echo $1",
           daemon_.folder() / "s-0", "--of={b}"});
  const CtlResult grep =
      Run({"run", "--as-file", "words=s/a.txt", "--", "sh", "-c", "echo two | grep -x -f {words}"});

  EXPECT_EQ(cat.code, 0) << cat.err;
  EXPECT_EQ(cat.out, text);
  EXPECT_EQ(both.code, 0) << both.err;
  EXPECT_THAT(both.out, StartsWith("5008\n3\n--of=/proc/self/fd/"));
  EXPECT_EQ(grep.out, "two\n") << grep.err;
  EXPECT_TRUE(LeasesBecome(0));
}

TEST_F(RunFiles, NamesMayBeOddAndFilesEmpty) {
  const std::string odd = kOddName;
  Load("s", {{odd, "odd"}, {"empty", ""}, {std::string(255, 'n'), "long"}});

  const CtlResult run = Run({"run", "--as-file", "o=s/" + odd, "--as-file", "e=s/empty",
                             "--as-file", "l=s/" + std::string(255, 'n'), "--", "sh", "-c",
                             "cat {o} {e} {l}; stat -L -c ,%s {e}"});

  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.out, "oddlong,0\n");
}

TEST_F(RunFiles, AStateOfNothingButEmptyFilesIsOneToo) {
  Load("s", {{"a", ""}, {"b", ""}});

  EXPECT_EQ(Run({"run", "--as-file=a=s/a", "--as-file=b=s/b", "--", "cmp", "{a}", "{b}"}).code, 0);
}

TEST_F(RunFiles, NobodyCanWriteToTheFileThatIsLent) {
  Load("s", {{"a", "as it is"}});

  const CtlResult run =
      Run({"run", "--as-file=a=s/a", "--", "sh", "-c",
           "(echo no > {a}); (echo no >> {a}); (truncate -s 0 {a}); chmod 600 {a}; cat {a}"});

  EXPECT_EQ(run.out, "as it is");
}

// Maps all of the file named first, touches each page, and says so.
constexpr const char* kReader =
    "import mmap, sys, time\n"
    "with open(sys.argv[1], 'rb') as file:\n"
    "    memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n"
    "print(sum(memory[::4096]), len(memory), flush=True)\n"
    "time.sleep(600)\n";

TEST_F(RunFiles, ReadersShareTheNodesPagesAndCopyNone) {
  constexpr std::uint64_t kBytes = (8u << 20) + 100;
  Load("big", {{"data", std::string(kBytes, '\1')}});
  const std::vector<std::string> words =
      Words({"run", "--as-file", "d=big/data", "--", "/usr/bin/python3", "-c", kReader, "{d}"});
  CtlRun one(words);
  CtlRun two(words);
  ASSERT_TRUE(WaitUntil([&] { return !one.out().empty() && !two.out().empty(); })) << one.err();

  EXPECT_EQ(one.out(), "2049 8388708\n");
  EXPECT_EQ(Ask({"leases"})["leases"].size(), 2u);
  for (CtlRun* const reader : {&one, &two}) {
    const Memory memory = MemoryOf(reader->process().pid(), "memfd:big");
    EXPECT_EQ(memory.rss_kib, 2049 * 4u);
    EXPECT_EQ(memory.shared_kib, memory.rss_kib) << "every page is mapped by both";
    EXPECT_EQ(memory.anonymous_kib, 0u) << "no page was copied";
  }
  EXPECT_EQ(Ask({"status"})["daemon"]["used_bytes"], 2049 * 4096);

  one.process().Signal(SIGKILL);
  EXPECT_EQ(one.Wait().signal, SIGKILL);
  EXPECT_TRUE(LeasesBecome(1));
  EXPECT_EQ(Ask({"leases"})["leases"][0]["pid"], two.process().pid());
}

TEST_F(RunFiles, AnEvictedStateStaysForItsReaderAndGoesWithIt) {
  Load("s", {{"a", "alpha"}, {"b", "beta"}});
  CtlRun reader(Words({"run", "--as-file", "b=s/b", "--", "sh", "-c",
                       "cat {b}; read line < \"$0\"; cat {b}", daemon_.folder() / "gate"}));
  ASSERT_EQ(::mkfifo((daemon_.folder() / "gate").c_str(), 0600), 0);
  ASSERT_TRUE(WaitUntil([&] { return reader.out() == "beta"; })) << reader.err();

  EXPECT_EQ(Ask({"evict", "s"})["state"]["phase"], "draining");
  EXPECT_EQ(Run({"run", "--as-file", "b=s/b", "--", "cat", "{b}"}).code, 75);
  WriteText(daemon_.folder() / "gate", "go on\n");

  EXPECT_EQ(reader.Wait().out, "betabeta");
  EXPECT_TRUE(WaitUntil([&] { return Ask({"status"})["daemon"]["used_bytes"] == 0; }));
}

TEST_F(RunFiles, FilesOfTwoStatesAreLentToOneCommand) {
  Load("s", {{"a", "alpha"}});
  Load("t", {{"a", "theta"}});

  const std::vector<std::string> files = {"run", "--as-file=a=s/a", "--as-file=b=t/a"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), files.begin(), files.end());
    return Run(more);
  };

  const CtlResult both =
      with({"--state=t", "--", "sh", "-c", "cat {a} {b}; echo $STICKYINVOC_STATE"});
  EXPECT_EQ(both.out, "alphathetat\n") << both.err;
  const CtlResult undecided = with({"--", "cat", "{a}", "{b}"});
  EXPECT_EQ(undecided.code, 64);
  EXPECT_THAT(undecided.err, HasSubstr("names the states 's' and 't'"));
  EXPECT_TRUE(LeasesBecome(0));
}

TEST_F(RunFiles, TheStateIsBuiltFirstWhenAskedTo) {
  WriteText(daemon_.folder() / "f", "built");
  WriteText(daemon_.folder() / "t.yaml", "name: s\nsource: {files: [f]}\n");

  const CtlResult run = Run(
      {"run", "--template", daemon_.folder() / "t.yaml", "--as-file=f=s/f", "--", "cat", "{f}"});

  EXPECT_EQ(run.out, "built") << run.err;
}

TEST_F(RunFiles, WhatCannotBeLentIsSaidBeforeAnythingRuns) {
  Load("s", {{"a\x1b[31m", "alpha"}});
  WriteTensorFile(daemon_.folder() / "m.safetensors", 4096);
  WriteText(daemon_.folder() / "m.yaml", "name: m\nsource: {path: m.safetensors}\n");
  ASSERT_EQ(Run({"load", daemon_.folder() / "m.yaml", "--wait"}).code, 0);
  struct {
    const char* as_file;
    const char* word;
    int code;
    const char* says;
  } const cases[] = {
      {"a=s/b", "{a}", 66, "it has no such file; there are 'a\\x1b[31m'"},
      {"a=m/data", "{a}", 65, "the state is a model"},
      {"a=none/data", "{a}", 66, "no such state"},
      {"a=s/b", "{b}", 64, "no word of the command has {a}"},
      {"a=s", "{a}", 64, "want KEY=STATE/FILE"},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.says);
    const CtlResult run = Run({"run", "--as-file", one.as_file, "--", "echo", one.word});
    EXPECT_EQ(run.code, one.code) << run.err;
    EXPECT_THAT(run.err, HasSubstr(one.says));
    EXPECT_EQ(run.out, "");
  }
  EXPECT_TRUE(LeasesBecome(0));
}

}  // namespace
}  // namespace sticky::testing
