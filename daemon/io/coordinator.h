// Coordinator: joins the outside to the core. It turns frames, exits and time into events, and does
// what the core's actions say. It decides nothing.
//
// Thread: loop thread only.

#ifndef STICKY_DAEMON_IO_COORDINATOR_H_
#define STICKY_DAEMON_IO_COORDINATOR_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/core/node_state.h"
#include "daemon/io/closer.h"
#include "daemon/io/connection.h"
#include "daemon/io/keeper.h"
#include "daemon/io/kept_states.h"
#include "daemon/io/listener.h"
#include "daemon/io/loader_process.h"
#include "daemon/io/log.h"
#include "daemon/io/loop.h"
#include "daemon/io/memory_freer.h"
#include "daemon/io/requester_process.h"
#include "daemon/io/socket_home.h"
#include "device/host_arena.h"

namespace sticky::daemon {

struct CoordinatorOptions {
  Limits limits;
  std::uint32_t connection_count_max = 4096;
  std::int64_t handshake_ms = 5000;
  std::uint64_t shutdown_ms = 5000;
  std::string loader_program;
  std::string requester_program;  // stickyctl
  std::vector<Installed> installed;
  std::string version;
  std::uint64_t nonce = 0;  // random; this life of the daemon
};

class Coordinator {
 public:
  // closer: must outlive the loop, on which connections are buried.
  Coordinator(Loop& loop, Closer& closer, SocketHome& home, Keeper& keeper, Logger& logger,
              const CoordinatorOptions& options);
  ~Coordinator();

  // Takes over what an earlier daemon had kept (Inherited::kept), then starts to listen.
  // Errors: kOutOfMemory when there are no descriptors.
  Status Start(std::map<std::string, std::vector<UniqueFd>> kept);
  // Answers whoever waits and stops the loop once the answers are sent, at the latest after
  // shutdown_ms; called again, at once.
  void ShutDown();
  // Whether this daemon ends so that the next one takes its states over.
  bool keeps_states() const { return keeps_states_; }

 private:
  // A load request that still waits for its files.
  struct PendingLoad {
    std::uint32_t request_id = 0;
    wire::LoadRequest request;
    FileBundle bundle;
  };
  struct Client {
    std::unique_ptr<Connection> connection;
    Peer peer;
    std::optional<Error> refusal;  // answered to its first frame, then it is closed
    bool heard = false;            // has sent a whole frame
    std::int64_t deadline_ns = 0;  // for its first frame, and for the files of a load
    std::optional<PendingLoad> pending;
  };
  struct Held {  // what there is of a state outside the core
    std::optional<wire::Manifest> draft;
    std::vector<device::HostArena> arenas;  // none before there was room
    UniqueFd manifest;
    std::uint64_t epoch = 0;  // once it is published
  };

  Result<std::unique_ptr<Listener>> MakeListener();
  void OnConnection(UniqueFd socket, Peer peer);
  void OnFrame(ConnectionId id, Connection::Frame frame);
  void OnLoadFiles(ConnectionId id, Client& client, const wire::Message& message, ForeignFds fds);
  // A builder's table of what its arenas hold, which is checked here and kept for the publication.
  void OnCommit(ConnectionId id, Client& client, const wire::Message& message,
                const ForeignFds& fds);
  void OnClosed(ConnectionId id, const std::string& why);
  void Answer(Client& client, std::uint32_t request_id, const Error& error);
  void OnTick();
  void Watch();  // every few seconds: is the socket still there? Also the slow tick.

  // coordinator_kept.cc: what outlives the daemon.
  void TakeOver(std::map<std::string, std::vector<UniqueFd>> kept);
  void KeepSocket();
  void WatchKeeper();

  void Do(NodeState::Actions actions);
  void Perform(Send& action);
  void Perform(DropBundle& action);
  void Perform(StartRequester& action);
  void Perform(StartLoader& action);
  void Perform(AllocateArena& action);
  void Perform(Publish& action);
  void Perform(KeepRecord& action);
  void Perform(KeepNode& action);
  void Perform(MakeBuildArena& action);
  void Perform(CommitBuild& action);
  void Perform(KillLoader& action);
  void Perform(FreeArena& action);
  void Perform(AskBorrowers& action);
  void Perform(Stop& action);
  void Perform(Log& action);
  void FreeAndTell(StateId id);
  Result<std::vector<UniqueFd>> Attachments(const Send& action);
  Status MakeArenas(const AllocateArena& action);
  Status Seal(const Publish& action);
  Status SealArenas(Held& held);
  // What every child reports, whatever it is for.
  LoaderProcess::Callbacks CallbacksFor(StateId id);
  // The child that helps with this build, started when it is the first time.
  Result<LoaderProcess*> HelperOf(StateId id);
  Status MakeArenaForBuilder(const MakeBuildArena& action);
  Status DigestBuild(StateId id);
  void Queue(NodeState::Actions actions);
  void Kill(StateId state);  // its loader and its requester, if it has them

  Loop& loop_;
  Closer& closer_;
  SocketHome& home_;
  Keeper& keeper_;
  KeptStates kept_;
  Logger& logger_;
  const CoordinatorOptions options_;
  NodeState core_;
  std::map<ConnectionId, Client> clients_;
  std::map<StateId, Held> held_;
  std::map<StateId, std::unique_ptr<LoaderProcess>> loaders_;        // until they have been reaped
  std::map<StateId, std::unique_ptr<RequesterProcess>> requesters_;  // likewise
  std::map<BundleId, FileBundle> bundles_;
  std::unique_ptr<Listener> listener_;
  Timer tick_;
  Timer watch_;
  Timer watchdog_;
  Timer last_call_;
  MemoryFreer freer_;
  std::deque<Action> todo_;
  bool doing_ = false;
  bool keeps_states_ = false;
  std::string socket_name_;     // under which the keeper has our socket
  std::string rebind_failure_;  // as it was logged last
  std::uint64_t next_connection_ = 1;
  std::uint64_t next_bundle_ = 1;
};

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_IO_COORDINATOR_H_
