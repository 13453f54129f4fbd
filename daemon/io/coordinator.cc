#include "daemon/io/coordinator.h"

#include <algorithm>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu_features.h"
#include "base/deadline.h"
#include "base/text.h"
#include "daemon/io/host_facts.h"
#include "daemon/io/notify.h"
#include "flatbuffers/wire_blob.h"

namespace sticky::daemon {
namespace {

constexpr std::uint64_t kTickMs = 50;
constexpr std::uint64_t kWatchMs = 2000;
// Connections past the limit that are told so; beyond them, they are just closed.
constexpr std::uint32_t kTurnedAwayMax = 64;

wire::StatusReply FactsOf(const CoordinatorOptions& options, const SocketHome& home,
                          const Keeper& keeper) {
  wire::StatusReply facts;
  facts.version = options.version;
  facts.pid = static_cast<std::uint64_t>(::getpid());
  facts.uid = ::geteuid();
  facts.nonce = options.nonce;
  facts.connection_count_max = options.connection_count_max;
  facts.socket_path = home.path();
  facts.cgroup = CgroupOfSelf();
  facts.device = "host";
  if (keeper.is_there()) facts.keeper = keeper.name();
  facts.best_dtype = BestMatrixDtype() == Dtype::kBf16 ? DtypeChoice::kBf16 : DtypeChoice::kF32;
  return facts;
}

// Says what the holders of leases run, now: a process may have become another program since it
// attached (`stickyctl run` does), and reading it at every attach would cost each of them. One that
// has ended may have left its connection to a child.
void AddCommands(wire::Body& body) {
  std::vector<wire::LeaseInfo>* leases = nullptr;
  if (auto* const reply = std::get_if<wire::LeasesReply>(&body)) leases = &reply->leases;
  if (auto* const reply = std::get_if<wire::EvictReply>(&body)) leases = &reply->leases;
  if (auto* const reply = std::get_if<wire::DrainReply>(&body)) leases = &reply->leases;
  if (leases == nullptr) return;
  for (wire::LeaseInfo& lease : *leases) {
    lease.command = CommandOf(lease.pid);
    lease.process_ended = HasEnded(lease.pid);
  }
}

// The sizes of the arenas whose descriptors go with a lease.
void AddArenaSizes(const std::vector<device::HostArena>& arenas, wire::Body& body) {
  auto* const reply = std::get_if<wire::AttachReply>(&body);
  if (reply == nullptr) return;
  for (const device::HostArena& arena : arenas) reply->arena_bytes.push_back(arena.size_bytes());
}

// Adds files, one descriptor each, to those that a load waits for. What is no regular file is found
// by the loader: to examine a file may take for ever. What is no file to read is seen without that.
// Errors: kInvalidArgument for more or fewer descriptors than files, more files than the load
//   said, or a descriptor that cannot be read from; the load has no use any more.
Status AddFiles(FileBundle& bundle, const wire::LoadRequest& load, const wire::FilesPart& part,
                ForeignFds fds) {
  const std::string doing = "load '" + load.state + "': ";
  if (part.files.size() != fds.size() || bundle.fds.size() + fds.size() > load.file_count) {
    return Error{Code::kInvalidArgument, doing + "files and descriptors do not match"};
  }
  for (std::size_t i = 0; i < fds.size(); ++i) {
    const int flags = ::fcntl(fds.get(i), F_GETFL);
    const bool may_read = (flags & O_ACCMODE) != O_WRONLY && (flags & (O_PATH | O_DIRECTORY)) == 0;
    if (flags < 0 || !may_read) {
      return Error{Code::kInvalidArgument, doing + "the descriptor of '" +
                                               Escape(part.files[i].name) +
                                               "' is not a regular file open for reading"};
    }
    bundle.files.push_back(part.files[i]);
  }
  bundle.fds.Append(std::move(fds));
  return Ok{};
}

}  // namespace

Coordinator::Coordinator(Loop& loop, Closer& closer, SocketHome& home, Keeper& keeper,
                         Logger& logger, const CoordinatorOptions& options)
    : loop_(loop),
      closer_(closer),
      home_(home),
      keeper_(keeper),
      kept_(keeper),
      logger_(logger),
      options_(options),
      core_(options.limits, FactsOf(options, home, keeper), MonotonicNs(), WallMs()),
      tick_(loop, [this] { OnTick(); }),
      watch_(loop, [this] { Watch(); }),
      watchdog_(loop, [] { Notify("WATCHDOG=1"); }),
      last_call_(loop, [this] { loop_.Stop(); }),
      freer_(loop, closer) {}

Coordinator::~Coordinator() = default;

Status Coordinator::Start(std::map<std::string, std::vector<UniqueFd>> kept) {
  TakeOver(std::move(kept));
  STICKY_ASSIGN(listener_, MakeListener());
  KeepSocket();
  watch_.Start(kWatchMs, kWatchMs);
  if (const std::uint64_t ms = WatchdogMs(); ms != 0) watchdog_.Start(ms, ms);
  logger_.Line(Log::Level::kInfo,
               Format("listening at '%s', budget %s", Escape(home_.path()).c_str(),
                      ByteCount(options_.limits.budget_bytes).c_str()));
  Notify(Format("READY=1\nSTATUS=%u states, %s", core_.state_count(),
                ByteCount(core_.used_bytes()).c_str()));
  Do(core_.Install(options_.installed, ::getgid(), MonotonicNs()));
  return Ok{};
}

Result<std::unique_ptr<Listener>> Coordinator::MakeListener() {
  return Listener::Create(loop_, home_.fd(), [this](UniqueFd socket, const Peer& peer) {
    OnConnection(std::move(socket), peer);
  });
}

void Coordinator::ShutDown() {
  if (core_.shutting_down()) return loop_.Stop();
  Notify("STOPPING=1");
  Do(core_.ShutDown(MonotonicNs()));
  last_call_.Start(options_.shutdown_ms, /*repeat_ms=*/0);
  tick_.Start(kTickMs, kTickMs);
}

// --- clients ------------------------------------------------------------------------------------

void Coordinator::OnConnection(UniqueFd socket, Peer peer) {
  const bool is_full = clients_.size() >= options_.connection_count_max;
  if (clients_.size() >= options_.connection_count_max + kTurnedAwayMax) {
    return CloseSocket(std::move(socket), closer_, peer.uid);
  }
  const ConnectionId id{next_connection_++};
  Connection::Callbacks callbacks;
  callbacks.on_frame = [this, id](Connection::Frame frame) { OnFrame(id, std::move(frame)); };
  callbacks.on_closed = [this, id](const std::string& why) { OnClosed(id, why); };
  Result<std::unique_ptr<Connection>> connection =
      Connection::Create(loop_, closer_, peer.uid, std::move(socket), std::move(callbacks));
  if (!connection.ok()) {
    return logger_.Line(Log::Level::kWarning, Printable(connection.error().message));
  }
  Client& client = clients_[id];
  client.connection = std::move(connection).value();
  client.peer = peer;
  client.deadline_ns = MonotonicNs() + options_.handshake_ms * 1'000'000;
  if (const Status may = core_.MayConnect(peer); !may.ok()) client.refusal = may.error();
  if (is_full) {
    client.refusal =
        Error{Code::kUnavailable, Format("connect to stickyd: it serves %u connections, the limit "
                                         "(limits.connections); try again later",
                                         options_.connection_count_max)};
  }
  Do(core_.Connected(id, std::move(peer), MonotonicNs()));
  tick_.Start(kTickMs, kTickMs);
}

void Coordinator::Answer(Client& client, std::uint32_t request_id, const Error& error) {
  client.connection->Send({request_id, wire::Failure{error.code, error.message, error.os_code}},
                          {});
}

void Coordinator::OnFrame(ConnectionId id, Connection::Frame frame) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  Client& client = found->second;
  std::uint32_t request_id = 0;
  Result<wire::Message> message = wire::Decode(frame.bytes, &request_id);
  if (client.refusal) {
    Answer(client, request_id, *client.refusal);
    return client.connection->CloseAfterSending("it was turned away");
  }
  if (message.ok() && frame.fds_refused) {
    message = Error{Code::kUnavailable,
                    Format("take descriptors: too many of user %u wait to be closed, and the "
                           "file system of one of them does not answer (FUSE, NFS?); try again "
                           "later",
                           client.peer.uid)};
  }
  if (!message.ok()) {
    Answer(client, request_id, message.error());
    return client.connection->CloseAfterSending(message.error().message);
  }
  client.heard = true;
  const bool is_load = std::holds_alternative<wire::LoadRequest>(message.value().body) ||
                       std::holds_alternative<wire::FilesPart>(message.value().body);
  if (is_load) return OnLoadFiles(id, client, message.value(), std::move(frame.fds));
  if (std::holds_alternative<wire::BuildCommitRequest>(message.value().body)) {
    return OnCommit(id, client, message.value(), frame.fds);
  }
  Do(core_.Asked(id, message.value(), MonotonicNs()));
}

