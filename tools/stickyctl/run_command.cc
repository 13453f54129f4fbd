// `stickyctl run`: takes a lease, then becomes the command. The live connection, the manifest and
// the arena stay open across exec, so nothing can be evicted in between, and the command's own
// sti_attach needs no round trip.

#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <unistd.h>

#include "base/text.h"
#include "tools/client/client.h"
#include "tools/client/exit_codes.h"
#include "tools/client/load_request.h"
#include "tools/stickyctl/commands.h"

namespace sticky::tools {
namespace {

constexpr int kExitNotFound = 127;
constexpr int kExitNotExecutable = 126;

Status KeepAcrossExec(const UniqueFd& fd) {
  if (::fcntl(fd.get(), F_SETFD, 0) != 0) return ErrnoError("keep a descriptor open", errno);
  return Ok{};
}

// The lease's descriptors as the shim reads them: "connection:manifest:arena[,arena...]".
Result<std::string> LeaseText(const UniqueFd& socket, const std::vector<UniqueFd>& fds) {
  STICKY_TRY(KeepAcrossExec(socket));
  std::string text = std::to_string(socket.get()) + ":";
  for (std::size_t i = 0; i < fds.size(); ++i) {
    STICKY_TRY(KeepAcrossExec(fds[i]));
    text += std::to_string(fds[i].get());
    if (i + 1 < fds.size()) text += i == 0 ? ":" : ",";
  }
  return text;
}

Status BuildWhenAsked(Client& client, const RunOptions& options) {
  if (options.template_path.empty()) return Ok{};
  STICKY_ASSIGN(PreparedLoad prepared, PrepareLoad(options.template_path));
  if (prepared.request.state != options.state) {
    return Error{Code::kInvalidArgument, "run with '" + Escape(options.template_path) +
                                             "': it builds '" + prepared.request.state +
                                             "', --state says '" + Escape(options.state) + "'"};
  }
  prepared.request.wait_ms = options.wait_ms != 0 ? options.wait_ms : kDefaultWaitMs;
  std::vector<int> fds;
  for (const UniqueFd& fd : prepared.fds) fds.push_back(fd.get());
  STICKY_TRY(client.Load(prepared.request, prepared.files, fds, {}));
  return Ok{};
}

}  // namespace

int Run(const Common& common, const RunOptions& options) {
  std::string path = common.socket_path;
  if (path.empty()) {
    const Result<std::string> found = wire::DefaultSocketPath();
    if (!found.ok()) return FailFromDaemon(common, found.error());
    path = found.value();
  }
  Result<Client> client = Client::Connect(path);
  if (!client.ok()) return FailFromDaemon(common, client.error());
  const Status built = BuildWhenAsked(client.value(), options);
  if (!built.ok()) return FailFromDaemon(common, built.error());
  wire::AttachRequest request;
  request.state = options.state;
  request.wait_ms = options.wait_ms;
  auto answer = client.value().Ask<wire::AttachReply>(request, options.wait_ms);
  if (!answer.ok()) return FailFromDaemon(common, answer.error());
  if (answer.value().fds.size() < 2) {
    return FailFromDaemon(common, Error{Code::kCorrupt, "attach: descriptors are missing"});
  }
  const UniqueFd socket = client.value().TakeSocket();
  const Result<std::string> lease = LeaseText(socket, answer.value().fds);
  if (!lease.ok()) return FailFromDaemon(common, lease.error());
  ::setenv("STICKYINVOC_SOCKET", path.c_str(), /*replace=*/1);
  ::setenv("STICKYINVOC_STATE", options.state.c_str(), /*replace=*/1);
  ::setenv("STICKYINVOC_LEASE", lease.value().c_str(), /*replace=*/1);

  std::vector<char*> args;
  for (const std::string& word : options.command) args.push_back(const_cast<char*>(word.c_str()));
  args.push_back(nullptr);
  ::execvp(args[0], args.data());
  const int exec_errno = errno;
  return Fail(common, ErrnoError("run '" + Escape(options.command[0]) + "'", exec_errno),
              exec_errno == ENOENT ? kExitNotFound : kExitNotExecutable);
}

}  // namespace sticky::tools
