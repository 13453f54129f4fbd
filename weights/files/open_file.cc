#include "weights/files/open_file.h"

#include <cerrno>
#include <climits>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

namespace sticky::weights {
namespace {

std::string Quoted(const std::string& path) { return "'" + Escape(path) + "'"; }

// The SHA-256 that the file's own name gives, where the hub's cache keeps it: .../blobs/<64
// digits>. Asked of the descriptor, so that it is this file's name whatever links led to it.
std::optional<Sha256> BlobSha256(int fd) {
  char target[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = ::readlink(link.c_str(), target, sizeof target);
  if (length <= 0) return std::nullopt;
  const std::string_view path(target, static_cast<std::size_t>(length));
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos || !path.substr(0, slash).ends_with("/blobs")) {
    return std::nullopt;
  }
  const Result<Sha256> sha256 = Sha256FromHex(path.substr(slash + 1));
  return sha256.ok() ? std::optional<Sha256>(sha256.value()) : std::nullopt;
}

}  // namespace

Error OpenError(const std::string& path, int errno_value) {
  char target[PATH_MAX];
  const ssize_t length = ::readlink(path.c_str(), target, sizeof target);
  if (errno_value == ENOENT && length > 0) {
    const std::string to(target, static_cast<std::size_t>(length));
    return Error{Code::kNotFound,
                 "open " + Quoted(path) + ": it is a link to " + Quoted(to) +
                     ", which is not there: incomplete download?",
                 ENOENT};
  }
  return ErrnoError("open " + Quoted(path), errno_value);
}

Result<OpenFile> OpenRegular(const std::string& path, std::string name, bool is_weights) {
  OpenFile file;
  file.name = std::move(name);
  file.is_weights = is_weights;
  // O_NONBLOCK: a FIFO would make open(2) wait for a writer.
  file.fd.Reset(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (!file.fd.valid()) return OpenError(path, errno);
  struct stat status {};
  if (::fstat(file.fd.get(), &status) != 0) return ErrnoError("stat " + Quoted(path), errno);
  if (!S_ISREG(status.st_mode)) {
    return Error{Code::kInvalidArgument,
                 "open " + Quoted(path) + ": it is " +
                     (S_ISDIR(status.st_mode) ? "a directory" : "not a regular file")};
  }
  file.size_bytes = static_cast<std::uint64_t>(status.st_size);
  file.modified_ns = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  file.blob_sha256 = BlobSha256(file.fd.get());
  return file;
}

}  // namespace sticky::weights
