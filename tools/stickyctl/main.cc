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
#include "tools/stickyctl/commands.h"

namespace sticky::stickyctl {
namespace {

constexpr OptionSpec kJson{"json", ValueKind::kNone};
constexpr OptionSpec kSocket{"socket", ValueKind::kRequired};
constexpr OptionSpec kHelp{"help", ValueKind::kNone};
constexpr OptionSpec kVersion{"version", ValueKind::kNone};
constexpr OptionSpec kWait{"wait", ValueKind::kOptional};
constexpr OptionSpec kTensors{"tensors", ValueKind::kNone};
constexpr OptionSpec kCheckSources{"check-sources", ValueKind::kNone};
constexpr OptionSpec kState{"state", ValueKind::kRequired};
constexpr OptionSpec kTemplate{"template", ValueKind::kRequired};
constexpr OptionSpec kAsFile{"as-file", ValueKind::kRepeated};
constexpr OptionSpec kSha256{"sha256", ValueKind::kNone};
constexpr OptionSpec kOutput{"output", ValueKind::kRequired};

constexpr std::array kTopOptions = {kJson, kSocket, kHelp, kVersion};
constexpr std::array kPlainOptions = {kJson, kSocket, kHelp};
constexpr std::array kWaitOptions = {kJson, kSocket, kHelp, kWait};
constexpr std::array kListOptions = {kJson, kSocket, kHelp, kCheckSources};
constexpr std::array kShowOptions = {kJson, kSocket, kHelp, kTensors};
constexpr std::array kRunOptions = {kJson, kSocket, kHelp, kWait, kState, kTemplate, kAsFile};
constexpr std::array kCheckOptions = {kJson, kSocket, kHelp, kSha256};
constexpr std::array kInitOptions = {kJson, kSocket, kHelp, kOutput};

struct Command {
  std::string_view name;  // one word, or two: "template check"
  const char* usage;      // after "stickyctl "
  const char* summary;    // one line
  const char* details;
  Grammar grammar;
  int (*run)(const Request&, Console&);
};

const std::array kCommands = {
    Command{"load",
            "load TEMPLATE [--wait[=SECONDS]]",
            "build the state a template describes",
            "Opens the model's files with your own rights and hands them to the daemon. Without\n"
            "--wait it ends as soon as the daemon has taken the load on; with it, when the state\n"
            "is ready, showing progress on standard error. Without a number --wait means 600 s;\n"
            "past it the load goes on and the exit code is 75. Ending a waiting load with Ctrl-C\n"
            "cancels it, unless somebody else waits for it too. Loading a template whose state is\n"
            "there or under way joins it: two loads of one template are one load.\n",
            {kWaitOptions, 1, "TEMPLATE"},
            Load},
    Command{"ls",
            "ls [--check-sources]",
            "list the states of this node",
            "Phases: planning, filling, ready, draining (evicted, still leased), closing (no\n"
            "lease, but still mapped by somebody), failed (kept a while to say why).\n"
            "--check-sources also looks whether the files that each was loaded from have changed\n"
            "since, which takes as long as their file systems take.\n",
            {kListOptions, 0, ""},
            Ls},
    Command{"show",
            "show NAME [--tensors]",
            "everything about one state",
            "Also whether the files that it was loaded from have changed since (stale: the state\n"
            "is a copy and stays what it was), and what its loader noted: which of two heads was\n"
            "taken, why there is no tokenizer. --tensors adds its tensors and assets.\n",
            {kShowOptions, 1, "NAME"},
            Show},
    Command{"status",
            "status",
            "the daemon: memory, limits, socket",
            "",
            {kPlainOptions, 0, ""},
            ShowStatus},
    Command{"leases", "leases", "who uses which state", "", {kPlainOptions, 0, ""}, Leases},
    Command{"hold",
            "hold TEMPLATE [--wait[=SECONDS]]",
            "build a state and keep it while this runs (a sticky task)",
            "Prints one line when the state is ready, then stays until SIGTERM, SIGINT or SIGHUP\n"
            "and exits with 0. A state that was built by holds is evicted when the last hold\n"
            "ends. If the daemon goes away, the exit code is 69.\n",
            {kWaitOptions, 1, "TEMPLATE"},
            Hold},
    Command{"run",
            "run --state NAME [--as-file KEY=STATE/FILE]... [--template FILE] [--wait[=SECONDS]] "
            "-- COMMAND...",
            "run a command that has the state's lease",
            "Attaches, then becomes COMMAND, which inherits the lease: nothing can evict the\n"
            "state in between. libstickyinvoc finds it by itself; STICKYINVOC_STATE and\n"
            "STICKYINVOC_SOCKET are set. --template builds the state first when it is not there.\n"
            "--as-file lends a file of a file state (source.files of a template): {KEY} in\n"
            "COMMAND's words becomes a path that any program can open, and so is\n"
            "STICKYINVOC_FILE_KEY. --state may be left out when they are all of one state.\n"
            "The lease ends with the last process that has the descriptors: COMMAND or a child\n"
            "that it left behind. The exit code is COMMAND's own; 127 when there is no such\n"
            "command, 126 when it cannot be executed.\n",
            {kRunOptions, 0, "COMMAND", /*command_follows=*/true},
            Run},
    Command{"evict",
            "evict NAME [--wait[=SECONDS]]",
            "end a state and free its memory",
            "A state that is in use drains: it takes no new leases and goes with its last one.\n"
            "With --wait the exit code is 75 when it is still there at the end.\n",
            {kWaitOptions, 1, "NAME"},
            Evict},
    Command{"doctor",
            "doctor",
            "what is wrong on this node, and what to do about it",
            "Looks at the socket, the daemon, memory and its limits, huge pages, limits of\n"
            "processes and features of the kernel; says first what is wrong and what to do, then\n"
            "what was found. It changes nothing. Exit codes: 0 when nothing is a problem; 69 when\n"
            "no daemon answers (77: it is another user's); 75 when there is another problem.\n",
            {kPlainOptions, 0, ""},
            Doctor},
    Command{"template check",
            "template check FILE [--sha256]",
            "check a template and plan its load, without loading",
            "Reads the template, opens the files that it names and reads their headers, as a load\n"
            "would, and tells what the load would give: tensors, dtypes, notes, memory; and, when\n"
            "a daemon answers, whether that fits its budget (exit code 75 when it does not).\n"
            "--sha256 also reads the files whole: it tells the SHA-256 of each, and compares them\n"
            "with source.expect.sha256. No daemon is needed, and nothing is loaded.\n",
            {kCheckOptions, 1, "FILE"},
            TemplateCheck},
    Command{"template init",
            "template init MODEL [--output FILE]",
            "write a template for a model",
            "Looks at the model's files and writes a template with comments that say what was\n"
            "found and what every other key would be, to standard output or to FILE, which must\n"
            "not be there yet. MODEL: a weight file or a folder, as source.path of a template.\n",
            {kInitOptions, 1, "MODEL"},
            TemplateInit},
    Command{"config check",
            "config check FILE",
            "check a node config and tell every value in force",
            "The file is read as `stickyd --config FILE` would, with your own rights; no daemon\n"
            "is asked.\n",
            {kPlainOptions, 1, "FILE"},
            ConfigCheck},
    Command{"version",
            "version",
            "the version of this program and of the daemon",
            "",
            {kPlainOptions, 0, ""},
            Version},
};

std::string GeneralHelp() {
  std::string text =
      "usage: stickyctl [--socket PATH] [--json] COMMAND ...\n\n"
      "The states of this node's stickyd.\n\n";
  for (const Command& command : kCommands) {
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
  for (const Command& command : kCommands) {
    if (command.name == one) return {&command, 1};
    if (command.name == two) return {&command, 2};
  }
  return {};
}

// The commands of two words whose first one is `word`.
std::vector<const Command*> GroupOf(const std::string& word) {
  std::vector<const Command*> group;
  for (const Command& command : kCommands) {
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
  for (const Command& command : kCommands) names.push_back(command.name);
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
