#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/file_mapping.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <sys/stat.h>

#include "base/check.h"
#include "base/text.h"
#include "device/host_arena.h"

namespace sticky::device {
namespace ipc = boost::interprocess;

struct Mapping::Region {
  ipc::mapped_region region;
  bool writable = false;
};

namespace {

// Boost names the thing to map through this small concept; a descriptor is all that we have.
class Descriptor {
 public:
  Descriptor(int fd, ipc::mode_t mode) : fd_(fd), mode_(mode) {}
  ipc::mapping_handle_t get_mapping_handle() const {
    return ipc::ipcdetail::mapping_handle_from_file_handle(fd_);
  }
  ipc::mode_t get_mode() const { return mode_; }

 private:
  int fd_;
  ipc::mode_t mode_;
};

Result<ipc::mapped_region> Map(int fd, std::uint64_t size_bytes, ipc::mode_t mode) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return ErrnoError("examine the memory to map", errno);
  if (static_cast<std::uint64_t>(status.st_size) < size_bytes) {
    return Error{Code::kCorrupt,
                 Format("map shared memory: want %llu bytes, the descriptor has %lld",
                        static_cast<unsigned long long>(size_bytes),
                        static_cast<long long>(status.st_size))};
  }
  try {
    return ipc::mapped_region(Descriptor(fd, mode), mode, 0, size_bytes);
  } catch (const ipc::interprocess_exception& error) {
    return ErrnoError(
        Format("map %llu bytes of shared memory", static_cast<unsigned long long>(size_bytes)),
        error.get_native_error());
  }
}

}  // namespace

Mapping::Mapping(std::unique_ptr<Region> region) : region_(std::move(region)) {}
Mapping::Mapping(Mapping&&) noexcept = default;
Mapping& Mapping::operator=(Mapping&&) noexcept = default;
Mapping::~Mapping() = default;

Result<Mapping> Mapping::ReadOnly(int fd, std::uint64_t size_bytes) {
  STICKY_ASSIGN(ipc::mapped_region region, Map(fd, size_bytes, ipc::read_only));
  return Mapping(std::make_unique<Region>(Region{std::move(region), /*writable=*/false}));
}

Result<Mapping> Mapping::Writable(int fd, std::uint64_t size_bytes) {
  STICKY_ASSIGN(ipc::mapped_region region, Map(fd, size_bytes, ipc::read_write));
  return Mapping(std::make_unique<Region>(Region{std::move(region), /*writable=*/true}));
}

std::span<const std::uint8_t> Mapping::bytes() const {
  return {static_cast<const std::uint8_t*>(region_->region.get_address()),
          region_->region.get_size()};
}

std::span<std::uint8_t> Mapping::writable_bytes() {
  STICKY_CHECK(region_->writable);
  return {static_cast<std::uint8_t*>(region_->region.get_address()), region_->region.get_size()};
}

}  // namespace sticky::device
