// Templates: what is read, and that every mistake is an error at its line and column that says what
// would be right.

#include "config/template.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "flatbuffers/wire_codec.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_dir.h"

namespace sticky::config {
namespace {

using ::sticky::testing::FailsWith;
using ::sticky::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Result<Template> Parse(std::string_view text) { return ParseTemplate(text, "/models", "t.yaml"); }

TEST(Template, EveryKeyIsRead) {
  const Result<Template> made = Parse(
      "name: smol.lm-2_x+1\n"
      "source:\n  path: a/b.gguf\n"
      "device: host\ndtype: bf16\n"
      "lifetime:\n  pin: true\n"
      "memory:\n  huge_pages: true\n  prefault: false\n"
      "build: at-start\n");

  ASSERT_THAT(made, IsOk());
  EXPECT_EQ(made.value().name, "smol.lm-2_x+1");
  EXPECT_THAT(made.value().source.candidates, ElementsAre("/models/a/b.gguf"));
  EXPECT_EQ(made.value().device, "host");
  EXPECT_EQ(made.value().dtype, DtypeChoice::kBf16);
  EXPECT_TRUE(made.value().policy.pin);
  EXPECT_TRUE(made.value().huge_pages);
  EXPECT_FALSE(made.value().prefault);
  EXPECT_EQ(made.value().build, BuildWhen::kAtStart);
}

TEST(Template, WhatIsLeftOutHasItsDefault) {
  const Result<Template> made = Parse("{name: a, source: {path: /m.gguf}}");

  ASSERT_THAT(made, IsOk());
  EXPECT_EQ(made.value().device, "host");
  EXPECT_EQ(made.value().dtype, DtypeChoice::kAuto);
  EXPECT_EQ(made.value().policy, Policy());
  EXPECT_FALSE(made.value().huge_pages);
  EXPECT_TRUE(made.value().prefault);
  EXPECT_EQ(made.value().build, BuildWhen::kManual);
  EXPECT_EQ(made.value().source.expected, Expected());
}

struct Mistake {
  const char* title;
  const char* text;
  const char* place;  // how the message begins
  const char* reason;
  Code code = Code::kInvalidArgument;
};

class TemplateMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(TemplateMistake, IsNamedAtItsPlace) {
  const Result<Template> made = Parse(GetParam().text);

