#include "tools/stickyctl/console.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/text.h"

namespace sticky::stickyctl {
namespace {

void Write(std::FILE* stream, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);  // a reader of a pipe sees it now: `hold` prints and then stays
}

}  // namespace

void Console::Print(const Json& document, const std::string& text) {
  Write(stdout, json_ ? Dump(document) + "\n" : text);
}

void Console::Note(const std::string& words) {
  Write(stderr, "stickyctl: " + Printable(words) + "\n");
}

bool Console::CanPrint() const { return std::ferror(stdout) == 0; }

int Console::FailWith(int exit_code, const client::Failed& failed, Json document) {
  Note(failed.error.message);
  if (json_) {
    document.update(ErrorJson(failed));
    document["error"]["exit_code"] = exit_code;
    Write(stdout, Dump(document) + "\n");
  }
  return exit_code;
}

int Console::Fail(const client::Failed& failed, Json document) {
  return FailWith(failed.exit_code(), failed, std::move(document));
}

int Console::Finish(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): stickyctl has one thread.
  std::fprintf(stderr, "stickyctl: write to standard output: %s\n", std::strerror(errno));
  return exit_code == kExitOk ? kExitOutput : exit_code;
}

Progress Console::MakeProgress() const {
  Progress::Look look;
  const char* const terminal = std::getenv("TERM");
  const bool can_redraw = terminal != nullptr && std::string_view(terminal) != "dumb";
  look.bar = can_redraw && ::isatty(STDERR_FILENO) == 1;
  winsize size{};
  if (look.bar && ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    look.columns = size.ws_col;
  }
  return Progress(look, [](const std::string& text) { Write(stderr, text); });
}

Progress Console::MakeBuildProgress() const {
  return Progress({.bar = false, .verb = "build"},
                  [](const std::string& text) { Write(stderr, text); });
}

}  // namespace sticky::stickyctl
