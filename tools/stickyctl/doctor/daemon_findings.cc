// Where the daemon is, whether it answers, and whether the programs are of one version.

#include "base/text.h"
#include "tools/stickyctl/doctor/findings.h"

namespace sticky::stickyctl {
namespace {

using Kind = FileFacts::Kind;

constexpr std::uint32_t kGroupOrOthersMayWrite = 0022;
constexpr const char* kStart =
    "start one: `systemctl --user start stickyd.socket`, or `stickyd` in the job";

std::string Quoted(const std::string& text) { return "'" + Escape(text) + "'"; }

// Where else a daemon may be meant, for the end of a remedy.
std::string Elsewhere(const SocketFacts& socket) {
  if (socket.others.empty()) return {};
  const SocketPlace& other = socket.others.front();
  return "; there is a socket at " + Quoted(other.path) + " (" + other.named_by +
         "): --socket names it";
}

Finding NoDaemon(const NodeFacts& facts) {
  const SocketFacts& socket = facts.socket;
  const std::string at = Quoted(socket.chosen.path);
  const Error& failure = *facts.daemon.failure;
  Finding finding{Level::kProblem, "daemon", Printable(failure.message), {}};
  if (failure.code == Code::kInvalidArgument) {
    finding.remedy = "name a shorter path with --socket or $STICKYINVOC_SOCKET";
  } else if (failure.code == Code::kPermissionDenied) {
    finding.remedy =
        "it is for others (who runs it can let you in: access.socket, access.users "
        "of its node config); at a path of your own, " +
        std::string(kStart) + Elsewhere(socket);
  } else if (socket.file.kind == Kind::kNone) {
    finding.found = "no daemon listens at " + at + ": nothing is there";
    finding.remedy = kStart + Elsewhere(socket);
  } else if (socket.file.kind != Kind::kSocket) {
    finding.found = "no daemon listens at " + at + ": what is there is no socket";
    finding.remedy = "move it away, or name another path with --socket or $STICKYINVOC_SOCKET";
  } else if (facts.daemon.exit_code == kExitNoDaemon) {
    finding.remedy = std::string(kStart) + "; it replaces what a dead one left" + Elsewhere(socket);
  } else {
    finding.remedy = "see the daemon's log: `journalctl --user -u stickyd`, or its output";
  }
  return finding;
}

void CheckFolder(const NodeFacts& facts, std::vector<Finding>& findings) {
  const SocketFacts& socket = facts.socket;
  const FileFacts& folder = socket.folder_file;
  if (folder.kind == Kind::kNone) return;  // nothing listens there, which is said already
  const std::string at = Quoted(socket.folder);
  const std::string own = "use a folder of your own with mode 0700: --socket, $STICKYINVOC_SOCKET";
  if (folder.kind != Kind::kFolder) {
    findings.push_back({Level::kProblem, "folder",
                        at + " is no folder (a link, or a file): stickyd refuses it", own});
  } else if ((folder.mode & kGroupOrOthersMayWrite) != 0) {
    findings.push_back({Level::kProblem, "folder",
                        Format("others may write to %s (mode %04o): they could replace the socket, "
                               "and stickyd refuses it",
                               at.c_str(), folder.mode),
                        own});
  } else if (folder.uid != facts.uid && folder.uid != 0 && folder.uid != socket.file.uid) {
    findings.push_back({Level::kWarning, "folder",
                        Format("%s belongs to user %u: a daemon of yours cannot listen there",
                               at.c_str(), folder.uid),
                        own});
  } else {
    findings.push_back({Level::kOk,
                        "folder",
                        Format("%s, of user %u, mode %04o", at.c_str(), folder.uid, folder.mode),
                        {}});
  }
}

// What becomes of the states when the daemon dies.
void CheckKeeper(const DaemonFacts& daemon, std::vector<Finding>& findings) {
  if (daemon.keeper_lost) {
    findings.push_back({Level::kWarning, "keeper",
                        Printable(daemon.keeper) +
                            " has gone: states go on, but end with this daemon, by a crash too",
                        "when no state is needed, `stickyctl shutdown` and start both again"});
  } else if (daemon.keeper.empty()) {
    findings.push_back({Level::kNote, "keeper", "none: states end with the daemon",
                        "start it as `sticky-keeper -- OPTIONS`, or as the shipped service, and "
                        "states outlive its death"});
  } else {
    findings.push_back({Level::kOk,
                        "keeper",
                        Printable(daemon.keeper) + " keeps states: they outlive the daemon",
                        {}});
  }
  if (daemon.foreign_count == 0) return;
  findings.push_back(
      {Level::kWarning, "keeper",
       Format("%u states of a stickyd of another version are kept, and hold ",
              daemon.foreign_count) +
           ByteCount(daemon.foreign_bytes),
       "start that version to use them, or `stickyctl shutdown --drop-states` to be rid of all"});
}

void CheckVersion(const NodeFacts& facts, const std::string& program, const std::string& version,
                  std::vector<Finding>& findings) {
  if (version == facts.stickyctl_version) return;
  findings.push_back(
      {Level::kWarning, "versions",
       program + " is version " + Printable(version) + ", stickyctl " + facts.stickyctl_version,
       "install one version; after that `stickyctl shutdown --keep-states` (with a keeper), or "
       "restart the daemon, which ends its states"});
}

void CheckTemplates(const DaemonFacts& daemon, std::vector<Finding>& findings) {
  for (const std::string& problem : daemon.template_problems) {
    findings.push_back({Level::kWarning, "templates",
                        "an installed template cannot be used: " + Printable(problem),
                        "mend the file (`stickyctl template check FILE` tells more), then restart "
                        "the daemon, which reads it when it starts"});
  }
  if (daemon.template_count > 0) {
    findings.push_back({Level::kOk,
                        "templates",
                        Format("%u installed, see `stickyctl template ls`", daemon.template_count),
                        {}});
  }
}

}  // namespace

void CheckSocket(const NodeFacts& facts, std::vector<Finding>& findings) {
  const SocketFacts& socket = facts.socket;
  std::string found = Quoted(socket.chosen.path) + ", from " + socket.chosen.named_by;
  if (socket.file.kind == Kind::kSocket) {
    found += Format("; of user %u, mode %04o", socket.file.uid, socket.file.mode);
  }
  findings.push_back({Level::kOk, "socket", found, {}});
  CheckFolder(facts, findings);
}

void CheckDaemon(const NodeFacts& facts, std::vector<Finding>& findings) {
  const DaemonFacts& daemon = facts.daemon;
  if (daemon.failure) {
    findings.push_back(NoDaemon(facts));
  } else {
    findings.push_back(
        {Level::kOk,
         "daemon",
         Format("stickyd %s, pid %llu, user %u, protocols %u to %u are spoken",
                Printable(daemon.version).c_str(), static_cast<unsigned long long>(daemon.pid),
                daemon.uid, facts.protocol_min, facts.protocol_max),
         {}});
    CheckVersion(facts, "stickyd", daemon.version, findings);
    CheckKeeper(daemon, findings);
    CheckTemplates(daemon, findings);
  }
  if (daemon.shutting_down) {
    findings.push_back({Level::kWarning, "daemon",
                        "it is being drained, or shuts down: it takes no more work",
                        "`stickyctl drain --resume` ends a drain; else wait for the next daemon"});
  }
  if (facts.library_version) {
    findings.push_back(
        {Level::kOk,
         "library",
         "libstickyinvoc " + Printable(*facts.library_version) + ", " + Quoted(facts.library_path),
         {}});
    CheckVersion(facts, Quoted(facts.library_path), *facts.library_version, findings);
  } else {
    findings.push_back({Level::kNote, "library", "libstickyinvoc.so.0 is not found from here",
                        "for programs that attach: set LD_LIBRARY_PATH to where it is"});
  }
}

}  // namespace sticky::stickyctl
