// Console: where stickyctl's words go. Facts go to standard output, as text or, with --json, as one
// line of JSON and nothing else; errors and progress go to standard error.
//
// Thread: one thread at a time.

#ifndef STICKY_TOOLS_STICKYCTL_CONSOLE_H_
#define STICKY_TOOLS_STICKYCTL_CONSOLE_H_

#include <string>

#include "tools/client/outcome.h"
#include "tools/stickyctl/progress.h"
#include "tools/stickyctl/render_json.h"

namespace sticky::stickyctl {

class Console {
 public:
  explicit Console(bool json) : json_(json) {}

  bool json() const { return json_; }
  void UseJson(bool json) { json_ = json; }

  // Prints `document` with --json, `text` without.
  void Print(const Json& document, const std::string& text);

  // Words for people beside the facts, on standard error; with --json too. `words`: may hold
  // untrusted text.
  void Note(const std::string& words);

  // False once standard output has not taken something: what goes on printing may as well end.
  bool CanPrint() const;

  // Says what failed, with --json on standard output too, and gives the exit code.
  // document: what is known all the same, told with --json beside the error.
  int Fail(const client::Failed& failed, Json document = Document());
  // As Fail, where the exit code does not follow from `failed`.
  int FailWith(int exit_code, const client::Failed& failed, Json document = Document());

  // Hands everything to the kernel. exit_code, or kExitOutput when standard output did not take it.
  int Finish(int exit_code);

  // On standard error: a bar when that is a terminal.
  Progress MakeProgress() const;
  // As lines on any standard error, where a build's command may write too.
  Progress MakeBuildProgress() const;

 private:
  bool json_;
};

}  // namespace sticky::stickyctl

#endif  // STICKY_TOOLS_STICKYCTL_CONSOLE_H_
