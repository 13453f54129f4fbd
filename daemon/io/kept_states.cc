#include "daemon/io/kept_states.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include <sys/stat.h>

#include "base/text.h"
#include "flatbuffers/wire_blob.h"
#include "flatbuffers/wire_manifest.h"

namespace sticky::daemon {
namespace {

std::string StateName(std::uint64_t epoch) {
  return Format("%ss%llu", kKeptPrefix, static_cast<unsigned long long>(epoch));
}
std::string RecordName(std::uint64_t epoch, std::uint64_t revision) {
  return Format("%sr%llu.%llu", kKeptPrefix, static_cast<unsigned long long>(epoch),
                static_cast<unsigned long long>(revision));
}
std::string NodeName(std::uint64_t revision) {
  return Format("%sn%llu", kKeptPrefix, static_cast<unsigned long long>(revision));
}

// What a name says: its kind ('s', 'r', 'n'), and one or two numbers. Kind 0: it is none of ours.
struct ParsedName {
  char kind = 0;
  std::uint64_t number = 0;    // an epoch; of 'n', a revision
  std::uint64_t revision = 0;  // of 'r'
};

ParsedName Parse(const std::string& name) {
  const std::size_t prefix = std::strlen(kKeptPrefix);
  if (name.size() < prefix + 2) return {};
  ParsedName out{name[prefix], 0, 0};
  const char* const end = name.data() + name.size();
  std::from_chars_result read = std::from_chars(name.data() + prefix + 1, end, out.number);
  if (out.kind == 'r' && read.ec == std::errc{}) {
    if (read.ptr == end || *read.ptr != '.') return {};
    read = std::from_chars(read.ptr + 1, end, out.revision);
  }
  const bool known = out.kind == 's' || out.kind == 'r' || out.kind == 'n';
  return known && read.ec == std::errc{} && read.ptr == end ? out : ParsedName{};
}

// The bytes that the descriptors hold in memory.
std::uint64_t BytesOf(const std::vector<UniqueFd>& fds) {
  constexpr std::uint64_t kStatBlockBytes = 512;
  std::uint64_t sum = 0;
  for (const UniqueFd& fd : fds) {
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0) continue;
    sum += static_cast<std::uint64_t>(status.st_blocks) * kStatBlockBytes;
  }
  return sum;
}

// Takes the descriptor of that inode out of `fds`; none when it is not there.
UniqueFd Take(std::vector<UniqueFd>& fds, std::uint64_t inode) {
  for (UniqueFd& fd : fds) {
    struct stat status {};
    if (fd.valid() && ::fstat(fd.get(), &status) == 0 && status.st_ino == inode) {
      return std::move(fd);
    }
  }
  return UniqueFd();
}

Error Broken(const wire::StateRecord& record, const char* how) {
  return Error{Code::kCorrupt, "of state '" + Escape(record.state) + "', " + how};
}

Result<wire::Manifest> ReadManifest(int fd, const wire::StateRecord& record) {
  STICKY_ASSIGN(const wire::SealedView bytes, wire::SealedView::Map(fd, wire::kManifestBytesMax));
  STICKY_ASSIGN(wire::Manifest manifest, wire::DecodeManifest(bytes.bytes()));
  const bool same = manifest.state == record.state && manifest.epoch == record.epoch &&
                    manifest.content_digest == record.content_digest &&
                    manifest.template_digest == record.template_digest &&
                    manifest.arena_bytes.size() == record.arena_inodes.size();
  if (!same) return Broken(record, "the record and the manifest contradict each other");
  return manifest;
}

Result<std::uint64_t> InodeOf(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return ErrnoError("keep a state: examine its memory", errno);
  return std::uint64_t{status.st_ino};
}

// What is known of the daemon itself; the default when it cannot be read.
Result<wire::NodeRecord> ReadNode(int fd) {
  STICKY_ASSIGN(const wire::SealedView bytes, wire::SealedView::Map(fd, wire::kRecordBytesMax));
  return wire::DecodeNodeRecord(bytes.bytes());
}

}  // namespace

// Errors: kUnavailable when a daemon of another version kept it; kCorrupt, kNotFound when nobody
// will ever be able to use it.
Result<KeptState> KeptStates::Assemble(std::uint64_t epoch, Pieces& pieces) {
  if (pieces.records.empty()) return Error{Code::kNotFound, "it was never published"};
  KeptState out;
  const UniqueFd& newest = pieces.records.rbegin()->second;
  STICKY_ASSIGN(const wire::SealedView bytes,
                wire::SealedView::Map(newest.get(), wire::kRecordBytesMax));
  STICKY_ASSIGN(out.record, wire::DecodeStateRecord(bytes.bytes()));
  if (out.record.epoch != epoch) return Broken(out.record, "the record is of another epoch");
  std::vector<UniqueFd> arenas;
  for (const std::uint64_t inode : out.record.arena_inodes) {
    arenas.push_back(Take(pieces.fds, inode));
    if (!arenas.back().valid()) return Broken(out.record, "an arena is missing");
  }
  for (UniqueFd& fd : pieces.fds) {
    if (fd.valid()) out.manifest = std::move(fd);  // the one that is left
  }
  if (!out.manifest.valid()) return Broken(out.record, "the manifest is missing");
  STICKY_ASSIGN(const wire::Manifest manifest, ReadManifest(out.manifest.get(), out.record));
  for (std::size_t i = 0; i < arenas.size(); ++i) {
    STICKY_ASSIGN(device::HostArena arena,
                  device::HostArena::Adopt(std::move(arenas[i]), manifest.arena_bytes[i]));
    if (!arena.sealed()) return Broken(out.record, "an arena is not sealed");
    out.arenas.push_back(std::move(arena));
  }
  return out;
}

