// LoaderProcess: one running sticky-loader and the channel to it, for a load or to help with a
// build. It reports; the core decides.
//
// Thread: loop thread only. Destroy it through Loop::Bury, after on_gone.

#ifndef STICKY_DAEMON_IO_LOADER_PROCESS_H_
#define STICKY_DAEMON_IO_LOADER_PROCESS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/io/connection.h"
#include "daemon/io/loop.h"
#include "flatbuffers/wire_codec.h"
#include "flatbuffers/wire_manifest.h"

namespace sticky::daemon {

// Files as a client sent them: what they are called, and a descriptor each.
struct FileBundle {
  std::vector<wire::SourceFile> files;
  ForeignFds fds;
};

class LoaderProcess {
 public:
  struct Callbacks {
    // The plan, checked: everything lies inside its arenas, which take `memory_bytes` together.
    std::function<void(wire::Manifest draft, std::uint64_t memory_bytes)> on_planned;
    std::function<void(const wire::FillProgress& progress)> on_progress;
    std::function<void(const wire::FillReply& reply)> on_filled;  // or digested
    std::function<void()> on_present;                             // what Prefault asked for
    // Anything else: it said so, died, or broke the protocol. Called at most once.
    std::function<void(const Error& error)> on_failed;
    // The process has been reaped; called last, exactly once, also after Kill.
    std::function<void()> on_gone;
  };

  // closer: not owned.
  static Result<std::unique_ptr<LoaderProcess>> Start(Loop& loop, Closer& closer,
                                                      const std::string& program,
                                                      const wire::PlanRequest& request,
                                                      FileBundle bundle, Callbacks callbacks);

  // A child that helps with a build: it waits for Prefault and Digest, one at a time.
  static Result<std::unique_ptr<LoaderProcess>> StartHelper(Loop& loop, Closer& closer,
                                                            const std::string& program,
                                                            Callbacks callbacks);
  // Makes an arena's pages present; on_present follows. A duplicate of the descriptor is sent.
  Status Prefault(int arena_fd, std::uint64_t arena_bytes);
  // Digests sealed arenas; on_progress and on_filled follow. Duplicates are sent.
  Status Digest(std::span<const int> arena_fds, const wire::DigestRequest& request);

  // The arenas to fill, as the plan has them; duplicates of the descriptors are sent.
  Status Fill(std::span<const int> arena_fds, const wire::FillRequest& request);

  // Ends it; of the callbacks only on_gone follows.
  void Kill();

  int pid() const { return child_->pid(); }

 private:
  explicit LoaderProcess(Callbacks callbacks);
  static Result<std::unique_ptr<LoaderProcess>> Spawn(Loop& loop, Closer& closer,
                                                      const std::string& program,
                                                      Callbacks callbacks);
  Status SendArenas(std::span<const int> fds, wire::Body request);
  void OnFrame(Connection::Frame frame);
  void OnPlanned(const wire::PlanReply& reply, const ForeignFds& fds);
  void OnExit(int status);
  void Fail(const Error& error);

  enum class Step : std::int8_t { kPlanning = 0, kPlanned, kFilling, kIdle, kPrefaulting, kEnded };
  Callbacks callbacks_;
  Step step_ = Step::kPlanning;
  std::unique_ptr<Connection> channel_;
  std::unique_ptr<Child> child_;
};

}  // namespace sticky::daemon

#endif  // STICKY_DAEMON_IO_LOADER_PROCESS_H_
