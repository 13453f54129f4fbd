#include "daemon/load/sha256_check.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "daemon/load/worker_threads.h"
#include "weights/sha256.h"

namespace sticky::load {

Sha256Check::Sha256Check(std::vector<ExpectedFile> files, int thread_count,
                         std::function<void(std::uint64_t more_bytes)> on_bytes)
    : files_(std::move(files)), on_bytes_(std::move(on_bytes)) {
  if (files_.empty()) return;
  const int count = static_cast<int>(std::min<std::size_t>(files_.size(), kThreadCountMax));
  try {
    thread_ = std::thread([this, threads = std::min(count, thread_count)] {
      RunOnThreads(threads, [this](int) { Work(); });
    });
  } catch (const std::system_error&) {  // the limit of threads is reached: Finish does the work
  }
}

Sha256Check::~Sha256Check() {
  stopped_ = true;
  if (thread_.joinable()) thread_.join();
}

Status Sha256Check::Finish() {
  if (thread_.joinable()) thread_.join();
  Work();
  const std::scoped_lock lock(mutex_);
  if (error_) return *error_;
  return Ok{};
}

void Sha256Check::Work() {
  for (std::size_t i = next_++; i < files_.size() && !stopped_; i = next_++) {
    const Status checked = CheckOne(files_[i]);
    if (checked.ok()) continue;
    const std::scoped_lock lock(mutex_);
    if (!error_) error_ = checked.error();
    stopped_ = true;
  }
}

Status Sha256Check::CheckOne(const ExpectedFile& expected) {
  const auto on_bytes = [this](std::uint64_t more_bytes) -> Status {
    if (stopped_) return Error{Code::kUnavailable, "check a SHA-256: stopped"};  // never reported
    on_bytes_(more_bytes);
    return Ok{};
  };
  STICKY_ASSIGN(const Sha256 found, weights::Sha256Of(expected.file, on_bytes));
  STICKY_TRY(expected.file.bytes->CheckUnchanged());
  if (found == expected.sha256) return Ok{};
  return Error{Code::kCorrupt, "check '" + Escape(expected.file.name) + "': its SHA-256 is " +
                                   ToHex(found) + ", but source.expect.sha256 says " +
                                   ToHex(expected.sha256) +
                                   ": another version, or a damaged download"};
}

}  // namespace sticky::load