// The names and descriptors that belong together. Names that say nothing to us are removed.
KeptStates::Found KeptStates::Sort(std::map<std::string, std::vector<UniqueFd>> kept) {
  Found found;
  for (auto& [name, fds] : kept) {
    keeper_.Has(name, fds.size());
    const ParsedName parsed = Parse(name);
    if (parsed.kind == 's') {
      found.epochs[parsed.number].fds = std::move(fds);
    } else if (parsed.kind == 'r') {
      found.epochs[parsed.number].records[parsed.revision] = std::move(fds.front());
    } else if (parsed.kind == 'n') {
      found.node_records[parsed.number] = std::move(fds.front());
    } else {
      keeper_.Remove(name, [] {});
    }
  }
  return found;
}

Recovered KeptStates::Recover(std::map<std::string, std::vector<UniqueFd>> kept) {
  Recovered out;
  Found found = Sort(std::move(kept));
  for (auto& [epoch, pieces] : found.epochs) {
    out.epoch_max = epoch;
    RecoverState(epoch, pieces, out);
  }
  if (found.node_records.empty()) return out;
  node_revision_ = found.node_records.rbegin()->first;
  const Result<wire::NodeRecord> node = ReadNode(found.node_records.rbegin()->second.get());
  if (node.ok()) out.node = node.value();
  if (!node.ok()) out.problems.push_back(node.error().message);
  return out;
}

void KeptStates::RecoverState(std::uint64_t epoch, Pieces& pieces, Recovered& out) {
  const std::uint64_t bytes = BytesOf(pieces.fds);
  Kept& kept = kept_[epoch];
  for (const auto& [revision, fd] : pieces.records) {
    if (kept.revision != 0) keeper_.Remove(RecordName(epoch, kept.revision), [] {});
    kept.revision = revision;
  }
  Result<KeptState> state = Assemble(epoch, pieces);
  if (state.ok()) {
    kept.arena_inodes = state.value().record.arena_inodes;
    return out.states.push_back(std::move(state).value());
  }
  if (state.error().code != Code::kNotFound) {
    out.problems.push_back(Format("epoch %llu was kept, but is not taken over: %s",
                                  static_cast<unsigned long long>(epoch),
                                  Printable(state.error().message).c_str()));
  }
  if (state.error().code != Code::kUnavailable) return Forget(epoch, [] {});
  out.foreign_bytes += bytes;
  ++out.foreign_count;
}

void KeptStates::Keep(wire::StateRecord record, int manifest,
                      const std::vector<device::HostArena>& arenas,
                      std::function<void(bool)> done) {
  const std::uint64_t epoch = record.epoch;
  std::vector<int> fds{manifest};
  for (const device::HostArena& arena : arenas) {
    const Result<std::uint64_t> inode = InodeOf(arena.fd());
    if (!inode.ok()) return done(false);
    record.arena_inodes.push_back(inode.value());
    fds.push_back(arena.fd());
  }
  // Room is left for the records of all, so that a change can always be told.
  constexpr std::uint32_t kRoomForRecords = 512;
  if (keeper_.fd_count() + fds.size() + kRoomForRecords > keeper_.fd_count_max()) {
    return done(false);
  }
  kept_[epoch] = {record.arena_inodes, /*revision=*/0};
  keeper_.Store(StateName(epoch), fds, /*patient=*/false, [](bool) {});
  StoreRecord(RecordName(epoch, 1), wire::EncodeRecord(record), /*patient=*/false,
              [this, epoch, done](bool sent) {
                if (!sent) Forget(epoch, [] {});
                done(sent);
              });
  if (const auto found = kept_.find(epoch); found != kept_.end()) found->second.revision = 1;
}

void KeptStates::Update(wire::StateRecord record) {
  const auto found = kept_.find(record.epoch);
  if (found == kept_.end()) return;
  Kept& kept = found->second;
  record.arena_inodes = kept.arena_inodes;
  const std::string old = RecordName(record.epoch, kept.revision);
  ++kept.revision;
  StoreRecord(RecordName(record.epoch, kept.revision), wire::EncodeRecord(record), /*patient=*/true,
              [this, old](bool sent) {
                if (sent) keeper_.Remove(old, [] {});
              });
}

void KeptStates::Update(const wire::NodeRecord& record) {
  const std::string old = NodeName(node_revision_);
  ++node_revision_;
  StoreRecord(NodeName(node_revision_), wire::EncodeRecord(record), /*patient=*/true,
              [this, old](bool sent) {
                if (sent) keeper_.Remove(old, [] {});
              });
}

void KeptStates::StoreRecord(const std::string& name, std::span<const std::uint8_t> bytes,
                             bool patient, std::function<void(bool)> done) {
  const Result<UniqueFd> record = device::SealedCopy("record", bytes);
  if (!record.ok()) return done(false);
  const int fd = record.value().get();
  keeper_.Store(name, std::span(&fd, 1), patient, std::move(done));
}

void KeptStates::Forget(std::uint64_t epoch, std::function<void()> done) {
  const auto found = kept_.find(epoch);
  if (found == kept_.end()) return done();
  const std::uint64_t revision = found->second.revision;
  kept_.erase(found);
  if (revision != 0) keeper_.Remove(RecordName(epoch, revision), [] {});
  leaving_.insert(epoch);
  keeper_.Remove(StateName(epoch), [this, epoch, done] {
    leaving_.erase(epoch);
    done();
  });
}

void KeptStates::ForgetAll() {
  while (!kept_.empty()) Forget(kept_.begin()->first, [] {});
  if (node_revision_ != 0) keeper_.Remove(NodeName(node_revision_), [] {});
}

}  // namespace sticky::daemon
