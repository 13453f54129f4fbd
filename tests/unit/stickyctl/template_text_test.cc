// The text of a new template: its name, its quoting, and that each key in it is one that is read.

#include "tools/stickyctl/template_text.h"

#include <regex>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/template.h"
#include "flatbuffers/wire_codec.h"
#include "tests/testing/matchers.h"

namespace sticky::stickyctl {
namespace {

using ::sticky::testing::FailsWith;
using ::sticky::testing::IsOk;
using ::testing::HasSubstr;

TEST(StateNameFor, TakesThePartThatSaysWhatItIs) {
  EXPECT_EQ(StateNameFor("/m/SmolLM2.Q4_1.gguf"), "SmolLM2.Q4_1");
  EXPECT_EQ(StateNameFor("/m/Some Model (v2)/"), "Some-Model-v2");
  EXPECT_EQ(StateNameFor("/m/llama/model.safetensors"), "llama");
  EXPECT_EQ(StateNameFor("/hub/models--org--Llama-3.2-1B"), "Llama-3.2-1B");
  EXPECT_EQ(StateNameFor("/hub/models--org--Llama-3.2-1B/snapshots/0123/x.gguf"), "Llama-3.2-1B");
  EXPECT_EQ(StateNameFor("/m/.hidden"), "hidden");
  EXPECT_EQ(StateNameFor("/"), "model");
  EXPECT_EQ(StateNameFor("/\xc3\xa4\xc3\xb6"), "model");
}

TEST(StateNameFor, IsAlwaysAName) {
  for (int i = 1; i < 256; ++i) {
    const std::string odd(1, static_cast<char>(i));
    for (const std::string& path : {odd, odd + "a", "a" + odd, std::string(200, 'x') + odd}) {
      EXPECT_THAT(wire::CheckStateName(StateNameFor(path)), IsOk()) << i;
    }
  }
}

TEST(YamlQuoted, IsReadBackAsItWas) {
  std::string all;
  for (int i = 1; i < 128; ++i) all += static_cast<char>(i);
  for (const std::string& text : {all, std::string("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80")}) {
    // A label's key wants less, a path takes everything but a variable.
    const std::string path = "/" + std::regex_replace(text, std::regex("/"), "");
    const auto quoted = YamlQuoted(path);
    ASSERT_THAT(quoted, IsOk());

    const auto made =
        config::ParseTemplate("{name: a, source: {path: " + quoted.value() + "}}", "/", "t.yaml");

    ASSERT_THAT(made, IsOk());
    EXPECT_EQ(made.value().source.candidates.at(0), path);
  }
  EXPECT_THAT(YamlQuoted("\xff"), FailsWith(Code::kInvalidArgument));
}

ModelLook Look() {
  ModelLook look;
  look.format = "GGUF";
  look.architecture = "llama";
  look.context_length = 8192;
  look.tensor_count = 3;
  look.stored = {{"q4_1", 2, 1000}, {"f32", 1, 10}};
  look.arena = {{"bf16", 2, 3000}, {"f32", 1, 10}};
  look.arena_bytes = 3072;
  return look;
}

TEST(TemplateText, EveryKeyInACommentIsOneThatIsRead) {
  TemplateFacts facts;
  facts.path = "/m/x.gguf";
  facts.blob_sha256 = Sha256();
  const auto text = TemplateText(facts, Look());
  ASSERT_THAT(text, IsOk());
  const auto plain = config::ParseTemplate(text.value(), "/", "t.yaml");
  ASSERT_THAT(plain, IsOk());

  // "# priority: 0   # why": a key behind a '#', after blanks or none.
  std::string all;
  int key_count = 0;
  std::size_t begin = text.value().find("# device:");
  for (std::size_t end; (end = text.value().find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    std::string line = text.value().substr(begin, end - begin);
    static const std::regex key("^( *)# ([a-z_]+: )");
    if (std::regex_search(line, key)) ++key_count;
    all += std::regex_replace(line, key, "$1$2") + "\n";
  }
  const auto made =
      config::ParseTemplate("name: x\nsource: {path: /m/x.gguf}\n" + all, "/", "t.yaml");

  ASSERT_THAT(made, IsOk()) << all;
  EXPECT_EQ(key_count, 13);
  Policy as_default = made.value().policy;
  EXPECT_EQ(as_default.idle_ms, 3'600'000u) << "an example: the default is not to have it";
  as_default.idle_ms = as_default.ttl_ms = as_default.lease_count_max = 0;
  EXPECT_EQ(as_default, Policy());
  EXPECT_EQ(made.value().build, BuildWhen::kManual);
  EXPECT_EQ(made.value().canonical, plain.value().canonical);
}

TEST(TemplateText, TellsWhatWasFoundAndKeepsNotesOnTheirLine) {
  TemplateFacts facts;
  facts.path = "/m/x.gguf";
  facts.weights_count = 2;
  facts.weights_bytes = 1024;
  ModelLook look = Look();
  look.notes = {"odd\nname: evil"};

  const auto text = TemplateText(facts, look);

  ASSERT_THAT(text, IsOk());
  EXPECT_THAT(text.value(), HasSubstr("# format:        GGUF, 2 files, 1.00 KiB\n"));
  EXPECT_THAT(text.value(), HasSubstr("# in the files:  q4_1 1000 B (2), f32 10 B (1)\n"));
  EXPECT_THAT(text.value(), HasSubstr("# note: odd\\nname: evil\n"));
  EXPECT_THAT(text.value(), HasSubstr("#   bytes: 1024"));
  facts.path = "/m/${x}.gguf";
  EXPECT_THAT(TemplateText(facts, look), FailsWith(Code::kInvalidArgument));
}

}  // namespace
}  // namespace sticky::stickyctl