// Collects a load request and its files; the core hears of it when all are there.
void Coordinator::OnLoadFiles(ConnectionId id, Client& client, const wire::Message& message,
                              ForeignFds fds) {
  if (const auto* request = std::get_if<wire::LoadRequest>(&message.body)) {
    if (client.pending) {
      return client.connection->CloseAfterSending("a load began before another had its files");
    }
    client.pending = PendingLoad{message.request_id, *request, {}};
    client.deadline_ns = MonotonicNs() + options_.handshake_ms * 1'000'000;
    tick_.Start(kTickMs, kTickMs);
  }
  if (!client.pending) return client.connection->CloseAfterSending("files came without a load");
  PendingLoad& pending = *client.pending;
  if (const auto* part = std::get_if<wire::FilesPart>(&message.body)) {
    const Status added = AddFiles(pending.bundle, pending.request, *part, std::move(fds));
    if (!added.ok()) {
      Answer(client, pending.request_id, added.error());
      return client.connection->CloseAfterSending(added.error().message);
    }
  }
  if (pending.bundle.fds.size() < pending.request.file_count) return;
  const BundleId bundle{next_bundle_++};
  bundles_[bundle] = std::move(pending.bundle);
  const PendingLoad whole = std::move(*std::exchange(client.pending, std::nullopt));
  Do(core_.LoadAsked(id, whole.request_id, whole.request, bundle, MonotonicNs()));
}

