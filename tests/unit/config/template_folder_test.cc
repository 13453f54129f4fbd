// A folder of installed templates: all that are good are there, whatever the others are.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/template.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_dir.h"

namespace sticky::config {
namespace {

using ::sticky::testing::FailsWith;
using ::sticky::testing::IsOk;
using ::testing::HasSubstr;

class TemplateFolder : public ::testing::Test {
 protected:
  Result<std::vector<InstalledTemplate>> Load() const {
    return LoadTemplateFolder(folder_.path().string());
  }
  testing::TempDir folder_;
};

TEST_F(TemplateFolder, HasTheYamlFilesSortedAndNothingElse) {
  folder_.Write("b.yaml", "{name: b, source: {path: m.gguf}}");
  folder_.Write("a.yaml", "{name: a, source: {path: m.gguf}}");
  folder_.Write("a.yaml~", "{name: c, source: {path: m.gguf}}");
  folder_.Write(".d.yaml", "{name: d, source: {path: m.gguf}}");
  folder_.Write("README", "no template");

  const auto templates = Load();

  ASSERT_THAT(templates, IsOk());
  ASSERT_EQ(templates.value().size(), 2u);
  ASSERT_THAT(templates.value()[0].made, IsOk());
  EXPECT_EQ(templates.value()[0].made.value().name, "a");
  EXPECT_EQ(templates.value()[0].path, folder_.path() / "a.yaml");
  EXPECT_EQ(templates.value()[1].made.value().name, "b");
}

TEST_F(TemplateFolder, ABadFileDoesNotHideTheOthers) {
  folder_.Write("a.yaml", "{name: a, sauce: {path: m.gguf}}");
  folder_.Write("b.yaml", "{name: b, source: {path: m.gguf}}");
  folder_.Write("c.yaml", "{name: b, source: {path: n.gguf}}");

  const auto templates = Load();

  ASSERT_THAT(templates, IsOk());
  ASSERT_EQ(templates.value().size(), 3u);
  EXPECT_THAT(templates.value()[0].made, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(templates.value()[0].made.error().message, HasSubstr("a.yaml:1:11: unknown key"));
  EXPECT_THAT(templates.value()[1].made, IsOk());
  ASSERT_THAT(templates.value()[2].made, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(templates.value()[2].made.error().message, HasSubstr("b.yaml' describes already"));
}

TEST_F(TemplateFolder, TooManyFilesAndNoFolderAreErrors) {
  for (std::size_t i = 0; i < kInstalledTemplatesMax; ++i) {
    folder_.Write("t" + std::to_string(i) + ".yaml", "{}");
  }
  EXPECT_THAT(Load(), IsOk());
  const auto file = folder_.Write("one-more.yaml", "{}");

  EXPECT_THAT(Load(), FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(LoadTemplateFolder((folder_.path() / "none").string()), FailsWith(Code::kNotFound));
  EXPECT_THAT(LoadTemplateFolder(file.string()), FailsWith(Code::kInvalidArgument));
}

}  // namespace
}  // namespace sticky::config
