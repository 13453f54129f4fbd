// An invocation's view of a daemon that lies, fails, dies or is silent, and of its own mistakes:
// a typed error that says what was wrong, nothing attached, and nothing left behind.

#include <cstring>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "flatbuffers/wire_socket.h"
#include "tests/unit/shim/shim_fixture.h"

namespace sticky::shim {
namespace {

using sticky::testing::FakeDaemon;
using sticky::testing::SampleState;
using Then = FakeDaemon::Then;
using ::testing::HasSubstr;

class AttachRefusedTest : public ShimTest {
 protected:
  // Attaches to a daemon that answers so, and expects that to fail with `code` and leak nothing.
  // Gives the message.
  std::string Refused(FakeDaemon::Answer answer, int code) {
    FakeDaemon daemon(std::move(answer));
    const std::size_t before = OpenFdCount();
    const StatePtr state = Attach(daemon);
    EXPECT_EQ(state, nullptr);
    EXPECT_EQ(code_, -code) << error_.message;
    EXPECT_EQ(error_.code, code);
    daemon.WaitForClosed(1);
    EXPECT_LE(OpenFdCount(), before);
    return error_.message;
  }

  // A daemon whose reply has these descriptors and this body.
  static FakeDaemon::Answer Reply(wire::Body body, std::vector<int> fds) {
    return [body = std::move(body), fds = std::move(fds)](int connection,
                                                          const wire::Received& received) {
      FakeDaemon::Send(connection, received, body, fds);
      return Then::kKeep;
    };
  }

  // A daemon with an honest arena and a manifest that `change` has been at.
  std::string RefusedManifest(const std::function<void(wire::Manifest&)>& change,
                              int code = STI_CORRUPT) {
    wire::Manifest manifest = sample_.manifest();
    change(manifest);
    const UniqueFd fd = SampleState::ManifestFd(manifest);
    return Refused(Reply(sample_.Reply(), {fd.get(), arena_.get()}), code);
  }

  SampleState sample_;
  UniqueFd arena_ = sample_.LendArena();
  UniqueFd manifest_ = sample_.ManifestFd();
};

// A memfd of `bytes` zeros with `seals`.
UniqueFd Memfd(off_t bytes, int seals) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), bytes), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

TEST_F(AttachRefusedTest, AnUnsealedArenaIsRefused) {
  for (const int seals : {0, F_SEAL_WRITE, F_SEAL_GROW | F_SEAL_SHRINK}) {
    const UniqueFd arena = Memfd(4096, seals);
    EXPECT_THAT(Refused(Reply(sample_.Reply(), {manifest_.get(), arena.get()}), STI_CORRUPT),
                HasSubstr("seals"));
  }
}

TEST_F(AttachRefusedTest, AnUnsealedManifestIsRefused) {
  const UniqueFd manifest = Memfd(4096, F_SEAL_GROW | F_SEAL_SHRINK);

  EXPECT_THAT(Refused(Reply(sample_.Reply(), {manifest.get(), arena_.get()}), STI_CORRUPT),
              HasSubstr("seals"));
}

TEST_F(AttachRefusedTest, AFileInPlaceOfAnArenaIsRefused) {
  const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));

  EXPECT_THAT(Refused(Reply(sample_.Reply(), {manifest_.get(), file.get()}), STI_CORRUPT),
              HasSubstr("memfd"));
}

TEST_F(AttachRefusedTest, AShortArenaIsRefused) {
  const UniqueFd arena = Memfd(4095, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE);

  EXPECT_THAT(Refused(Reply(sample_.Reply(), {manifest_.get(), arena.get()}), STI_CORRUPT),
              HasSubstr("4095"));
}

TEST_F(AttachRefusedTest, ATruncatedManifestIsRefused) {
  const std::vector<std::uint8_t> whole = wire::EncodeManifest(sample_.manifest());
  for (const std::size_t size : {std::size_t{1}, std::size_t{20}, whole.size() - 1}) {
    const UniqueFd manifest = wire::MakeBlob(std::span(whole).first(size)).value();
    EXPECT_THAT(Refused(Reply(sample_.Reply(), {manifest.get(), arena_.get()}), STI_CORRUPT),
                HasSubstr("manifest"));
  }
}

TEST_F(AttachRefusedTest, AnEmptyManifestIsRefused) {
  const UniqueFd manifest = Memfd(0, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE);

  Refused(Reply(sample_.Reply(), {manifest.get(), arena_.get()}), STI_CORRUPT);
}

