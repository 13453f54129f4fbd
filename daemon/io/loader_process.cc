#include "daemon/io/loader_process.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <sys/socket.h>

#include "base/text.h"
#include "flatbuffers/wire_blob.h"

namespace sticky::daemon {
namespace {

// What an exit without an answer means. status: as Child's on_exit.
Error DeathOf(int status) {
  constexpr int kSignalBase = 128;
  if (status == kSignalBase + SIGKILL) {
    return Error{Code::kOutOfMemory,
                 "the loader was killed (signal 9): by someone, or by the kernel because the "
                 "memory limit of its cgroup was reached"};
  }
  if (status > kSignalBase) {
    return Error{Code::kInternal, Format("the loader died of signal %d", status - kSignalBase)};
  }
  return Error{Code::kInternal,
               Format("the loader exited with status %d without an answer", status)};
}

}  // namespace

LoaderProcess::LoaderProcess(Callbacks callbacks) : callbacks_(std::move(callbacks)) {}

Result<std::unique_ptr<LoaderProcess>> LoaderProcess::Spawn(Loop& loop, Closer& closer,
                                                            const std::string& program,
                                                            Callbacks callbacks) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
    return ErrnoError("make a channel to the loader", errno);
  }
  UniqueFd ours(pair[0]);
  UniqueFd theirs(pair[1]);
  std::unique_ptr<LoaderProcess> made(new LoaderProcess(std::move(callbacks)));
  LoaderProcess* const raw = made.get();
  Connection::Callbacks channel;
  channel.on_frame = [raw](Connection::Frame frame) { raw->OnFrame(std::move(frame)); };
  // EOF without an exit status says less than the exit status that is about to come.
  channel.on_closed = [raw](const std::string& why) {
    if (!why.empty()) raw->Fail(Error{Code::kInternal, "talk to the loader: " + why});
  };
  STICKY_ASSIGN(made->channel_, Connection::Create(loop, closer, Closer::kOurChildren,
                                                   std::move(ours), std::move(channel)));
  Child::Command command;
  command.program = program;
  command.channel = std::move(theirs);
  STICKY_ASSIGN(made->child_,
                Child::Spawn(loop, std::move(command), [raw](int status) { raw->OnExit(status); }));
  return made;
}

Result<std::unique_ptr<LoaderProcess>> LoaderProcess::StartHelper(Loop& loop, Closer& closer,
                                                                  const std::string& program,
                                                                  Callbacks callbacks) {
  STICKY_ASSIGN(std::unique_ptr<LoaderProcess> made,
                Spawn(loop, closer, program, std::move(callbacks)));
  made->step_ = Step::kIdle;
  return made;
}

Result<std::unique_ptr<LoaderProcess>> LoaderProcess::Start(Loop& loop, Closer& closer,
                                                            const std::string& program,
                                                            const wire::PlanRequest& request,
                                                            FileBundle bundle,
                                                            Callbacks callbacks) {
  STICKY_ASSIGN(std::unique_ptr<LoaderProcess> made,
                Spawn(loop, closer, program, std::move(callbacks)));
  made->channel_->Send({0, request}, {});
  // So few that their names fit into one frame however long they are.
  constexpr std::size_t kFilesPerPart = 128;
  static_assert(kFilesPerPart * (wire::kFileNameBytesMax + 128) < wire::kFrameBytesMax);
  static_assert(wire::kFileCountMax / kFilesPerPart < Connection::kQueueMax);
  for (std::size_t at = 0; at < bundle.files.size();) {
    const std::size_t end = std::min(at + kFilesPerPart, bundle.files.size());
    wire::FilesPart part;
    ForeignFds fds = bundle.fds.TakeFirst(end - at);
    for (; at < end; ++at) part.files.push_back(std::move(bundle.files[at]));
    made->channel_->Send({0, std::move(part)}, {}, std::move(fds));
  }
  return made;
}

Status LoaderProcess::SendArenas(std::span<const int> fds, wire::Body request) {
  std::vector<UniqueFd> copies;
  for (const int fd : fds) {
    copies.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!copies.back().valid()) return ErrnoError("hand the arena to the loader", errno);
  }
  channel_->Send({0, std::move(request)}, std::move(copies));
  return Ok{};
}

Status LoaderProcess::Fill(std::span<const int> arena_fds, const wire::FillRequest& request) {
  step_ = Step::kFilling;
  return SendArenas(arena_fds, request);
}

Status LoaderProcess::Prefault(int arena_fd, std::uint64_t arena_bytes) {
  step_ = Step::kPrefaulting;
  return SendArenas(std::span(&arena_fd, 1), wire::PrefaultRequest{arena_bytes});
}

Status LoaderProcess::Digest(std::span<const int> arena_fds, const wire::DigestRequest& request) {
  step_ = Step::kFilling;
  return SendArenas(arena_fds, request);
}

void LoaderProcess::OnFrame(Connection::Frame frame) {
  if (step_ == Step::kEnded) return;
  Result<wire::Message> message = wire::Decode(frame.bytes);
  if (!message.ok()) return Fail(message.error());
  const wire::Body& body = message.value().body;
  if (const auto* failure = std::get_if<wire::Failure>(&body)) {
    return Fail(Error{failure->code, failure->message, failure->os_code});
  }
  if (const auto* plan = std::get_if<wire::PlanReply>(&body); plan && step_ == Step::kPlanning) {
    return OnPlanned(*plan, frame.fds);
  }
  if (std::holds_alternative<wire::PrefaultReply>(body) && step_ == Step::kPrefaulting) {
    step_ = Step::kIdle;
    return callbacks_.on_present();
  }
  if (const auto* moved = std::get_if<wire::FillProgress>(&body);
      moved && (step_ == Step::kFilling || step_ == Step::kPrefaulting)) {
    return callbacks_.on_progress(*moved);
  }
  if (const auto* filled = std::get_if<wire::FillReply>(&body); filled && step_ == Step::kFilling) {
    step_ = Step::kEnded;
    return callbacks_.on_filled(*filled);
  }
  Fail(Error{Code::kInternal, "talk to the loader: it sent a message out of turn"});
}

void LoaderProcess::OnPlanned(const wire::PlanReply& reply, const ForeignFds& fds) {
  if (fds.size() != 1) {
    return Fail(Error{Code::kInternal, "read the loader's plan: it came without its manifest"});
  }
  Result<wire::SealedView> view = wire::SealedView::Map(fds.get(0), wire::kManifestBytesMax);
  if (!view.ok()) return Fail(view.error());
  Result<wire::Manifest> draft = wire::DecodeManifest(view.value().bytes());
  if (!draft.ok()) return Fail(draft.error());
  if (wire::ArenaMemoryBytes(draft.value()) != reply.arena_bytes) {
    return Fail(Error{Code::kInternal, "read the loader's plan: its sizes contradict each other"});
  }
  step_ = Step::kPlanned;
  callbacks_.on_planned(std::move(draft).value(), reply.arena_bytes);
}

void LoaderProcess::Kill() {
  step_ = Step::kEnded;
  child_->Kill();
}

void LoaderProcess::OnExit(int status) {
  // Its last words may still wait in the socket.
  constexpr int kLastFramesMax = 4096;
  channel_->Drain(kLastFramesMax);
  Fail(DeathOf(status));
  callbacks_.on_gone();
}

void LoaderProcess::Fail(const Error& error) {
  if (step_ == Step::kEnded) return;
  step_ = Step::kEnded;
  callbacks_.on_failed(error);
}

}  // namespace sticky::daemon