void Coordinator::OnClosed(ConnectionId id, const std::string& why) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  if (!why.empty()) {
    logger_.Line(
        Log::Level::kWarning,
        Format("close the connection of pid %llu: %s",
               static_cast<unsigned long long>(found->second.peer.pid), Printable(why).c_str()));
  }
  loop_.Bury(std::shared_ptr<Connection>(std::move(found->second.connection)));
  clients_.erase(found);
  Do(core_.Disconnected(id, MonotonicNs()));
}

// --- time ---------------------------------------------------------------------------------------

void Coordinator::OnTick() {
  const std::int64_t now_ns = MonotonicNs();
  bool half_open = false;
  bool sending = false;
  for (auto& [id, client] : clients_) {
    sending = sending || client.connection->queued() > 0;
    if (client.heard && !client.pending) continue;
    half_open = true;
    if (now_ns >= client.deadline_ns) {
      client.connection->CloseAfterSending("it did not finish its request in time");
      client.heard = true;
      client.pending.reset();
    }
  }
  Do(core_.Tick(now_ns));
  if (core_.shutting_down() && !sending && loaders_.empty()) return loop_.Stop();
  if (!half_open && !core_.NeedsTicks() && !core_.shutting_down()) tick_.Stop();
}

void Coordinator::Watch() {
  WatchKeeper();
  Do(core_.Tick(MonotonicNs()));
  if (!home_.Vanished()) return;
  listener_.reset();  // before its descriptor is closed; this is not one of its callbacks
  const Status bound = home_.Rebind();
  if (bound.ok()) {
    rebind_failure_.clear();
    KeepSocket();
    logger_.Line(Log::Level::kWarning, Format("the socket file is gone; listening again at '%s'",
                                              Escape(home_.path()).c_str()));
  } else if (bound.error().message != rebind_failure_) {
    // Tried again every time, told when it is news. Leases that are held are not touched by it.
    rebind_failure_ = bound.error().message;
    logger_.Line(Log::Level::kError, Printable(rebind_failure_));
  }
  Result<std::unique_ptr<Listener>> made = MakeListener();
  if (!made.ok()) return logger_.Line(Log::Level::kError, Printable(made.error().message));
  listener_ = std::move(made).value();
}

