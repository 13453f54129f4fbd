// FdByteSource: a weight file that was passed as a descriptor.
//
// Thread: any thread, many at once.

#ifndef STICKY_DAEMON_LOAD_FD_BYTE_SOURCE_H_
#define STICKY_DAEMON_LOAD_FD_BYTE_SOURCE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/load/direct_file.h"
#include "weights/byte_source.h"

namespace sticky::load {

enum class ReadBy : std::int8_t {
  kPageCache = 0,  // for a file that somebody reads again soon
  kDisk,           // what is not in the page cache is read past it, where that can be done
};

// Reads a regular file with pread, never through a mapping: a file that is cut short meanwhile is
// an error and not a SIGBUS. Owns the descriptor.
class FdByteSource : public weights::ByteSource {
 public:
  // Notes the file's size and time of change. name: for messages. calls: what direct reads use.
  FdByteSource(UniqueFd fd, std::string name, ReadBy by = ReadBy::kPageCache,
               const DirectFile::Calls& calls = {});
  Status ReadAt(std::uint64_t offset, std::span<std::uint8_t> out) const override;
  Status CheckUnchanged() const override;
  int fd() const { return fd_.get(); }
  // Of a source that reads past the page cache: bytes of the file that are in it, about; else 0.
  std::uint64_t CachedBytes() const { return direct_ ? direct_->CachedBytes() : 0; }
  std::int64_t modified_ns() const { return modified_ns_; }

 private:
  Status ReadThroughCache(std::uint64_t offset, std::span<std::uint8_t> out) const;

  UniqueFd fd_;
  std::string name_;
  std::int64_t size_bytes_ = 0;
  std::int64_t modified_ns_ = 0;        // since the epoch
  std::unique_ptr<DirectFile> direct_;  // null: all is read through the page cache
};

}  // namespace sticky::load

#endif  // STICKY_DAEMON_LOAD_FD_BYTE_SOURCE_H_
