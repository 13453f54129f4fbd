#include "tools/stickyctl/command_table.h"

#include <array>

namespace sticky::stickyctl {
namespace {

constexpr OptionSpec kJson{"json", ValueKind::kNone};
constexpr OptionSpec kSocket{"socket", ValueKind::kRequired};
constexpr OptionSpec kHelp{"help", ValueKind::kNone};
constexpr OptionSpec kWait{"wait", ValueKind::kOptional};
constexpr OptionSpec kTensors{"tensors", ValueKind::kNone};
constexpr OptionSpec kCheckSources{"check-sources", ValueKind::kNone};
constexpr OptionSpec kState{"state", ValueKind::kRequired};
constexpr OptionSpec kName{"name", ValueKind::kRequired};
constexpr OptionSpec kBase{"base", ValueKind::kRequired};
constexpr OptionSpec kTemplate{"template", ValueKind::kRequired};
constexpr OptionSpec kAsFile{"as-file", ValueKind::kRepeated};
constexpr OptionSpec kSha256{"sha256", ValueKind::kNone};
constexpr OptionSpec kOutput{"output", ValueKind::kRequired};
constexpr OptionSpec kReplace{"replace", ValueKind::kNone};
constexpr OptionSpec kInPlace{"in-place", ValueKind::kNone};
constexpr OptionSpec kKeepStates{"keep-states", ValueKind::kNone};
constexpr OptionSpec kDropStates{"drop-states", ValueKind::kNone};
constexpr OptionSpec kResume{"resume", ValueKind::kNone};
constexpr OptionSpec kFollow{"follow", ValueKind::kNone};
constexpr OptionSpec kAfter{"after", ValueKind::kRequired};
constexpr OptionSpec kInterval{"interval", ValueKind::kRequired};
constexpr OptionSpec kOnce{"once", ValueKind::kNone};

constexpr std::array kPlainOptions = {kJson, kSocket, kHelp};
constexpr std::array kWaitOptions = {kJson, kSocket, kHelp, kWait};
constexpr std::array kLoadOptions = {kJson, kSocket, kHelp, kWait, kReplace, kInPlace};
constexpr std::array kDrainOptions = {kJson, kSocket, kHelp, kWait, kResume};
constexpr std::array kShutdownOptions = {kJson, kSocket, kHelp, kKeepStates, kDropStates};
constexpr std::array kEventsOptions = {kJson, kSocket, kHelp, kFollow, kAfter};
constexpr std::array kTopOptions = {kJson, kSocket, kHelp, kInterval, kOnce};
constexpr std::array kListOptions = {kJson, kSocket, kHelp, kCheckSources};
constexpr std::array kShowOptions = {kJson, kSocket, kHelp, kTensors};
constexpr std::array kRunOptions = {kJson, kSocket, kHelp, kWait, kState, kTemplate, kAsFile};
constexpr std::array kBuildOptions = {kJson, kSocket,   kHelp,    kWait,   kName,
                                      kBase, kTemplate, kReplace, kInPlace};
constexpr std::array kCheckOptions = {kJson, kSocket, kHelp, kSha256};
constexpr std::array kInitOptions = {kJson, kSocket, kHelp, kOutput};

const std::array kCommands = {
    Command{"load",
            "load TEMPLATE [--replace | --in-place] [--wait[=SECONDS]]",
            "build the state a template describes",
            "Opens the model's files with your own rights and hands them to the daemon. Without\n"
            "--wait it ends as soon as the daemon has taken the load on; with it, when the state\n"
            "is ready, showing progress on standard error: the place in the queue for memory,\n"
            "then bytes. Without a number --wait means 600 s; past it the load goes on (one that\n"
            "is still queued ends) and the exit code is 75. Ending a waiting load with Ctrl-C\n"
            "cancels it, unless somebody else waits for it too. Loading a template whose state is\n"
            "there or under way joins it: two loads of one template are one load.\n"
            "--replace builds a new state beside one of the same name, which drains once the new\n"
            "one is ready; --in-place drains the old one first, for when both do not fit.\n",
            {kLoadOptions, 1, "TEMPLATE"},
            Load},
    Command{"ls",
            "ls [--check-sources]",
            "list the states of this node",
            "Phases: queued (for its turn or for memory), planning, filling, ready, draining\n"
            "(evicted, still leased), closing (no lease, but still mapped by somebody), failed\n"
            "(kept a while to say why); closed: drained, takes no new leases. KEPT: pin, held (by\n"
            "a sticky task), idle TIME (goes when unused for so long), ttl TIME (goes after it).\n"
            "--check-sources also looks whether the files that each was loaded from have changed\n"
            "since, which takes as long as their file systems take.\n",
            {kListOptions, 0, ""},
            Ls},
    Command{"show",
            "show NAME [--tensors]",
            "everything about one state, and who uses it",
            "Also its owner and policy, when it was used last, the leases on it, whether the\n"
            "files that it was loaded from have changed since (stale: the state is a copy and\n"
            "stays what it was), and what its loader noted: which of two heads was taken, why\n"
            "there is no tokenizer. --tensors adds its tensors and assets.\n",
            {kShowOptions, 1, "NAME"},
            Show},
    Command{"status",
            "status",
            "the daemon: memory, limits, socket, whether it is drained",
            "",
            {kPlainOptions, 0, ""},
            ShowStatus},
    Command{"leases", "leases", "who uses which state", "", {kPlainOptions, 0, ""}, Leases},
    Command{"top",
            "top [--interval SECONDS] [--once]",
            "watch the node: memory, loads, states by use",
            "On a terminal a page that is drawn anew every two seconds, or every SECONDS (0.1 and\n"
            "more); `q` or Ctrl-C ends it. With --once, or when standard output is no terminal,\n"
            "one page and the end. With --json the same facts, once.\n",
            {kTopOptions, 0, ""},
            Top},
    Command{
        "events",
        "events [--follow] [--after N]",
        "what happened on this node",
        "Loads, evictions, leases, drains, refusals: your own, and those of states that you may\n"
        "use. --after N leaves out the events up to number N. --follow prints also what comes,\n"
        "until SIGTERM, SIGINT or SIGHUP (exit code 0) or until the daemon goes away (69).\n"
        "With --json each event is a line of its own, made for `jq` and for logs.\n",
        {kEventsOptions, 0, ""},
        Events},
    Command{"hold",
            "hold TEMPLATE [--wait[=SECONDS]]",
            "build a state and keep it while this runs (a sticky task)",
            "Prints one line when the state is ready, then stays until SIGTERM, SIGINT or SIGHUP\n"
            "and exits with 0. A state that was built by holds is evicted when the last hold\n"
            "ends. If the daemon goes away, the exit code is 69.\n",
            {kWaitOptions, 1, "TEMPLATE"},
            Hold},
    Command{"run",
            "run [--state NAME] [--as-file KEY=STATE/FILE]... [--template FILE] [--wait[=SECONDS]] "
            "-- COMMAND...",
            "run a command that has the state's lease",
            "Attaches, then becomes COMMAND, which inherits the lease: nothing can evict the\n"
            "state in between. libstickyinvoc finds it by itself; STICKYINVOC_STATE and\n"
            "STICKYINVOC_SOCKET are set. --template builds the state first when it is not there;\n"
            "without --state, the state is the one that the template names.\n"
            "--as-file lends a file of a file state (source.files of a template): {KEY} in\n"
            "COMMAND's words becomes a path that any program can open, and so is\n"
            "STICKYINVOC_FILE_KEY. --state may be left out when they are all of one state.\n"
            "The lease ends with the last process that has the descriptors: COMMAND or a child\n"
            "that it left behind. The exit code is COMMAND's own; 127 when there is no such\n"
            "command, 126 when it cannot be executed.\n",
            {kRunOptions, 0, "COMMAND", /*command_follows=*/true},
            Run},
    Command{"build",
            "build [--name NAME] [--template FILE] [--base STATE] [--replace | --in-place] "
            "[--wait[=SECONDS]] -- COMMAND...",
            "run a command that makes a state (a builder)",
            "COMMAND uses sti_build_begin of libstickyinvoc: it gets memory of the node, fills it\n"
            "and commits. The exit code is 0 only when the state that this COMMAND made has been\n"
            "published, or when a state of that name and recipe (name, --base and its content,\n"
            "COMMAND's words) is there: then nothing is run. --template gives lifetime, priority,\n"
            "access, labels and max_leases; it has no source. --base names a state that the new\n"
            "one is derived from and keeps; COMMAND finds its name in STICKYINVOC_BASE.\n"
            "--wait: for somebody else who builds NAME or --base right now, and that the memory\n"
            "for COMMAND may wait for room at least so long. --replace and --in-place: as load.\n"
            "SIGTERM, SIGINT and SIGHUP are passed on to COMMAND, which gets SIGTERM when\n"
            "stickyctl itself is killed. With --json, what COMMAND prints goes to standard\n"
            "error. Its own exit code is passed on, 128 + N when signal N ended it; 65 when it\n"
            "ended with 0 and published nothing; 127 when there is no such command, 126 when it\n"
            "cannot be executed.\n",
            {kBuildOptions, 0, "COMMAND", /*command_follows=*/true},
            Build},
    Command{"evict",
            "evict NAME [--wait[=SECONDS]]",
            "end a state and free its memory",
            "A state that is in use drains: it takes no new leases and goes with its last one.\n"
            "With --wait the exit code is 75 when it is still there at the end. A hold (a sticky\n"
            "task) keeps it until that ends; who holds it is told.\n",
            {kWaitOptions, 1, "NAME"},
            Evict},
    Command{"drain",
            "drain [NAME] [--resume] [--wait[=SECONDS]]",
            "let nobody new in: to one state, or to the node",
            "A drained state takes no new leases, a drained node (without NAME; for the node's\n"
            "owner) no new leases and no new loads. Who has a lease keeps it, and nothing is\n"
            "freed: `stickyctl evict` does that. --wait waits until no lease is left; the exit\n"
            "code is 75 when some are, and they are told. --resume ends a drain.\n",
            {kDrainOptions, 1, "NAME", /*command_follows=*/false, /*last_is_optional=*/true},
            Drain},
    Command{
        "budget",
        "budget SIZE [--wait[=SECONDS]]",
        "set how much memory this node's states may have",
        "For the node's owner; it starts with memory.host of the node config, and a daemon that\n"
        "takes over states takes over the budget. Below what is used, states that nobody uses are "
        "evicted; what is in use\n"
        "goes with its last lease, what is pinned stays, and nothing is loaded until the rest\n"
        "fits. With --wait the exit code is 75 when that did not happen in time.\n",
        {kWaitOptions, 1, "SIZE"},
        SetBudget},
    Command{"shutdown",
            "shutdown [--keep-states|--drop-states]",
            "end the daemon, with its states or without",
            "For the node's owner. --drop-states, the default, ends the states with it. With\n"
            "--keep-states its keeper (sticky-keeper, systemd) starts the next daemon, which\n"
            "takes them over without reading a file: the way to a newer stickyd. Whoever has\n"
            "mapped a state keeps that, but has no lease any more. Exit code 75 when nothing\n"
            "keeps them.\n",
            {kShutdownOptions, 0, ""},
            Shutdown},
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
    Command{"template ls",
            "template ls",
            "the templates that are installed on this node",
            "Those that you may use, and when each is built: on-demand (when somebody attaches to\n"
            "the state, or `run`s on it, and it is not there), at-start (of the daemon), manual\n"
            "(by `stickyctl load`). The node's owner is also told what is wrong with others.\n",
            {kPlainOptions, 0, ""},
            TemplateLs},
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

}  // namespace

std::span<const Command> Commands() { return kCommands; }

}  // namespace sticky::stickyctl
