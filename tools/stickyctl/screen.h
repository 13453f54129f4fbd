// Screen: the terminal while a command has all of it. It is as it was before once this is gone.
//
// Thread: one thread at a time; one at a time.
// Source: console_codes(4), termios(3).

#ifndef STICKY_TOOLS_STICKYCTL_SCREEN_H_
#define STICKY_TOOLS_STICKYCTL_SCREEN_H_

#include <string>

#include <termios.h>

#include "tools/stickyctl/render_top.h"

namespace sticky::stickyctl {

class Screen {
 public:
  // Whether standard output is a terminal that can be drawn on.
  static bool IsThere();

  Screen() { Take(); }
  ~Screen() { GiveBack(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Of the terminal, as it is now.
  static PageSize Size();
  // Shows `text`, lines that fit the size, in place of what was there. False: it cannot be written.
  static bool Draw(const std::string& text);

  // Whether standard input gives single keys.
  bool has_keys() const { return has_keys_; }

  // Gives the terminal back, stops this process as Ctrl-Z does, and takes it again when it goes on.
  void Suspend();

 private:
  void Take();
  void GiveBack() const;

  bool has_keys_ = false;
  termios before_{};  // of standard input, when has_keys_
};

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_SCREEN_H_
