#include "daemon/io/requester_process.h"

#include <cerrno>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/exit_codes.h"
#include "base/text.h"

namespace sticky::daemon {
namespace {

constexpr int kSignalBase = 128;

// The reverse of ExitCode, as far as a requester's failure tells one.
Code CodeOf(int status) {
  switch (status) {
    case kExitBadInput:
      return Code::kCorrupt;
    case kExitNoInput:
      return Code::kNotFound;
    case kExitNotAllowed:
      return Code::kPermissionDenied;
    case kExitTryAgain:
    case kExitNoDaemon:
      return Code::kUnavailable;
    default:
      return status > kSignalBase ? Code::kUnavailable : Code::kInternal;
  }
}

// What is in a pipe whose writer has ended; a message is shorter than the least pipe.
std::string ReadWords(const UniqueFd& words) {
  constexpr std::size_t kWordsMax = 4096;
  std::string text(kWordsMax, '\0');
  const ssize_t size_bytes = ::read(words.get(), text.data(), text.size());
  text.resize(size_bytes > 0 ? static_cast<std::size_t>(size_bytes) : 0);
  while (text.ends_with('\n')) text.pop_back();
  constexpr std::string_view kName = "stickyctl: ";
  return text.starts_with(kName) ? text.substr(kName.size()) : text;
}

Status EndOf(int status, const UniqueFd& words) {
  if (status == kExitOk) return Ok{};
  const std::string text = ReadWords(words);
  if (!text.empty()) return Error{CodeOf(status), text};
  if (status > kSignalBase) {
    return Error{CodeOf(status),
                 Format("its requester was killed (signal %d)", status - kSignalBase)};
  }
  return Error{CodeOf(status), Format("its requester ended with status %d and no word", status)};
}

}  // namespace

Result<std::unique_ptr<RequesterProcess>> RequesterProcess::Start(
    Loop& loop, const Options& options, std::function<void(const Status& ended)> on_gone) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return ErrnoError("make a pipe to a requester", errno);
  }
  std::unique_ptr<RequesterProcess> made(new RequesterProcess);
  made->words_ = UniqueFd(ends[0]);
  Child::Command command;
  command.program = options.program;
  command.arguments = {"--socket", options.socket_path, "load", "--", options.template_path};
  command.error_output = UniqueFd(ends[1]);
  RequesterProcess* const raw = made.get();
  STICKY_ASSIGN(made->child_, Child::Spawn(loop, std::move(command),
                                           [raw, on_gone = std::move(on_gone)](int status) {
                                             on_gone(EndOf(status, raw->words_));
                                           }));
  return made;
}

}  // namespace sticky::daemon