  ASSERT_THAT(made, FailsWith(GetParam().code));
  EXPECT_THAT(made.error().message, StartsWith(GetParam().place));
  EXPECT_THAT(made.error().message, HasSubstr(GetParam().reason));
}

constexpr Mistake kMistakes[] = {
    {"UnknownKey", "name: a\nsource: {path: /m}\ndtpye: f32\n",
     "t.yaml:3:1: ", "unknown key 'dtpye'; did you mean 'dtype'?"},
    {"UnknownKeyFarFromAll", "name: a\nquantum: 1\n",
     "t.yaml:2:1: ", "known keys: name, source, device, dtype, lifetime, priority, access"},
    {"UnknownInnerKey", "name: a\nsource:\n  path: /m\n  revison: main\n",
     "t.yaml:4:3: ", "unknown key 'source.revison'"},
    {"UnknownLifetimeKey", "name: a\nsource: {path: /m}\nlifetime:\n  pinn: true\n",
     "t.yaml:4:3: ", "did you mean 'pin'?"},
    {"DuplicateKey", "name: a\nsource: {path: /m}\nname: b\n",
     "t.yaml:3:1: ", "key 'name' stands twice"},
    {"DuplicateInnerKey", "name: a\nsource: {path: /m, path: /n}\n",
     "t.yaml:2:20: ", "key 'path' stands twice"},
    {"NoName", "source: {path: /m}\n", "t.yaml:1:1: ", "'name' is missing"},
    {"EmptyName", "source: {path: /m}\nname: ''\n", "t.yaml:2:7: ", "'name' is missing"},
    {"BadName", "name: a/b\nsource: {path: /m}\n", "t.yaml:1:7: ", "'a/b'"},
    {"NameBeginsWithDot", "name: .a\nsource: {path: /m}\n", "t.yaml:1:7: ", "'.a'"},
    {"NoSource", "name: a\n", "t.yaml:1:1: ", "'source.path' is missing"},
    {"EmptySource", "name: a\nsource:\n", "t.yaml:2:1: ", "'source.path' is missing"},
    {"NoPath", "name: a\nsource: {}\n", "t.yaml:2:9: ", "'source.path' is missing"},
    {"NameIsAList", "name: [a]\nsource: {path: /m}\n",
     "t.yaml:1:7: ", "'name' wants text, found a list"},
    {"NameIsNothing", "name:\nsource: {path: /m}\n",
     "t.yaml:1:1: ", "'name' wants text, found nothing"},
    {"SourceIsText", "name: a\nsource: /m\n",
     "t.yaml:2:9: ", "'source' wants a mapping, found '/m'"},
    {"PathIsAMapping", "name: a\nsource: {path: {a: b}}\n",
     "t.yaml:2:16: ", "'source.path' wants text, found a mapping"},
    {"PinIsAWord", "name: a\nsource: {path: /m}\nlifetime: {pin: yes}\n",
     "t.yaml:3:17: ", "'lifetime.pin' wants true or false, found 'yes'"},
    {"PinIsQuoted", "name: a\nsource: {path: /m}\nlifetime: {pin: \"true\"}\n",
     "t.yaml:3:17: ", "'lifetime.pin' wants true or false, found text"},
    {"UnknownDtype", "name: a\nsource: {path: /m}\ndtype: int8\n",
     "t.yaml:3:8: ", "'dtype' wants auto, bf16, f16 or f32, found 'int8'"},
    {"UnknownDevice", "name: a\nsource: {path: /m}\ndevice: cuda\n",
     "t.yaml:3:9: ", "'device' is 'cuda'; this version knows host"},
    {"UnknownBuild", "name: a\nsource: {path: /m}\nbuild: on_demand\n",
     "t.yaml:3:8: ", "'build' wants manual, on-demand or at-start, found 'on_demand'"},
    {"PrefaultIsAWord", "name: a\nsource: {path: /m}\nmemory: {prefault: no}\n",
     "t.yaml:3:20: ", "'memory.prefault' wants true or false, found 'no'"},
    {"UnsetVariable", "name: a\nsource:\n  path: ${STICKY_TEST_UNSET}/m\n",
     "t.yaml:3:9: ", "variable 'STICKY_TEST_UNSET' is not set"},
    {"OpenVariable", "name: a\nsource:\n  path: ${HOME/m\n", "t.yaml:3:9: ", "'${' without '}'"},
    {"OtherUsersHome", "name: a\nsource:\n  path: ~bob/m\n", "t.yaml:3:9: ", "'~bob/m'"},
    {"NulInAPath", "name: a\nsource: {path: \"/m\\0x\"}\n", "t.yaml:2:16: ", "NUL"},
    {"TopIsAList", "- name: a\n", "t.yaml:1:1: ", "want a mapping of keys to values, found a list"},
    {"TopIsText", "just text\n", "t.yaml:1:1: ", "want a mapping of keys to values"},
    {"Alias", "name: &n a\nsource: {path: *n}\n", "t.yaml:2:16: ", "aliases (*name)"},
    {"OwnTag", "name: !!python/object:os.system a\nsource: {path: /m}\n", "t.yaml:1:7: ", "tag"},
    {"SecondDocument", "name: a\nsource: {path: /m}\n---\nname: b\n",
     "t.yaml:", "more than one document"},
    {"Tab", "name: a\nsource:\n\tpath: /m\n", "t.yaml:3:1: ", "indented with a tab",
     Code::kCorrupt},
    {"OpenQuote", "name: \"a\nsource: {path: /m}", "t.yaml:", "not YAML", Code::kCorrupt},
    {"OpenBracket", "name: [a\n", "t.yaml:", "not YAML", Code::kCorrupt},
};

INSTANTIATE_TEST_SUITE_P(Each, TemplateMistake, ::testing::ValuesIn(kMistakes),
                         [](const auto& mistake) { return mistake.param.title; });

TEST(Template, MessagesCarryNoTerminalEscapes) {
  const Result<Template> made = ParseTemplate("\"\\e[31mred\": 1\n", "/models", "evil\x1b[2J.yaml");

  ASSERT_THAT(made, FailsWith(Code::kInvalidArgument));
  EXPECT_EQ(made.error().message.find('\x1b'), std::string::npos) << made.error().message;
}

TEST(Template, ANulByteIsRefusedAtItsLineAndNeverReadAsSomethingElse) {
  using namespace std::string_literals;
  const Result<Template> made =
      ParseTemplate("name: x\nsource:\n  path: /m/a\0b\n"s, "/", "t.yaml");

  ASSERT_THAT(made, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(made.error().message, StartsWith("t.yaml:3: a NUL byte"));
}

TEST(Template, BombsOfAliasesDepthAndSizeEndEarly) {
  std::string aliases = "a: &a [x,x,x,x,x,x,x,x,x]\n";
  for (char name = 'b'; name <= 'i'; ++name) {
    aliases += std::string(1, name) + ": &" + name + " [";
    for (int i = 0; i < 9; ++i) aliases += std::string(i > 0 ? "," : "") + "*" + char(name - 1);
    aliases += "]\n";
  }
  EXPECT_THAT(Parse(aliases).error().message, HasSubstr("aliases (*name) are not supported"));
  EXPECT_THAT(Parse("a: " + std::string(17, '[') + std::string(17, ']')).error().message,
              HasSubstr("nested past 16"));
  EXPECT_FALSE(Parse(std::string(1u << 16, '[')).ok());
  EXPECT_FALSE(Parse(std::string(1u << 16, '{')).ok());
  EXPECT_THAT(Parse("a: [" + std::string(20'001, ',') + "]").ok(), false);
  std::string many = "a: [x";
  for (int i = 0; i < 10'001; ++i) many += ",x";
  EXPECT_THAT(Parse(many + "]").error().message, HasSubstr("more than 10000 values"));
  EXPECT_THAT(Parse(std::string((1u << 20) + 1, ' ')).error().message,
              HasSubstr("at most 1048576 are read"));
}

TEST(Template, VariablesAndTheHomeFolderAreExpandedInPaths) {
  ::setenv("STICKY_TEST_MODELS", "/big/models", 1);
  ::setenv("HOME", "/home/ada", 1);
  const auto path = [](const std::string& text) {
    return Parse("{name: a, source: {path: \"" + text + "\"}}").value().source.candidates.at(0);
  };

  EXPECT_EQ(path("${STICKY_TEST_MODELS}/x.gguf"), "/big/models/x.gguf");
  EXPECT_EQ(path("~/x.gguf"), "/home/ada/x.gguf");
  EXPECT_EQ(path("~"), "/home/ada");
  EXPECT_EQ(path("/a/${STICKY_TEST_MODELS}-${STICKY_TEST_MODELS}"), "/a/big/models-/big/models");
  EXPECT_EQ(path("./x/./y//z.gguf"), "/models/x/y/z.gguf");
  EXPECT_EQ(path("../x.gguf"), "/models/../x.gguf");
}

TEST(Template, TheSameMeaningHasTheSameCanonicalText) {
  const auto canonical = [](std::string_view text) { return Parse(text).value().canonical; };
  const std::string base = canonical("name: a\nsource:\n  path: m.gguf\n");

  EXPECT_EQ(canonical("{source: {path: ./m.gguf}, name: 'a', dtype: auto, device: host}"), base);
  EXPECT_EQ(canonical("# a comment\nname: a\nsource: {path: /models/m.gguf}\n"), base);
  EXPECT_EQ(canonical("{name: a, source: {path: m.gguf}, lifetime: {pin: true}}"), base)
      << "how long it stays is not what it is";
  EXPECT_EQ(canonical("{name: a, source: {path: [m.gguf]}, priority: 3, access: {mode: node}, "
                      "labels: {a: b}, max_leases: 4, build: at-start}"),
            base);
  EXPECT_NE(canonical("{name: b, source: {path: m.gguf}}"), base);
  EXPECT_NE(canonical("{name: a, source: {path: n.gguf}}"), base);
  EXPECT_NE(canonical("{name: a, source: {path: m.gguf}, dtype: f32}"), base);
  EXPECT_NE(canonical("{name: a, source: {path: m.gguf}, memory: {huge_pages: true}}"), base);
  EXPECT_NE(canonical("{name: a, source: {path: m.gguf}, memory: {prefault: false}}"), base);
  EXPECT_NE(canonical("{name: a, source: {path: [m.gguf, n.gguf]}}"), base);
  EXPECT_NE(canonical("{name: a, source: {paths: [m.gguf]}}"), base);
  EXPECT_NE(canonical("{name: a, source: {files: [m.gguf]}}"), base);
  EXPECT_NE(canonical("{name: a, source: {path: m.gguf, expect: {bytes: 3}}}"), base);
  EXPECT_NE(canonical("{name: a, source: {path: \"m.gguf\\ndevice=host\"}}"), base);
}

TEST(Template, NamesAreThoseOfTheWire) {
  for (const std::string& name :
       {std::string("a"), std::string("A0._-+"), std::string("0"), std::string(128, 'x'),
        std::string(129, 'x'), std::string("-a"), std::string("_"), std::string("a b"),
        std::string("a/b"), std::string("\xc3\xa4")}) {
    const bool taken = Parse("{name: \"" + name + "\", source: {path: /m}}").ok();

    EXPECT_EQ(taken, wire::CheckStateName(name).ok()) << name;
  }
}

class TemplateFile : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    std::string path = (folder_.path() / name).string();
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
    return path;
  }
  testing::TempDir folder_;
};

TEST_F(TemplateFile, PathsAreRelativeToItsFolder) {
  const std::string path = Write("deep/t.yaml", "{name: a, source: {path: m.gguf}}");
  const std::string folder = std::filesystem::canonical(folder_.path() / "deep").string();

  const Result<Template> made = LoadTemplate(path);

  ASSERT_THAT(made, IsOk());
  EXPECT_THAT(made.value().source.candidates, ElementsAre(folder + "/m.gguf"));
}

TEST_F(TemplateFile, WhatIsNoSmallFileIsRefused) {
  const std::string big = Write("big.yaml", std::string((1u << 20) + 1, '#'));
  const std::string fifo = (folder_.path() / "fifo").string();
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);

  EXPECT_THAT(LoadTemplate((folder_.path() / "none.yaml").string()), FailsWith(Code::kNotFound));
  EXPECT_THAT(LoadTemplate(folder_.path().string()), FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(LoadTemplate(fifo), FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(LoadTemplate(big), FailsWith(Code::kInvalidArgument));
}

TEST_F(TemplateFile, TheInstalledExampleIsATemplateWithTheDefaults) {
  ::setenv("HOME", "/home/ada", 1);

  const Result<Template> made = LoadTemplate(STICKY_SOURCE_DIR "/config/template.example.yaml");

  ASSERT_THAT(made, IsOk());
  const Template plain =
      Parse("{name: a, source: {path: /m}}").value();  // every optional key left out
  EXPECT_EQ(made.value().device, plain.device);
  EXPECT_EQ(made.value().dtype, plain.dtype);
  EXPECT_EQ(made.value().policy, plain.policy);
  EXPECT_EQ(made.value().build, plain.build);
  EXPECT_EQ(made.value().huge_pages, plain.huge_pages);
  EXPECT_EQ(made.value().prefault, plain.prefault);
  EXPECT_EQ(made.value().source.expected, plain.source.expected);
}

}  // namespace
}  // namespace sticky::config
