#include "tools/stickyctl/screen.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include <sys/ioctl.h>
#include <unistd.h>

namespace sticky::stickyctl {
namespace {

// The alternate screen, without a cursor and without wrapping; and all of it back.
constexpr std::string_view kTake = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr std::string_view kGiveBack = "\x1b[?7h\x1b[?25h\x1b[?1049l";

bool Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace

bool Screen::IsThere() {
  const char* const terminal = std::getenv("TERM");
  const bool can_draw = terminal != nullptr && std::string_view(terminal) != "dumb";
  return can_draw && ::isatty(STDOUT_FILENO) == 1;
}

PageSize Screen::Size() {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  if (!known || size.ws_col == 0 || size.ws_row == 0) return {80, 24};
  return {size.ws_col, size.ws_row};
}

bool Screen::Draw(const std::string& text) {
  std::string drawn = "\x1b[H";  // to the upper left
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    // Each line is cleared to its end. After the last one nothing moves on, which would scroll.
    drawn += text.substr(at, end - at) + "\x1b[K";
    at = end == std::string::npos ? text.size() : end + 1;
    if (at < text.size()) drawn += "\r\n";
  }
  return Write(drawn + "\x1b[J");
}

void Screen::Take() {
  has_keys_ = ::tcgetattr(STDIN_FILENO, &before_) == 0;
  if (has_keys_) {
    termios keys = before_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    keys.c_cc[VMIN] = 0;  // reading never waits
    keys.c_cc[VTIME] = 0;
    has_keys_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
  }
  static_cast<void>(Write(kTake));
}

void Screen::GiveBack() const {
  static_cast<void>(Write(kGiveBack));
  if (has_keys_) static_cast<void>(::tcsetattr(STDIN_FILENO, TCSANOW, &before_));
}

void Screen::Suspend() {
  GiveBack();
  ::raise(SIGSTOP);
  Take();
}

}  // namespace sticky::stickyctl