TEST_F(AttachRefusedTest, AManifestThatDisagreesIsRefused) {
  EXPECT_THAT(RefusedManifest([](wire::Manifest& m) { m.state = "other"; }), HasSubstr("'other'"));
  EXPECT_THAT(RefusedManifest([](wire::Manifest& m) { m.epoch = 4; }), HasSubstr("epoch"));
  EXPECT_THAT(RefusedManifest([](wire::Manifest& m) { m.arena_bytes = {8192}; }),
              HasSubstr("8192"));
  EXPECT_THAT(RefusedManifest([](wire::Manifest& m) {
                m.arena_bytes = {4096, 4096};
              }),
              HasSubstr("arenas"));
  EXPECT_THAT(RefusedManifest([](wire::Manifest& m) { m.content_digest.reset(); }),
              HasSubstr("digest"));
  EXPECT_THAT(RefusedManifest([](wire::Manifest& m) { m.tensors[0].offset = 4096; }),
              HasSubstr("arena"));
}

TEST_F(AttachRefusedTest, ADeviceFromTheFutureIsUnavailable) {
  EXPECT_THAT(RefusedManifest([](wire::Manifest& m) { m.device = "GPU-1"; }, STI_UNAVAILABLE),
              HasSubstr("GPU-1"));
}

TEST_F(AttachRefusedTest, MissingAndSpareDescriptorsAreRefused) {
  EXPECT_THAT(Refused(Reply(sample_.Reply(), {}), STI_CORRUPT), HasSubstr("descriptors"));
  EXPECT_THAT(Refused(Reply(sample_.Reply(), {manifest_.get()}), STI_CORRUPT),
              HasSubstr("descriptors"));
  EXPECT_THAT(Refused(Reply(sample_.Reply(), {manifest_.get(), arena_.get(), 0}), STI_CORRUPT),
              HasSubstr("descriptors"));
}

TEST_F(AttachRefusedTest, AnAnswerToSomethingElseIsRefused) {
  EXPECT_THAT(Refused(Reply(wire::ListReply{}, {}), STI_CORRUPT), HasSubstr("attach request"));
  const auto other_request = [&](int connection, const wire::Received& received) {
    const wire::Message answer{received.message.request_id + 1, sample_.Reply()};
    const std::vector<int> fds{manifest_.get(), arena_.get()};
    EXPECT_TRUE(wire::SendMessage(connection, answer, fds, Deadline::AfterMs(1000)).ok());
    return Then::kKeep;
  };
  EXPECT_THAT(Refused(other_request, STI_CORRUPT), HasSubstr("request"));
}

TEST_F(AttachRefusedTest, GarbageIsRefused) {
  const auto garbage = [](int connection, const wire::Received&) {
    const std::vector<std::uint8_t> bytes(100, 0xA5);
    EXPECT_TRUE(wire::SendFrame(connection, bytes, {}, Deadline::AfterMs(1000)).ok());
    return Then::kKeep;
  };

  Refused(garbage, STI_CORRUPT);
}

TEST_F(AttachRefusedTest, TheDaemonsFailureIsPassedOn) {
  const wire::Failure failure{Code::kNotFound, "no state \x1b[31m'sample'", 2};

  const std::string message = Refused(Reply(failure, {}), STI_NOT_FOUND);

  EXPECT_THAT(message, HasSubstr("attach 'sample': no state"));
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
  EXPECT_EQ(error_.os_code, 2);
}

TEST_F(AttachRefusedTest, EveryCodeOfTheDaemonIsPassedOn) {
  for (int code = STI_INVALID_ARGUMENT; code <= STI_INTERNAL; ++code) {
    Refused(Reply(wire::Failure{static_cast<Code>(code), "because", 0}, {}), code);
    EXPECT_STRNE(sti_code_name(-code), "unknown code");
  }
}

TEST_F(AttachRefusedTest, AVeryLongMessageIsCut) {
  Refused(Reply(wire::Failure{Code::kInternal, std::string(4000, 'x'), 0}, {}), STI_INTERNAL);

  EXPECT_EQ(std::strlen(error_.message), sizeof error_.message - 1);
}

TEST_F(AttachRefusedTest, ASilentDaemonIsUnavailableAtTheDeadline) {
  FakeDaemon daemon([](int, const wire::Received&) { return Then::kKeep; });
  sti_attach_options options = Options(daemon);
  options.connect_ms = 20;
  sti_state* state = nullptr;

  EXPECT_EQ(sti_attach("sample", &options, &state, &error_), -STI_UNAVAILABLE);

  EXPECT_EQ(error_.os_code, ETIMEDOUT);
  EXPECT_THAT(error_.message, HasSubstr("deadline"));
  EXPECT_EQ(state, nullptr);
}

TEST_F(AttachRefusedTest, ADaemonThatDiesWithoutAnAnswerIsUnavailable) {
  EXPECT_THAT(Refused([](int, const wire::Received&) { return Then::kClose; }, STI_UNAVAILABLE),
              HasSubstr("closed"));
}

