#include "tests/testing/hung_file.h"

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text.h"
#include "flatbuffers/wire_socket.h"

namespace sticky::testing {
namespace {

constexpr std::uint64_t kFileNode = 2;
constexpr char kFileName[] = "model.safetensors";

fuse_attr AttributesOf(std::uint64_t node) {
  fuse_attr out{};
  out.ino = node;
  out.size = node == FUSE_ROOT_ID ? 0 : HungFile::kSizeBytes;
  out.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0644;
  out.nlink = 1;
  out.uid = ::geteuid();
  out.gid = ::getegid();
  return out;
}

template <typename T>
std::vector<std::uint8_t> BytesOf(const T& value) {
  std::vector<std::uint8_t> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

void Reply(int device, const fuse_in_header& to, int error, std::span<const std::uint8_t> body) {
  fuse_out_header header{};
  header.len = static_cast<std::uint32_t>(sizeof header + body.size());
  header.error = -error;
  header.unique = to.unique;
  std::vector<std::uint8_t> bytes = BytesOf(header);
  bytes.insert(bytes.end(), body.begin(), body.end());
  static_cast<void>(::write(device, bytes.data(), bytes.size()));
}

std::vector<std::uint8_t> Init() {
  fuse_init_out out{};
  out.major = FUSE_KERNEL_VERSION;
  out.minor = 31;
  out.max_write = 1 << 16;
  out.max_background = 8;
  out.congestion_threshold = 4;
  return BytesOf(out);
}

std::vector<std::uint8_t> Lookup() {
  fuse_entry_out out{};
  out.nodeid = kFileNode;
  out.attr = AttributesOf(kFileNode);
  return BytesOf(out);
}

std::vector<std::uint8_t> Attributes(std::uint64_t node) {
  fuse_attr_out out{};  // valid for no time at all, so each asks again
  out.attr = AttributesOf(node);
  return BytesOf(out);
}

}  // namespace

// Until the device is closed or taken away.
void HungFile::Serve(int device, Control& control) {
  std::vector<std::uint8_t> request(1 << 17);
  for (;;) {
    const ssize_t size = ::read(device, request.data(), request.size());
    if (size < 0 && (errno == EINTR || errno == ENOENT)) continue;
    if (size < static_cast<ssize_t>(sizeof(fuse_in_header))) return;
    fuse_in_header header{};
    std::memcpy(&header, request.data(), sizeof header);
    if (control.hangs) continue;  // taken, and never answered
    switch (header.opcode) {
      case FUSE_INIT:
        Reply(device, header, 0, Init());
        break;
      case FUSE_LOOKUP:
        Reply(device, header, 0, Lookup());
        break;
      case FUSE_GETATTR:
        Reply(device, header, 0, Attributes(header.nodeid));
        break;
      case FUSE_OPEN:
        Reply(device, header, 0, BytesOf(fuse_open_out{}));
        break;
      case FUSE_FLUSH:
      case FUSE_RELEASE:
        Reply(device, header, 0, {});
        break;
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET:
      case FUSE_INTERRUPT:
        break;  // these have no answer
      default:
        Reply(device, header, ENOSYS, {});
    }
  }
}

Result<std::unique_ptr<HungFile>> HungFile::Make() {
  std::unique_ptr<HungFile> made(new HungFile);
  UniqueFd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (!device.valid()) return ErrnoError("open /dev/fuse", errno);
  void* const shared =
      ::mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return ErrnoError("share memory", errno);
  made->control_ = new (shared) Control;
  const std::string options = Format("fd=%d,rootmode=40000,user_id=%u,group_id=%u,allow_other",
                                     device.get(), ::geteuid(), ::getegid());
  const char* const place = made->folder_.path().c_str();
  if (::mount("hung", place, "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
    return ErrnoError("mount a FUSE file system", errno);
  }
  made->server_ = Process::Fork([&] {
    Serve(device.get(), *made->control_);
    return 0;
  });
  device.Reset();  // the server alone has it now: with its end the file system ends
  made->file_.Reset(::open((made->folder_ / kFileName).c_str(), O_RDONLY | O_CLOEXEC));
  const int failure = errno;
  ::umount2(place, MNT_DETACH);  // nobody else is to find it; the open file keeps it
  if (!made->file_.valid()) return ErrnoError("open a file of our own", failure);
  return made;
}

void HungFile::Release() { server_.KillAndReap(); }

HungFile::~HungFile() {
  Release();
  if (control_ != nullptr) ::munmap(control_, sizeof(Control));
}

}  // namespace sticky::testing
