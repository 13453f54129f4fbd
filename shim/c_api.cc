// The C ABI: checks arguments, keeps to the process that attached, and turns errors into sti_error.

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include <unistd.h>

#include "base/dtype.h"
#include "base/text.h"
#include "shim/attach.h"
#include "shim/c_errors.h"
#include "shim/include/stickyinvoc/stickyinvoc.h"
#include "shim/state.h"

struct sti_state {
  sticky::shim::State state;
};

namespace sticky::shim {
namespace {

// Sizes that a struct with a size field had in the first version.
constexpr std::uint32_t kAttachOptionsBytes0 = 32;
constexpr std::uint32_t kStateInfoBytes0 = 96;
static_assert(sizeof(sti_attach_options) == kAttachOptionsBytes0);
static_assert(offsetof(sti_state_info, connected) == kStateInfoBytes0);

// Every function but sti_detach: a child of fork() holds no lease of its own.
Status CheckUsable(const sti_state* state) {
  if (state == nullptr) return Invalid("use a state: it is NULL");
  const pid_t pid = ::getpid();
  if (state->state.pid() == pid) return Ok{};
  return Error{Code::kInvalidArgument,
               Format("use '%s' in process %d: it was attached by process %d before a fork; attach "
                      "it anew",
                      Escape(state->state.manifest().state()).c_str(), static_cast<int>(pid),
                      static_cast<int>(state->state.pid()))};
}

Result<AttachOptions> ReadOptions(const sti_attach_options* options) {
  AttachOptions out;
  if (options == nullptr) return out;
  const std::uint32_t size = options->struct_bytes;
  if (size < kAttachOptionsBytes0 || size > kStructBytesMax) {
    return Error{
        Code::kInvalidArgument,
        Format("attach: options.struct_bytes is %u; set it to sizeof(sti_attach_options)", size)};
  }
  // A caller that is newer than this library may leave what it does not know at 0.
  const auto* bytes = reinterpret_cast<const unsigned char*>(options);
  const bool unknown =
      std::any_of(bytes + sizeof *options, bytes + std::max<std::size_t>(size, sizeof *options),
                  [](unsigned char byte) { return byte != 0; });
  if (unknown || options->reserved != 0) {
    return Invalid("attach: options ask for something that this libstickyinvoc does not know");
  }
  out.wait_ms = options->wait_ms;
  if (options->connect_ms != 0) out.connect_ms = options->connect_ms;
  if (options->socket_path != nullptr) out.socket_path = options->socket_path;
  if (options->digest != nullptr) {
    Digest digest;
    std::memcpy(digest.bytes.data(), options->digest, digest.bytes.size());
    out.digest = digest;
  }
  return out;
}

Result<sti_state*> AttachNew(const char* name, const sti_attach_options* raw_options) {
  STICKY_ASSIGN(const AttachOptions options, ReadOptions(raw_options));
  std::optional<std::string> state_name;
  if (name != nullptr) state_name = name;
  STICKY_ASSIGN(State state, Attach(state_name, options));
  auto* out = new (std::nothrow) sti_state{std::move(state)};
  if (out == nullptr) return Error{Code::kOutOfMemory, "attach: no memory left in this process"};
  return out;
}

void Fill(const State& state, const wire::TensorRef& ref, sti_tensor& out) {
  out.data = state.arena(ref.arena) + ref.offset;
  out.name = ref.name.data();  // the manifest has its strings NUL-terminated
  out.size_bytes = ref.size_bytes;
  out.dtype = static_cast<std::int32_t>(ref.dtype);
  out.rank = static_cast<std::int32_t>(ref.shape.size());
  std::fill(std::begin(out.shape), std::end(out.shape), 1);
  std::copy(ref.shape.begin(), ref.shape.end(), out.shape);
}

void CopyDigest(const std::optional<Digest>& digest, std::uint8_t (&out)[16]) {
  const Digest value = digest.value_or(Digest{});
  std::memcpy(out, value.bytes.data(), sizeof out);
}

Error NotFound(const State& state, const char* kind, const char* name) {
  return Error{Code::kNotFound, "find " + std::string(kind) + " '" + Escape(name) + "': state '" +
                                    Escape(state.manifest().state()) + "' has none"};
}

}  // namespace
}  // namespace sticky::shim

using sticky::Status;
using sticky::shim::CheckUsable;
using sticky::shim::Fail;
using sticky::shim::Invalid;
using sticky::shim::Succeed;

const char* sti_version(void) { return STICKY_VERSION; }

