// A model's files are found in every layout that people have, and nothing else is opened. On real
// directories, links and FIFOs. W04, W07, W20.

#include "weights/files/resolve.h"

#include <algorithm>
#include <filesystem>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/testing/data_dir.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_dir.h"

namespace sticky::weights {
namespace {

namespace fs = std::filesystem;
using sticky::testing::FailsWith;
using sticky::testing::IsOk;
using sticky::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Names(const Result<std::vector<OpenFile>>& files) {
  std::vector<std::string> names;
  if (!files.ok()) return names;
  for (const OpenFile& file : files.value()) {
    names.push_back((file.is_weights ? "" : "(") + file.name + (file.is_weights ? "" : ")"));
  }
  return names;
}

std::string Content(const OpenFile& file) {
  std::string bytes(file.size_bytes, '\0');
  EXPECT_EQ(::pread(file.fd.get(), bytes.data(), bytes.size(), 0),
            static_cast<ssize_t>(bytes.size()));
  return bytes;
}

std::string Index(const std::vector<std::string>& shards) {
  std::string map;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    map +=
        (i > 0 ? ", " : "") + std::string("\"t") + std::to_string(i) + "\": \"" + shards[i] + "\"";
  }
  return "{\"metadata\": {}, \"weight_map\": {" + map + "}}";
}

TEST(ResolveModel, AFileIsTheModelAlone) {
  const TempDir dir;
  dir.Write("config.json", "{}");
  const auto path = dir.Write("m.gguf", "GGUF....");

  const auto files = ResolveModel(path);

  ASSERT_THAT(files, IsOk());
  EXPECT_THAT(Names(files), ElementsAre("m.gguf"));
  EXPECT_EQ(files.value()[0].size_bytes, 8u);
  const int fd = files.value()[0].fd.get();
  EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(::fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
}

TEST(ResolveModel, ADirectoryGivesWeightsFirstThenTheSmallFilesThatAreThere) {
  const TempDir dir;
  for (const char* name : {"model.safetensors", "config.json", "tokenizer.json", "README.md",
                           "generation_config.json", "other.safetensors"}) {
    dir.Write(name, "x");
  }

  const auto files = ResolveModel(dir.path());

  EXPECT_THAT(Names(files), ElementsAre("model.safetensors", "(config.json)",
                                        "(generation_config.json)", "(tokenizer.json)"));
}

TEST(ResolveModel, TheIndexAndNothingElseSaysWhichShardsThereAre) {
  const TempDir dir;
  dir.Write("model.safetensors.index.json",
            Index({"b.safetensors", "a.safetensors", "b.safetensors"}));
  for (const char* name :
       {"a.safetensors", "b.safetensors", "stray.safetensors", "model.safetensors"}) {
    dir.Write(name, "x");
  }

  const auto files = ResolveModel(dir.path());

  EXPECT_THAT(Names(files),
              ElementsAre("a.safetensors", "b.safetensors", "(model.safetensors.index.json)"));
}

// W04.
TEST(ResolveModel, EveryMissingShardIsNamedAndNoOtherFileIsTakenInstead) {
  const TempDir dir;
  dir.Write("model.safetensors.index.json",
            Index({"one.safetensors", "two.safetensors", "three.safetensors"}));
  dir.Write("two.safetensors", "x");

  const auto files = ResolveModel(dir.path());

  ASSERT_THAT(files, FailsWith(Code::kNotFound));
  for (const char* part : {"one.safetensors", "three.safetensors", "incomplete download?"}) {
    EXPECT_THAT(files.error().message, HasSubstr(part));
  }
  EXPECT_THAT(files.error().message, ::testing::Not(HasSubstr("two.safetensors")));
}

TEST(ResolveModel, TheIndexFixturesHaveTheirVerdicts) {
  const fs::path idx = sticky::testing::CasesDir() / "fixtures" / "idx";
  EXPECT_THAT(ResolveModel(idx / "ok"), IsOk());
  const auto missing = ResolveModel(idx / "missing-shard");
  ASSERT_THAT(missing, FailsWith(Code::kNotFound));
  EXPECT_THAT(missing.error().message, HasSubstr("model-00002-of-00002.safetensors"));
  const auto escape = ResolveModel(idx / "path-escape");
  ASSERT_THAT(escape, FailsWith(Code::kCorrupt));
  EXPECT_THAT(escape.error().message, HasSubstr("'../../../../etc/passwd'"));
}

// W07.
TEST(ResolveModel, AShardThatIsNotAPlainFileNameIsRefused) {
  for (const char* shard : {"../x", "/etc/passwd", "a/b", "..", ".", "", "a\\u0000b"}) {
    const TempDir dir;
    dir.Write("model.safetensors.index.json", Index({shard}));
    EXPECT_THAT(ResolveModel(dir.path()), FailsWith(Code::kCorrupt)) << shard;
  }
}

// W20: the hub's cache, read-only, with its links out of the snapshot into blobs/.
class HubCache : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_.Write("blobs/aaaa", "weights");
    dir_.Write("blobs/bbbb", "{}");
    dir_.Write("refs/main", "0123abcd\n");
    fs::create_directories(snapshot());
    fs::create_symlink("../../blobs/aaaa", snapshot() / "model-00001-of-00001.safetensors");
    fs::create_symlink("../../blobs/bbbb", snapshot() / "config.json");
    std::ofstream(snapshot() / "model.safetensors.index.json")
        << Index({"model-00001-of-00001.safetensors"});
  }
  fs::path snapshot() const { return dir_.path() / "snapshots" / "0123abcd"; }

