#include "tools/sticky-llm/verdict_file.h"

#include <cerrno>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"

namespace sticky::llm {
namespace {

Status WriteAll(int fd, std::string_view bytes, const std::string& doing) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoError(doing, errno);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return Ok{};
}

Result<std::string> ReadAll(int fd, const std::string& doing) {
  std::string text;
  char buffer[1 << 16];
  for (off_t at = 0;;) {
    const ssize_t count = ::pread(fd, buffer, sizeof buffer, at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoError(doing, errno);
    if (count == 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
    at += count;
  }
}

}  // namespace

Result<VerdictFile> VerdictFile::Open(const std::string& output_path,
                                      const std::string& belongs_to) {
  const std::string path = output_path + ".partial";
  const std::string doing = "write '" + Escape(path) + "'";
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd.valid()) return ErrnoError(doing, errno);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error{Code::kUnavailable, doing + ": another run is writing it", errno};
  }
  VerdictFile file(output_path, std::move(fd));
  STICKY_TRY(file.ReadEarlier(belongs_to + "\n"));
  return file;
}

Status VerdictFile::ReadEarlier(const std::string& header) {
  const std::string doing = "resume '" + Escape(PartialPath()) + "'";
  header_bytes_ = header.size();
  STICKY_ASSIGN(const std::string text, ReadAll(fd_.get(), doing));
  if (header.starts_with(text)) {  // new, or cut off within its first line
    if (::ftruncate(fd_.get(), 0) != 0) return ErrnoError(doing, errno);
    return WriteAll(fd_.get(), header, doing);
  }
  if (!text.starts_with(header)) {
    return Error{Code::kInvalidArgument,
                 doing +
                     ": it belongs to another input, model or prompt; remove it, or choose "
                     "another output"};
  }
  std::size_t begin = header.size();
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    Result<Verdict> verdict = ParseVerdict(std::string_view(text).substr(begin, end - begin));
    if (!verdict.ok()) {
      return Error{Code::kInvalidArgument,
                   Format("%s: line %zu: %s; remove the file to start over", doing.c_str(),
                          earlier_.size() + 2, verdict.error().message.c_str())};
    }
    earlier_.push_back(std::move(verdict).value());
  }
  if (::ftruncate(fd_.get(), static_cast<off_t>(begin)) != 0) return ErrnoError(doing, errno);
  return Ok{};
}

Status VerdictFile::Append(const std::string& lines) {
  return WriteAll(fd_.get(), lines, "write '" + Escape(PartialPath()) + "'");
}

Status VerdictFile::Finish() {
  const std::string temporary = output_path_ + ".tmp";
  const std::string doing = "write '" + Escape(output_path_) + "'";
  STICKY_ASSIGN(const std::string text, ReadAll(fd_.get(), doing));
  const UniqueFd out(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!out.valid()) return ErrnoError(doing, errno);
  STICKY_TRY(WriteAll(out.get(), std::string_view(text).substr(header_bytes_), doing));
  if (::fsync(out.get()) != 0) return ErrnoError(doing, errno);
  if (::rename(temporary.c_str(), output_path_.c_str()) != 0) return ErrnoError(doing, errno);
  if (::unlink(PartialPath().c_str()) != 0) return ErrnoError(doing, errno);
  return Ok{};
}

}  // namespace sticky::llm