const char* sti_code_name(int code) {
  switch (code < 0 ? -code : code) {
    case STI_OK:
      return "ok";
    case STI_INVALID_ARGUMENT:
      return "invalid argument";
    case STI_NOT_FOUND:
      return "not found";
    case STI_UNAVAILABLE:
      return "unavailable";
    case STI_OUT_OF_MEMORY:
      return "out of memory";
    case STI_PERMISSION_DENIED:
      return "permission denied";
    case STI_CORRUPT:
      return "corrupt";
    case STI_DEVICE_LOST:
      return "device lost";
    case STI_INTERNAL:
      return "internal error";
    default:
      return "unknown code";
  }
}

const char* sti_dtype_name(int dtype) {
  if (dtype < 0 || dtype >= sticky::kDtypeCount) return nullptr;
  return sticky::Name(static_cast<sticky::Dtype>(dtype));
}

int sti_attach(const char* name, const sti_attach_options* options, sti_state** out,
               sti_error* error) {
  if (out == nullptr) return Fail(Invalid("attach: out is NULL"), error);
  const sticky::Result<sti_state*> state = sticky::shim::AttachNew(name, options);
  if (!state.ok()) return Fail(state.error(), error);
  *out = state.value();
  return Succeed(error);
}

// In a child of fork() this drops the child's copies; the parent's connection and mappings are its
// own, so its lease lives on.
void sti_detach(sti_state* state) { delete state; }

int sti_state_info_get(const sti_state* state, sti_state_info* info, sti_error* error) {
  if (const Status status = CheckUsable(state); !status.ok()) return Fail(status.error(), error);
  if (info == nullptr) return Fail(Invalid("get state info: info is NULL"), error);
  const std::uint32_t size = info->struct_bytes;
  if (size < sticky::shim::kStateInfoBytes0 || size > sticky::shim::kStructBytesMax) {
    return Fail(Invalid("get state info: set info.struct_bytes to sizeof(sti_state_info)"), error);
  }
  const sticky::wire::ManifestView& manifest = state->state.manifest();
  // What a newer caller's struct has beyond ours reads as 0.
  std::memset(static_cast<void*>(info), 0, size);
  info->struct_bytes = size;
  info->tensor_count = manifest.tensor_count();
  info->asset_count = manifest.asset_count();
  info->adopted = state->state.adopted() ? 1 : 0;
  info->epoch = manifest.epoch();
  info->daemon_nonce = manifest.daemon_nonce();
  info->arena_bytes = state->state.arena_bytes();
  info->lease_id = state->state.lease_id();
  sticky::shim::CopyDigest(manifest.content_digest(), info->content_digest);
  sticky::shim::CopyDigest(manifest.template_digest(), info->template_digest);
  info->name = manifest.state().data();
  info->device = manifest.device().data();
  if (size >= offsetof(sti_state_info, reserved)) {
    info->connected = state->state.connected() ? 1 : 0;
  }
  return Succeed(error);
}

int sti_tensor_find(const sti_state* state, const char* name, sti_tensor* out, sti_error* error) {
  if (const Status status = CheckUsable(state); !status.ok()) return Fail(status.error(), error);
  if (name == nullptr || out == nullptr) {
    return Fail(Invalid("find tensor: name or out is NULL"), error);
  }
  const auto found = state->state.manifest().FindTensor(name);
  if (!found.has_value()) {
    return Fail(sticky::shim::NotFound(state->state, "tensor", name), error);
  }
  sticky::shim::Fill(state->state, *found, *out);
  return Succeed(error);
}

int sti_tensor_at(const sti_state* state, uint32_t index, sti_tensor* out, sti_error* error) {
  if (const Status status = CheckUsable(state); !status.ok()) return Fail(status.error(), error);
  if (out == nullptr) return Fail(Invalid("get tensor: out is NULL"), error);
  const std::uint32_t count = state->state.manifest().tensor_count();
  if (index >= count) {
    return Fail({sticky::Code::kInvalidArgument,
                 sticky::Format("get tensor %u: the state has %u", index, count)},
                error);
  }
  sticky::shim::Fill(state->state, state->state.manifest().tensor(index), *out);
  return Succeed(error);
}

int sti_asset_find(const sti_state* state, const char* name, const void** data,
                   uint64_t* size_bytes, sti_error* error) {
  if (const Status status = CheckUsable(state); !status.ok()) return Fail(status.error(), error);
  if (name == nullptr || data == nullptr || size_bytes == nullptr) {
    return Fail(Invalid("find asset: name, data or size_bytes is NULL"), error);
  }
  const auto found = state->state.manifest().FindAsset(name);
  if (!found.has_value()) {
    return Fail(sticky::shim::NotFound(state->state, "asset", name), error);
  }
  *data = state->state.arena(found->arena) + found->offset;
  *size_bytes = found->size_bytes;
  return Succeed(error);
}

const char* sti_asset_name_at(const sti_state* state, uint32_t index) {
  if (!CheckUsable(state).ok() || index >= state->state.manifest().asset_count()) return nullptr;
  return state->state.manifest().asset(index).name.data();
}