// --- actions ------------------------------------------------------------------------------------

void Coordinator::Queue(NodeState::Actions actions) {
  for (Action& action : actions) todo_.push_back(std::move(action));
}

void Coordinator::Do(NodeState::Actions actions) {
  Queue(std::move(actions));
  if (doing_) return;  // an action's own events wait their turn
  doing_ = true;
  while (!todo_.empty()) {
    Action action = std::move(todo_.front());
    todo_.pop_front();
    std::visit([this](auto& what) { Perform(what); }, action);
  }
  doing_ = false;
  if (core_.NeedsTicks()) tick_.Start(kTickMs, kTickMs);
}

Result<std::vector<UniqueFd>> Coordinator::Attachments(const Send& action) {
  std::vector<UniqueFd> fds;
  if (action.attachment == Attachment::kNone) return fds;
  const auto found = held_.find(action.state);
  if (found == held_.end()) return Error{Code::kInternal, "hand out a state that is not there"};
  Held& held = found->second;
  if (action.attachment == Attachment::kBuildArena) {
    const auto& reply = std::get<wire::BuildArenaReply>(action.message.body);
    STICKY_ASSIGN(UniqueFd arena, held.arenas.at(reply.arena).LendWritable());
    fds.push_back(std::move(arena));
    return fds;
  }
  if (!held.manifest.valid() || held.arenas.empty()) {
    return Error{Code::kInternal, "hand out a state that is not published"};
  }
  fds.emplace_back(::fcntl(held.manifest.get(), F_DUPFD_CLOEXEC, 0));
  if (!fds.back().valid()) return ErrnoError("hand out the manifest", errno);
  if (action.attachment == Attachment::kManifest) return fds;
  for (const device::HostArena& arena : held.arenas) {
    STICKY_ASSIGN(UniqueFd lent, arena.Lend());
    fds.push_back(std::move(lent));
  }
  return fds;
}

void Coordinator::Perform(Send& action) {
  const auto found = clients_.find(action.to);
  if (found == clients_.end()) return;
  Client& client = found->second;
  // Progress is worth nothing to whoever has not read the last one.
  const bool is_progress = std::holds_alternative<wire::LoadProgress>(action.message.body);
  if (is_progress && client.connection->queued() > 0) return;
  Result<std::vector<UniqueFd>> fds = Attachments(action);
  if (!fds.ok()) {
    Answer(client, action.message.request_id, fds.error());
    if (action.attachment == Attachment::kState) {
      Queue(core_.LendFailed(action.lease, MonotonicNs()));
    }
    return;
  }
  if (action.attachment == Attachment::kState) {
    AddArenaSizes(held_[action.state].arenas, action.message.body);
  }
  AddCommands(action.message.body);
  client.connection->Send(action.message, std::move(fds).value());
}

void Coordinator::Perform(DropBundle& action) { bundles_.erase(action.bundle); }

LoaderProcess::Callbacks Coordinator::CallbacksFor(StateId id) {
  LoaderProcess::Callbacks callbacks;
  callbacks.on_progress = [this, id](const wire::FillProgress& progress) {
    Do(core_.Progressed(id, progress.bytes_done, progress.bytes_present, MonotonicNs()));
  };
  callbacks.on_filled = [this, id](const wire::FillReply& reply) {
    Do(core_.Filled(id, reply.content_digest, reply.huge_bytes, MonotonicNs()));
  };
  callbacks.on_failed = [this, id](const Error& error) {
    Do(core_.LoaderFailed(id, error, MonotonicNs()));
  };
  callbacks.on_gone = [this, id] {
    const auto gone = loaders_.find(id);
    loop_.Bury(std::shared_ptr<LoaderProcess>(std::move(gone->second)));
    loaders_.erase(gone);
    Do(core_.LoaderGone(id, MonotonicNs()));
  };
  callbacks.on_present = [this, id] { Do(core_.BuildArenaMade(id, MonotonicNs())); };
  return callbacks;
}

