// stickyctl: the command line of a node's states. Picks the command and hands it its options.

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "base/text.h"
#include "tools/client/standard_streams.h"
#include "tools/stickyctl/command_table.h"

namespace sticky::stickyctl {
namespace {

constexpr std::array kTopOptions = {
    OptionSpec{"json", ValueKind::kNone}, OptionSpec{"socket", ValueKind::kRequired},
    OptionSpec{"help", ValueKind::kNone}, OptionSpec{"version", ValueKind::kNone}};

std::string GeneralHelp() {
  std::string text =
      "usage: stickyctl [--socket PATH] [--json] COMMAND ...\n\n"
      "The states of this node's stickyd.\n\n";
  for (const Command& command : Commands()) {
    text += Format("  %-14s  %s\n", std::string(command.name).c_str(), command.summary);
  }
  return text +
         "\n"
         "  --socket PATH  where the daemon listens; else $STICKYINVOC_SOCKET, else\n"
         "                 $XDG_RUNTIME_DIR/stickyinvoc/stickyd.sock, else\n"
         "                 /run/stickyinvoc/stickyd.sock\n"
         "  --json         one line of JSON on standard output, errors too\n"
         "\n"
         "`stickyctl COMMAND --help` says more of one. Exit codes: 0 done, 64 usage, 65 bad\n"
         "template or model, 66 no such file or state, 69 no daemon, 70 a bug, 74 output not\n"
         "written, 75 try again later or elsewhere, 77 not allowed.\n";
}

std::string HelpOf(const Command& command) {
  const std::string details(command.details);
  return Format("usage: stickyctl %s [--socket PATH] [--json]\n\n%s\n%s%s", command.usage,
                command.summary, details.empty() ? "" : "\n", command.details);
}

int UsageError(Console& console, const std::string& what, const std::string& command) {
  const std::string hint =
      command.empty() ? "`stickyctl --help`" : "`stickyctl " + command + " --help`";
  return console.Fail({Stage::kUsage, Error{Code::kInvalidArgument, what + "; see " + hint}});
}

struct Found {
  const Command* command = nullptr;  // null: there is none
  std::size_t word_count = 0;        // of its name
};

// The command whose name `words` begin with.
Found FindCommand(std::span<const std::string> words) {
  const std::string one = words.empty() ? "" : words[0];
  const std::string two = words.size() > 1 ? one + " " + words[1] : one;
  for (const Command& command : Commands()) {
    if (command.name == one) return {&command, 1};
    if (command.name == two) return {&command, 2};
  }
  return {};
}

// The commands of two words whose first one is `word`.
std::vector<const Command*> GroupOf(const std::string& word) {
  std::vector<const Command*> group;
  for (const Command& command : Commands()) {
    if (command.name.starts_with(word + " ")) group.push_back(&command);
  }
  return group;
}

int UnknownCommand(Console& console, std::span<const std::string> words) {
  const std::vector<const Command*> group = GroupOf(words[0]);
  if (!group.empty() && (words.size() == 1 || words[1].starts_with('-'))) {
    std::string choices;
    for (const Command* const command : group) {
      choices += (choices.empty() ? "`" : " or `") + std::string(command->name) + "`";
    }
    return UsageError(console, "'" + words[0] + "' is half a command; want " + choices, words[0]);
  }
  const std::string name = group.empty() ? words[0] : words[0] + " " + words[1];
  std::vector<std::string_view> names;
  for (const Command& command : Commands()) names.push_back(command.name);
  const std::string_view near = NearestWord(name, names.data(), names.size());
  return UsageError(console,
                    "unknown command '" + Escape(name) + "'" +
                        (near.empty() ? "" : "; did you mean '" + std::string(near) + "'?"),
                    "");
}

// `words`: a command, or the first word of some; none: all of them.
int Help(Console& console, std::span<const std::string> words) {
  std::string text;
  if (words.empty()) {
    text = GeneralHelp();
  } else if (const Found found = FindCommand(words); found.command != nullptr) {
    text = HelpOf(*found.command);
  } else if (words.size() == 1) {
    for (const Command* const command : GroupOf(words[0])) {
      text += (text.empty() ? "" : "\n") + HelpOf(*command);
    }
  }
  if (text.empty()) return UnknownCommand(console, words);
  std::fputs(text.c_str(), stdout);
  return kExitOk;
}

// Whether errors are to be JSON too, even those of reading the options.
bool WantsJson(std::span<const std::string> words) {
  const auto end = std::find(words.begin(), words.end(), "--");
  return std::find(words.begin(), end, "--json") != end;
}

int Dispatch(Console& console, std::span<const std::string> words, const Options& top) {
  if (words[0] == "help") return Help(console, words.subspan(1));
  const Found found = FindCommand(words);
  const Command* const command = found.command;
  if (command == nullptr) {
    const bool wants_help = words.size() > 1 && words[1] == "--help";
    return wants_help ? Help(console, words.first(1)) : UnknownCommand(console, words);
  }
  const std::string name(command->name);
  Result<Options> options = Options::Parse(words.subspan(found.word_count), command->grammar);
  if (!options.ok()) return UsageError(console, name + ": " + options.error().message, name);
  if (options.value().Has("help")) return Help(console, words.first(found.word_count));
  if (options.value().Has("socket") && top.Has("socket")) {
    return UsageError(console, "option '--socket' is given twice", name);
  }
  console.UseJson(top.Has("json") || options.value().Has("json"));
  Request request{std::move(options).value(), top.Value("socket")};
  if (request.options.Has("socket")) request.socket = request.options.Value("socket");
  return command->run(request, console);
}

int Main(std::span<const std::string> words) {
  Console console(WantsJson(words));
  const Result<Options> parsed =
      Options::Parse(words, {kTopOptions, 0, "", /*command_follows=*/true});
  if (!parsed.ok()) return console.Finish(UsageError(console, parsed.error().message, ""));
  const Options& top = parsed.value();
  const std::vector<std::string> version = {"version"};
  if (top.Has("help")) return console.Finish(Help(console, top.command()));
  if (top.Has("version")) return console.Finish(Dispatch(console, version, top));
  if (top.command().empty()) {
    return console.Finish(UsageError(console, "the command is missing", ""));
  }
  return console.Finish(Dispatch(console, top.command(), top));
}

}  // namespace
}  // namespace sticky::stickyctl

int main(int argc, char** argv) {
  sticky::client::FillStandardStreams();
  return sticky::stickyctl::Main(std::vector<std::string>(argv + 1, argv + std::max(argc, 1)));
}
