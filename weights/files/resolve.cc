#include "weights/files/resolve.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "weights/shard_index.h"
#include "weights/small_file.h"

namespace sticky::weights {
namespace {

constexpr std::size_t kDirectoryEntriesMax = 100'000;
constexpr std::size_t kNamedMax = 10;  // files that one message lists
constexpr std::string_view kSingleName = "model.safetensors";

std::string Quoted(const std::string& path) { return "'" + Escape(path) + "'"; }

Result<std::string> ReadWhole(const OpenFile& file, const std::string& path) {
  if (file.size_bytes > kSmallFileBytesMax) {
    return Error{Code::kInvalidArgument,
                 Format("read %s: %llu bytes, limit %llu", Quoted(path).c_str(),
                        static_cast<unsigned long long>(file.size_bytes),
                        static_cast<unsigned long long>(kSmallFileBytesMax))};
  }
  std::string text(static_cast<std::size_t>(file.size_bytes), '\0');
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t got =
        ::pread(file.fd.get(), text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError("read " + Quoted(path), errno);
    if (got == 0) return Error{Code::kCorrupt, "read " + Quoted(path) + ": it became shorter"};
    done += static_cast<std::size_t>(got);
  }
  return text;
}

bool Exists(const std::string& path) {  // a dangling link does
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

// Names in a directory, sorted.
Result<std::vector<std::string>> ListDirectory(const std::string& path) {
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) return ErrnoError("list " + Quoted(path), errno);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(directory)) {
    if (names.size() == kDirectoryEntriesMax) break;
    names.emplace_back(entry->d_name);
  }
  ::closedir(directory);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> WithEnding(const std::vector<std::string>& names,
                                    std::string_view ending) {
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (name.ends_with(ending)) found.push_back(name);
  }
  return found;
}

std::string Listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kNamedMax; ++i) {
    if (i > 0) text += ", ";
    text += Quoted(names[i]);
  }
  if (names.size() > kNamedMax) text += Format(" and %zu more", names.size() - kNamedMax);
  return text;
}

// models--org--name of the hub's cache: the snapshot that refs/main names. Else `path` itself.
Result<std::string> SnapshotOf(const std::string& path) {
  if (!Exists(path + "/refs") || !Exists(path + "/snapshots")) return path;
  const std::string ref = path + "/refs/main";
  STICKY_ASSIGN(const OpenFile file, OpenRegular(ref, "main", /*is_weights=*/false));
  STICKY_ASSIGN(std::string revision, ReadWhole(file, ref));
  while (!revision.empty() &&
         (revision.back() == '\n' || revision.back() == '\r' || revision.back() == ' ')) {
    revision.pop_back();
  }
  if (!IsPlainFileName(revision)) {
    return Error{Code::kCorrupt,
                 "read " + Quoted(ref) + ": " + Quoted(revision) + " is not a revision's name"};
  }
  const std::string snapshot = path + "/snapshots/" + revision;
  if (!Exists(snapshot)) {
    return Error{Code::kNotFound, "resolve " + Quoted(path) + ": refs/main names " +
                                      Quoted(revision) + ", but " + Quoted(snapshot) +
                                      " is not there: incomplete download?"};
  }
  return snapshot;
}

// Opens every shard, and tells of all that are missing.
Status OpenShards(const std::string& directory, const std::vector<std::string>& names,
                  std::vector<OpenFile>& out) {
  std::string missing;
  for (const std::string& name : names) {
    auto file = OpenRegular(directory + "/" + name, name, /*is_weights=*/true);
    if (file.ok()) {
      out.push_back(std::move(file).value());
    } else if (file.error().code == Code::kNotFound) {
      missing += (missing.empty() ? "" : "; ") + file.error().message;
    } else {
      return file.error();
    }
  }
  if (missing.empty()) return Ok{};
  return Error{Code::kNotFound,
               "resolve " + Quoted(directory) + ": " + std::string(kShardIndexName) +
                   " names shards that are missing: incomplete download? " + missing};
}

// The weight files of a directory: those of the index when there is one (and then nothing else),
// else model.safetensors, else the only safetensors or GGUF file.
Result<std::vector<std::string>> FindWeightFiles(const std::string& directory) {
  STICKY_ASSIGN(const std::vector<std::string> names, ListDirectory(directory));
  if (std::find(names.begin(), names.end(), kShardIndexName) != names.end()) {
    const std::string path = directory + "/" + std::string(kShardIndexName);
    STICKY_ASSIGN(const OpenFile file,
                  OpenRegular(path, std::string(kShardIndexName), /*is_weights=*/false));
    STICKY_ASSIGN(const std::string text, ReadWhole(file, path));
    STICKY_ASSIGN(ShardIndex index, ParseShardIndex(text));
    return std::move(index.shards);
  }
  if (std::find(names.begin(), names.end(), kSingleName) != names.end()) {
    return std::vector<std::string>{std::string(kSingleName)};
  }
  std::vector<std::string> found = WithEnding(names, ".safetensors");
  if (found.empty()) found = WithEnding(names, ".gguf");
  if (found.size() == 1) return found;
  if (found.size() > 1) {
    return Error{
        Code::kInvalidArgument,
        Format("resolve %s: %zu weight files and no %s: name one of ", Quoted(directory).c_str(),
               found.size(), std::string(kShardIndexName).c_str()) +
            Listed(found)};
  }
  const std::vector<std::string> pickles = WithEnding(names, ".bin");
  return Error{Code::kInvalidArgument,
               "resolve " + Quoted(directory) + ": no model in it; looked for " +
                   std::string(kShardIndexName) + ", *.safetensors and *.gguf" +
                   (pickles.empty() ? ""
                                    : "; there are PyTorch files (" + Listed(pickles) +
                                          "), which are not read: convert them")};
}

Result<std::vector<OpenFile>> ResolveDirectory(const std::string& path) {
  STICKY_ASSIGN(const std::string directory, SnapshotOf(path));
  STICKY_ASSIGN(const std::vector<std::string> weight_files, FindWeightFiles(directory));
  std::vector<OpenFile> files;
  STICKY_TRY(OpenShards(directory, weight_files, files));
  if (weight_files[0].ends_with(".gguf")) return files;  // has everything in it
  for (const std::string_view name : SmallFileNames()) {
    const std::string small = directory + "/" + std::string(name);
    if (!Exists(small)) continue;
    STICKY_ASSIGN(OpenFile file, OpenRegular(small, std::string(name), /*is_weights=*/false));
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

Result<std::vector<OpenFile>> ResolveModel(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    return Error{Code::kInvalidArgument, "resolve a model: its path is empty or has a NUL in it"};
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return OpenError(path, errno);
  if (S_ISDIR(status.st_mode)) return ResolveDirectory(path);
  const std::size_t slash = path.rfind('/');
  std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  STICKY_ASSIGN(OpenFile file, OpenRegular(path, std::move(name), /*is_weights=*/true));
  std::vector<OpenFile> files;
  files.push_back(std::move(file));
  return files;
}

}  // namespace sticky::weights