void Coordinator::Perform(StartRequester& action) {
  const StateId id = action.state;
  const auto on_gone = [this, id](const Status& ended) {
    const auto gone = requesters_.find(id);
    loop_.Bury(std::shared_ptr<RequesterProcess>(std::move(gone->second)));
    requesters_.erase(gone);
    const Error silent{
        Code::kCorrupt,
        "no load of that name came of it: does the template name another state now?"};
    Do(core_.RequesterEnded(id, ended.ok() ? silent : ended.error(), MonotonicNs()));
  };
  Result<std::unique_ptr<RequesterProcess>> requester = RequesterProcess::Start(
      loop_, {options_.requester_program, home_.path(), action.path}, on_gone);
  if (!requester.ok()) return Queue(core_.RequesterEnded(id, requester.error(), MonotonicNs()));
  requesters_[id] = std::move(requester).value();
}

void Coordinator::Perform(StartLoader& action) {
  const StateId id = action.state;
  FileBundle bundle = std::move(bundles_[action.bundle]);
  bundles_.erase(action.bundle);
  LoaderProcess::Callbacks callbacks = CallbacksFor(id);
  callbacks.on_planned = [this, id](wire::Manifest draft, std::uint64_t memory_bytes) {
    const auto tensor_count = static_cast<std::uint32_t>(draft.tensors.size());
    held_[id].draft = std::move(draft);
    Do(core_.Planned(id, memory_bytes, tensor_count, MonotonicNs()));
  };
  Result<std::unique_ptr<LoaderProcess>> loader =
      LoaderProcess::Start(loop_, closer_, options_.loader_program, action.request,
                           std::move(bundle), std::move(callbacks));
  if (!loader.ok()) {
    Queue(core_.LoaderFailed(id, loader.error(), MonotonicNs()));
    return Queue(core_.LoaderGone(id, MonotonicNs()));
  }
  loaders_[id] = std::move(loader).value();
}

Status Coordinator::MakeArenas(const AllocateArena& action) {
  const auto loader = loaders_.find(action.state);
  if (loader == loaders_.end()) return Error{Code::kInternal, "the loader is gone"};
  Held& held = held_[action.state];
  if (held.draft->whole_files && action.huge_pages) {
    return Error{Code::kInvalidArgument,
                 "memory.huge_pages would round the sizes of files that are kept whole; leave it "
                 "out, or false"};
  }
  std::vector<int> fds;
  for (const std::uint64_t size_bytes : held.draft->arena_bytes) {
    STICKY_ASSIGN(device::HostArena arena,
                  device::HostArena::Create(held.draft->state, size_bytes, action.huge_pages));
    fds.push_back(arena.fd());
    held.arenas.push_back(std::move(arena));
  }
  return loader->second->Fill(fds, {action.arena_bytes, action.prefault});
}

void Coordinator::Perform(AllocateArena& action) {
  const Status made = MakeArenas(action);
  if (!made.ok()) return Queue(core_.LoaderFailed(action.state, made.error(), MonotonicNs()));
  const device::PageKind kind = held_[action.state].arenas.front().page_kind();
  Queue(core_.ArenaAllocated(action.state, device::Name(kind), MonotonicNs()));
}

Status Coordinator::Seal(const Publish& action) {
  Held& held = held_[action.state];
  STICKY_TRY(SealArenas(held));
  wire::Manifest manifest = std::move(*std::exchange(held.draft, std::nullopt));
  for (device::HostArena& arena : held.arenas) {
    if (manifest.whole_files) STICKY_TRY(arena.LetOthersReopen());
  }
  const wire::StateRecord& record = action.record;
  manifest.state = record.state;
  manifest.device = "host";
  manifest.content_digest = record.content_digest;
  manifest.template_digest = record.template_digest;
  manifest.epoch = record.epoch;
  manifest.daemon_nonce = action.daemon_nonce;
  manifest.builder = record.built_by;
  manifest.base = record.base;
  manifest.base_digest = record.base_digest;
  STICKY_ASSIGN(held.manifest,
                device::SealedCopy("manifest:" + record.state, wire::EncodeManifest(manifest)));
  return Ok{};
}

void Coordinator::Perform(KillLoader& action) { Kill(action.state); }

void Coordinator::Kill(StateId state) {
  if (const auto found = loaders_.find(state); found != loaders_.end()) found->second->Kill();
  const auto requester = requesters_.find(state);
  if (requester != requesters_.end()) requester->second->Kill();
}

void Coordinator::Perform(Log& action) { logger_.Line(action.level, action.text); }

}  // namespace sticky::daemon