  TempDir dir_;
};

TEST_F(HubCache, ARepositoryAndItsSnapshotBothResolveThroughTheLinks) {
  fs::permissions(dir_.path(), fs::perms::owner_write, fs::perm_options::remove);
  fs::permissions(snapshot(), fs::perms::owner_write, fs::perm_options::remove);

  for (const fs::path& path : {dir_.path(), snapshot()}) {
    const auto files = ResolveModel(path);

    EXPECT_THAT(Names(files), ElementsAre("model-00001-of-00001.safetensors", "(config.json)",
                                          "(model.safetensors.index.json)"));
    EXPECT_EQ(Content(files.value()[0]), "weights");
  }
  fs::permissions(dir_.path(), fs::perms::owner_write, fs::perm_options::add);
  fs::permissions(snapshot(), fs::perms::owner_write, fs::perm_options::add);
}

TEST_F(HubCache, ADanglingLinkIsNamedWithItsTarget) {
  fs::remove(dir_.path() / "blobs" / "aaaa");

  const auto files = ResolveModel(dir_.path());

  ASSERT_THAT(files, FailsWith(Code::kNotFound));
  EXPECT_THAT(files.error().message, HasSubstr("model-00001-of-00001.safetensors"));
  EXPECT_THAT(files.error().message, HasSubstr("'../../blobs/aaaa'"));
}

TEST_F(HubCache, ADanglingSmallFileIsAnErrorToo) {
  fs::remove(dir_.path() / "blobs" / "bbbb");

  const auto files = ResolveModel(snapshot());

  ASSERT_THAT(files, FailsWith(Code::kNotFound));
  EXPECT_THAT(files.error().message, HasSubstr("config.json': it is a link to '../../blobs/bbbb'"));
}

TEST_F(HubCache, ARefThatNamesNoSnapshotOrLeadsAwayIsRefused) {
  dir_.Write("refs/main", "ffff");
  EXPECT_THAT(ResolveModel(dir_.path()), FailsWith(Code::kNotFound));
  dir_.Write("refs/main", "../../elsewhere\n");
  EXPECT_THAT(ResolveModel(dir_.path()), FailsWith(Code::kCorrupt));
  fs::remove(dir_.path() / "refs" / "main");
  EXPECT_THAT(ResolveModel(dir_.path()), FailsWith(Code::kNotFound));
}