TEST_F(AttachRefusedTest, ADaemonThatDiesAfterItsAnswerIsAttachedAllTheSame) {
  FakeDaemon daemon([&](int connection, const wire::Received& received) {
    FakeDaemon::Send(connection, received, sample_.Reply(), {manifest_.get(), arena_.get()});
    return Then::kClose;
  });

  EXPECT_NE(Attach(daemon), nullptr) << error_.message;
}

TEST_F(AttachRefusedTest, ProgressIsPassedOver) {
  FakeDaemon daemon([&](int connection, const wire::Received& received) {
    wire::LoadProgress progress;
    progress.state.name = "sample";
    FakeDaemon::Send(connection, received, progress);
    FakeDaemon::Send(connection, received, progress);
    return FakeDaemon::Honest(sample_)(connection, received);
  });

  EXPECT_NE(Attach(daemon), nullptr) << error_.message;
}

TEST_F(AttachRefusedTest, TheRequestCarriesTheWaitAndTheDigest) {
  wire::AttachRequest seen;
  FakeDaemon daemon([&](int connection, const wire::Received& received) {
    seen = std::get<wire::AttachRequest>(received.message.body);
    return FakeDaemon::Honest(sample_)(connection, received);
  });
  sti_attach_options options = Options(daemon);
  options.wait_ms = 1234;
  options.digest = sample_.manifest().content_digest->bytes.data();
  sti_state* state = nullptr;

  ASSERT_EQ(sti_attach("sample", &options, &state, &error_), STI_OK) << error_.message;
  sti_detach(state);

  EXPECT_EQ(seen.state, "sample");
  EXPECT_EQ(seen.wait_ms, 1234u);
  EXPECT_EQ(seen.digest, sample_.manifest().content_digest);
  EXPECT_FALSE(seen.hold);
}

// S28: the daemon may not know what was pinned; the shim looks for itself.
TEST_F(AttachRefusedTest, AnotherDigestIsRefusedWithBoth) {
  FakeDaemon daemon(FakeDaemon::Honest(sample_));
  sti_attach_options options = Options(daemon);
  std::uint8_t digest[16];
  std::memset(digest, 0xAB, sizeof digest);
  options.digest = digest;
  sti_state* state = nullptr;

  EXPECT_EQ(sti_attach("sample", &options, &state, &error_), -STI_CORRUPT);

  EXPECT_THAT(error_.message, HasSubstr("abababababababababababababababab"));
  EXPECT_THAT(error_.message, HasSubstr("000102030405060708090a0b0c0d0e0f"));
}

TEST_F(AttachRefusedTest, AnotherProtocolIsNamed) {
  const auto future = [](int connection, const wire::Received& received) {
    // As ours, but the two protocol numbers are raised where the encoder has put them.
    std::vector<std::uint8_t> low = wire::Encode({received.message.request_id, wire::ListReply{}});
    const std::uint8_t wanted[] = {1, 0, 1, 0};
    const auto found = std::search(low.begin(), low.end(), std::begin(wanted), std::end(wanted));
    EXPECT_NE(found, low.end());
    found[0] = 9;
    found[2] = 9;
    EXPECT_TRUE(wire::SendFrame(connection, low, {}, Deadline::AfterMs(1000)).ok());
    return Then::kKeep;
  };

  const std::string message = Refused(future, STI_UNAVAILABLE);

  EXPECT_THAT(message, HasSubstr("9 to 9"));
  EXPECT_THAT(message, HasSubstr("1 to 1"));
}

TEST_F(AttachRefusedTest, NoDaemonIsUnavailableAndSaysWhatToDo) {
  ::setenv("STICKYINVOC_SOCKET", "/tmp/no-such-folder/s", 1);
  sti_state* state = nullptr;

  EXPECT_EQ(sti_attach("sample", nullptr, &state, &error_), -STI_UNAVAILABLE);

  EXPECT_THAT(error_.message, HasSubstr("/tmp/no-such-folder/s"));
  EXPECT_THAT(error_.message, HasSubstr("start stickyd"));
}

TEST_F(AttachRefusedTest, AnOverlongSocketPathIsInvalid) {
  const std::string path(108, 's');
  sti_attach_options options{};
  options.struct_bytes = sizeof options;
  options.socket_path = path.c_str();
  sti_state* state = nullptr;

  EXPECT_EQ(sti_attach("sample", &options, &state, &error_), -STI_INVALID_ARGUMENT);

  EXPECT_THAT(error_.message, HasSubstr("108"));
}

