// Adopting the lease that `stickyctl run` took before it executed this program.

#include <cerrno>
#include <cstdlib>
#include <utility>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/text.h"
#include "shim/attach.h"

namespace sticky::shim {
namespace {

struct LeaseNumbers {
  int connection = -1;
  int manifest = -1;
  std::vector<int> arenas;
};

Error NotALease(const std::string& why) {
  return Error{Code::kCorrupt, "adopt the lease in STICKYINVOC_LEASE: " + why};
}

// A decimal descriptor number from the front of `text`, which then begins after it.
std::optional<int> TakeNumber(const char*& text) {
  if (*text < '0' || *text > '9') return std::nullopt;
  int number = 0;
  for (; *text >= '0' && *text <= '9'; ++text) {
    if (__builtin_mul_overflow(number, 10, &number) ||
        __builtin_add_overflow(number, *text - '0', &number)) {
      return std::nullopt;
    }
  }
  return number;
}

std::optional<LeaseNumbers> ParseLease(const char* text) {
  LeaseNumbers numbers;
  const std::optional<int> connection = TakeNumber(text);
  if (!connection.has_value() || *text++ != ':') return std::nullopt;
  const std::optional<int> manifest = TakeNumber(text);
  if (!manifest.has_value() || *text != ':') return std::nullopt;
  do {
    ++text;
    const std::optional<int> arena = TakeNumber(text);
    if (!arena.has_value() || numbers.arenas.size() == wire::kArenaCountMax) return std::nullopt;
    numbers.arenas.push_back(*arena);
  } while (*text == ',');
  if (*text != '\0') return std::nullopt;
  numbers.connection = *connection;
  numbers.manifest = *manifest;
  return numbers;
}

bool IsSeqpacketSocket(int fd) {
  int type = 0;
  socklen_t size = sizeof type;
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET) {
    return false;
  }
  int domain = 0;
  size = sizeof domain;
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

// State::Open looks at seals and sizes. What it cannot see is that the numbers still mean what they
// meant before exec: that the first is a socket is checked here.
Result<State::Lease> CopyLease(const LeaseNumbers& numbers) {
  if (!IsSeqpacketSocket(numbers.connection)) {
    return NotALease(Format("descriptor %d is not a connection", numbers.connection));
  }
  const auto copy = [](int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); };
  State::Lease lease;
  lease.adopted = true;
  lease.connection = copy(numbers.connection);
  lease.manifest = copy(numbers.manifest);
  bool all = lease.connection.valid() && lease.manifest.valid();
  for (const int arena : numbers.arenas) {
    lease.arenas.push_back(copy(arena));
    all = all && lease.arenas.back().valid();
  }
  if (!all) return ErrnoError("copy a descriptor of the inherited lease", errno);
  return lease;
}

}  // namespace

Result<State> AdoptLease(const std::string& name, const std::optional<Digest>& digest) {
  const char* text = std::getenv("STICKYINVOC_LEASE");
  const char* state = std::getenv("STICKYINVOC_STATE");
  if (text == nullptr || *text == '\0' || state == nullptr || name != state) {
    return Error{Code::kNotFound,
                 "adopt a lease: none came with this process for '" + Escape(name) + "'"};
  }
  const std::optional<LeaseNumbers> numbers = ParseLease(text);
  if (!numbers.has_value()) {
    return NotALease("'" + Escape(text) + "' is not <connection>:<manifest>:<arena>[,<arena>...]");
  }
  STICKY_ASSIGN(State::Lease lease, CopyLease(*numbers));
  return State::Open(name, digest, std::move(lease));
}

}  // namespace sticky::shim