// A FIFO without a writer would make a plain open(2) wait for ever.
TEST(ResolveModel, WhatIsNotARegularFileIsRefusedAtOnce) {
  const TempDir dir;
  const fs::path fifo = dir.path() / "model.safetensors";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(ResolveModel(fifo), FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(ResolveModel(dir.path()), FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(ResolveModel("/dev/zero"), FailsWith(Code::kInvalidArgument));

  const TempDir other;
  fs::create_directories(other.path() / "model.safetensors");
  const auto directory = ResolveModel(other.path());
  ASSERT_THAT(directory, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(directory.error().message, HasSubstr("it is a directory"));
}

TEST(ResolveModel, ADirectoryWithoutAModelSaysWhatWasLookedFor) {
  const TempDir dir;
  const auto empty = ResolveModel(dir.path());
  ASSERT_THAT(empty, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(empty.error().message, HasSubstr("*.safetensors and *.gguf"));

  dir.Write("pytorch_model.bin", "x");
  EXPECT_THAT(ResolveModel(dir.path()).error().message, HasSubstr("pytorch_model.bin"));

  dir.Write("a.gguf", "x");
  EXPECT_THAT(Names(ResolveModel(dir.path())), ElementsAre("a.gguf"));

  dir.Write("b.gguf", "x");
  const auto several = ResolveModel(dir.path());
  ASSERT_THAT(several, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(several.error().message, HasSubstr("'a.gguf', 'b.gguf'"));
}

TEST(ResolveModel, APathThatIsNotThereOrAllowedSaysSo) {
  const TempDir dir;
  EXPECT_THAT(ResolveModel(dir.path() / "none"), FailsWith(Code::kNotFound));
  EXPECT_THAT(ResolveModel(""), FailsWith(Code::kInvalidArgument));
  fs::create_symlink("nowhere", dir.path() / "link");
  const auto dangling = ResolveModel(dir.path() / "link");
  ASSERT_THAT(dangling, FailsWith(Code::kNotFound));
  EXPECT_THAT(dangling.error().message, HasSubstr("'nowhere'"));
}

// W20: the name of a blob is the SHA-256 of large files, and a commit's or git's of small ones.
TEST_F(HubCache, AFileKnowsTheSha256ThatItsBlobIsNamedBy) {
  const std::string hex(64, 'a');
  dir_.Write("blobs/" + hex, "weights");
  fs::remove(snapshot() / "model-00001-of-00001.safetensors");
  fs::create_symlink("../../blobs/" + hex, snapshot() / "model-00001-of-00001.safetensors");
  dir_.Write("elsewhere/" + hex, "weights");

  const auto files = ResolveModel(snapshot());
  const auto elsewhere = ResolveModel(dir_.path() / "elsewhere" / hex);

  ASSERT_THAT(files, IsOk());
  ASSERT_TRUE(files.value()[0].blob_sha256);
  EXPECT_EQ(ToHex(*files.value()[0].blob_sha256), hex);
  EXPECT_EQ(files.value()[1].blob_sha256, std::nullopt) << "blobs/bbbb is no SHA-256";
  ASSERT_THAT(elsewhere, IsOk());
  EXPECT_EQ(elsewhere.value()[0].blob_sha256, std::nullopt) << "no cache, no meaning";
}

class ResolveSource : public ::testing::Test {
 protected:
  Source Candidates(const std::vector<std::string>& names) const {
    Source source;
    for (const std::string& name : names) source.candidates.push_back(dir_.path() / name);
    return source;
  }
  Source Files(SourceKind kind, const std::vector<NamedPath>& files) const {
    Source source;
    source.kind = kind;
    for (const NamedPath& file : files) {
      source.files.push_back({file.name, dir_.path() / file.path});
    }
    return source;
  }

  TempDir dir_;
};

TEST_F(ResolveSource, TheFirstCandidateThatIsThereIsTaken) {
  dir_.Write("b.gguf", "GGUF....");
  dir_.Write("c.gguf", "GGUF");

  const auto resolved = Resolve(Candidates({"none/a.gguf", "b.gguf/x", "b.gguf", "c.gguf"}));

  ASSERT_THAT(resolved, IsOk());
  EXPECT_EQ(resolved.value().path, dir_.path() / "b.gguf");
  ASSERT_EQ(resolved.value().files.size(), 1u);
  EXPECT_EQ(Content(resolved.value().files[0]), "GGUF....");
}

TEST_F(ResolveSource, ACandidateThatIsThereAndBadIsNotPassedOver) {
  dir_.Write("good.gguf", "GGUF");
  fs::create_directories(dir_.path() / "empty");
  fs::create_symlink("nowhere", dir_.path() / "dangling.gguf");

  EXPECT_THAT(Resolve(Candidates({"empty", "good.gguf"})), FailsWith(Code::kInvalidArgument));
  const auto dangling = Resolve(Candidates({"dangling.gguf", "good.gguf"}));
  ASSERT_THAT(dangling, FailsWith(Code::kNotFound));
  EXPECT_THAT(dangling.error().message, HasSubstr("'nowhere'"));
}

TEST_F(ResolveSource, WhenNoCandidateIsThereAllAreNamed) {
  const auto none = Resolve(Candidates({"a.gguf", "b.gguf"}));

  ASSERT_THAT(none, FailsWith(Code::kNotFound));
  EXPECT_THAT(none.error().message, HasSubstr("a.gguf', '"));
  EXPECT_THAT(none.error().message, HasSubstr("b.gguf'"));
}

TEST_F(ResolveSource, PathsAreOneModelWeightsFirstWhateverTheirOrder) {
  dir_.Write("x/config.json", "{}");
  dir_.Write("y/2.safetensors", "two");
  dir_.Write("z/1.safetensors", "one");

  const Source source = Files(SourceKind::kPaths, {{"config.json", "x/config.json"},
                                                   {"2.safetensors", "y/2.safetensors"},
                                                   {"1.safetensors", "z/1.safetensors"}});

  const auto resolved = Resolve(source);

  ASSERT_THAT(resolved, IsOk());
  EXPECT_EQ(Content(resolved.value().files[0]), "one");
  EXPECT_THAT(Names(ResolveParts(source.files)),
              ElementsAre("1.safetensors", "2.safetensors", "(config.json)"));
}

TEST_F(ResolveSource, PathsWithoutWeightsAndMissingOnesAreRefused) {
  dir_.Write("config.json", "{}");
  dir_.Write("a.safetensors", "a");
  const NamedPath config{"config.json", "config.json"};

  EXPECT_THAT(Resolve(Files(SourceKind::kPaths, {config})), FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(Resolve(Files(SourceKind::kPaths, {{"d", "."}})), FailsWith(Code::kInvalidArgument));
  const auto missing = Resolve(
      Files(SourceKind::kPaths, {{"a.safetensors", "a.safetensors"}, {"b", "b"}, {"c", "c"}}));
  ASSERT_THAT(missing, FailsWith(Code::kNotFound));
  EXPECT_THAT(missing.error().message, HasSubstr("/b'"));
  EXPECT_THAT(missing.error().message, HasSubstr("/c'"));
}

TEST_F(ResolveSource, FilesAreTakenWholeInTheirOrderThroughLinks) {
  dir_.Write("data.bin", "data");
  fs::create_symlink("data.bin", dir_.path() / "link");
  dir_.Write("a.txt", "");
  const fs::path fifo = dir_.path() / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);

  const auto resolved = Resolve(Files(SourceKind::kFiles, {{"z.bin", "link"}, {"a.txt", "a.txt"}}));

  ASSERT_THAT(resolved, IsOk());
  ASSERT_EQ(resolved.value().files.size(), 2u);
  EXPECT_EQ(resolved.value().files[0].name, "z.bin");
  EXPECT_EQ(Content(resolved.value().files[0]), "data");
  EXPECT_EQ(resolved.value().files[1].size_bytes, 0u);
  EXPECT_THAT(Resolve(Files(SourceKind::kFiles, {{"f", "fifo"}})),
              FailsWith(Code::kInvalidArgument));
}

TEST_F(ResolveSource, ExpectedBytesAreThoseOfTheWeightsOrOfAllFiles) {
  dir_.Write("m/model.safetensors", "12345");
  dir_.Write("m/config.json", "{}");
  Source model = Candidates({"m"});
  Source files = Files(SourceKind::kFiles, {{"a", "m/model.safetensors"}, {"b", "m/config.json"}});

  model.expected.bytes = 5;
  EXPECT_THAT(Resolve(model), IsOk());
  files.expected.bytes = 7;
  EXPECT_THAT(Resolve(files), IsOk());

  model.expected.bytes = 7;
  const auto wrong = Resolve(model);
  ASSERT_THAT(wrong, FailsWith(Code::kCorrupt));
  EXPECT_THAT(wrong.error().message, HasSubstr("have 5 bytes, but source.expect.bytes is 7"));
}

TEST_F(ResolveSource, ExpectedSha256sGoToTheirFiles) {
  dir_.Write("m/model.safetensors", "12345");
  dir_.Write("m/config.json", "{}");
  Sha256 sha256;
  sha256.bytes[0] = 9;
  Source one = Candidates({"m"});
  one.expected.sha256 = sha256;
  Source named = Candidates({"m"});
  named.expected.sha256_of["config.json"] = sha256;

  const auto of_one = Resolve(one);
  const auto of_named = Resolve(named);

  ASSERT_THAT(of_one, IsOk());
  EXPECT_EQ(of_one.value().files[0].expected_sha256, sha256);
  EXPECT_EQ(of_one.value().files[1].expected_sha256, std::nullopt);
  ASSERT_THAT(of_named, IsOk());
  EXPECT_EQ(of_named.value().files[0].expected_sha256, std::nullopt);
  EXPECT_EQ(of_named.value().files[1].expected_sha256, sha256);
}

TEST_F(ResolveSource, ASha256OfNoFileOrOfSeveralIsRefused) {
  dir_.Write("a", "1");
  dir_.Write("b", "2");
  Source stranger = Files(SourceKind::kFiles, {{"a", "a"}});
  stranger.expected.sha256_of["c"] = Sha256();
  Source several = Files(SourceKind::kFiles, {{"a", "a"}, {"b", "b"}});
  several.expected.sha256 = Sha256();

  const auto of_stranger = Resolve(stranger);
  ASSERT_THAT(of_stranger, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(of_stranger.error().message, HasSubstr("names 'c'"));
  const auto of_several = Resolve(several);
  ASSERT_THAT(of_several, FailsWith(Code::kInvalidArgument));
  EXPECT_THAT(of_several.error().message, HasSubstr("there are 2"));
}

}  // namespace
}  // namespace sticky::weights