TEST_F(AttachRefusedTest, MistakesOfTheCallerAreInvalid) {
  FakeDaemon daemon(FakeDaemon::Honest(sample_));
  const sti_attach_options options = Options(daemon);
  sti_state* state = nullptr;

  EXPECT_EQ(sti_attach(nullptr, &options, &state, &error_), -STI_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("STICKYINVOC_STATE"));
  EXPECT_EQ(sti_attach("no/name", &options, &state, &error_), -STI_INVALID_ARGUMENT);
  EXPECT_EQ(sti_attach("", &options, &state, &error_), -STI_INVALID_ARGUMENT);
  EXPECT_EQ(sti_attach("sample", &options, nullptr, &error_), -STI_INVALID_ARGUMENT);
  EXPECT_EQ(sti_attach("sample", &options, nullptr, nullptr), -STI_INVALID_ARGUMENT);
  EXPECT_EQ(sti_tensor_find(nullptr, "a", nullptr, &error_), -STI_INVALID_ARGUMENT);
  EXPECT_EQ(daemon.accepted_count(), 0);
}

TEST_F(AttachRefusedTest, TheNameComesFromTheEnvironmentWhenNoneIsGiven) {
  FakeDaemon daemon(FakeDaemon::Honest(sample_));
  ::setenv("STICKYINVOC_SOCKET", daemon.path().c_str(), 1);
  ::setenv("STICKYINVOC_STATE", "sample", 1);
  sti_state* state = nullptr;

  EXPECT_EQ(sti_attach(nullptr, nullptr, &state, &error_), STI_OK) << error_.message;
  sti_detach(state);
}

TEST_F(AttachRefusedTest, OptionsOfOtherVersionsAreUnderstoodOrRefused) {
  FakeDaemon daemon(FakeDaemon::Honest(sample_));
  struct {
    sti_attach_options known;
    std::uint64_t newer;
  } wide{Options(daemon), 0};
  wide.known.struct_bytes = sizeof wide;
  sti_state* state = nullptr;

  EXPECT_EQ(sti_attach("sample", &wide.known, &state, &error_), STI_OK) << error_.message;
  sti_detach(state);
  wide.newer = 1;
  EXPECT_EQ(sti_attach("sample", &wide.known, &state, &error_), -STI_INVALID_ARGUMENT);
  wide.newer = 0;
  wide.known.reserved = 1;
  EXPECT_EQ(sti_attach("sample", &wide.known, &state, &error_), -STI_INVALID_ARGUMENT);
  wide.known.reserved = 0;
  for (const std::uint32_t size : {0u, 16u, 31u, 1u << 20}) {
    wide.known.struct_bytes = size;
    EXPECT_EQ(sti_attach("sample", &wide.known, &state, &error_), -STI_INVALID_ARGUMENT);
    EXPECT_THAT(error_.message, HasSubstr("struct_bytes"));
  }
}

TEST_F(AttachRefusedTest, InfoOfOtherVersionsIsFilledOrRefused) {
  FakeDaemon daemon(FakeDaemon::Honest(sample_));
  const StatePtr state = Attach(daemon);
  ASSERT_NE(state, nullptr) << error_.message;
  struct {
    sti_state_info known;
    std::uint64_t newer;
  } wide{{}, 7};
  wide.known.struct_bytes = sizeof wide;

  EXPECT_EQ(sti_state_info_get(state.get(), &wide.known, &error_), STI_OK);
  EXPECT_EQ(wide.newer, 0u);
  EXPECT_EQ(wide.known.struct_bytes, sizeof wide);
  for (const std::uint32_t size : {0u, 95u, 1u << 20}) {
    wide.known.struct_bytes = size;
    EXPECT_EQ(sti_state_info_get(state.get(), &wide.known, &error_), -STI_INVALID_ARGUMENT);
  }
}

TEST_F(AttachRefusedTest, NoDescriptorsLeftIsOutOfMemoryOrCorruptAndNothingIsLeaked) {
  FakeDaemon daemon(FakeDaemon::Honest(sample_));
  const int status = InChild([&] {
    const sti_attach_options options = Options(daemon);
    const int next = ::dup(0);
    ::close(next);
    for (int room = 0; room < 3; ++room) {
      rlimit limit{};
      if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
      const rlim_t usual = limit.rlim_cur;
      limit.rlim_cur = static_cast<rlim_t>(next) + static_cast<rlim_t>(room);
      if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
      sti_state* state = nullptr;
      const int code = sti_attach("sample", &options, &state, nullptr);
      if (code != -STI_OUT_OF_MEMORY && code != -STI_CORRUPT) return 2;
      limit.rlim_cur = usual;
      if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 3;
      const int after = ::dup(0);
      ::close(after);
      if (after != next) return 4;
    }
    return 0;
  });

  EXPECT_TRUE(Exited(status, 0)) << WEXITSTATUS(status);
}

}  // namespace
}  // namespace sticky::shim
