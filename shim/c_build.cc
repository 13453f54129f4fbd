// The C ABI of builders: checks arguments and turns errors into sti_error.

#include <cstring>
#include <new>
#include <utility>

#include <unistd.h>

#include "base/text.h"
#include "shim/build.h"
#include "shim/c_errors.h"
#include "shim/include/stickyinvoc/build.h"

struct sti_build {
  sticky::shim::Build build;
  pid_t pid;  // of the process that began it
};

namespace sticky::shim {
namespace {

constexpr std::uint32_t kBuildOptionsBytes0 = 88;
static_assert(sizeof(sti_build_options) == kBuildOptionsBytes0);

std::string TextOf(const char* text) { return text != nullptr ? text : ""; }

Result<std::optional<BuildOptions>> ReadOptions(const sti_build_options* options) {
  if (options == nullptr) return std::optional<BuildOptions>();
  const std::uint32_t size = options->struct_bytes;
  if (size < kBuildOptionsBytes0 || size > kStructBytesMax) {
    return Error{Code::kInvalidArgument,
                 Format("begin a build: options.struct_bytes is %u; set it to "
                        "sizeof(sti_build_options)",
                        size)};
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(options);
  const bool unknown =
      std::any_of(bytes + sizeof *options, bytes + std::max<std::size_t>(size, sizeof *options),
                  [](unsigned char byte) { return byte != 0; });
  const bool out_of_range =
      options->placement > STI_IN_PLACE || options->access > STI_ACCESS_NODE || options->pin > 1;
  if (unknown || out_of_range) {
    return Invalid(
        "begin a build: options ask for something that this libstickyinvoc does not know");
  }
  BuildOptions out;
  wire::BuildRequest& request = out.request;
  request.state = TextOf(options->state);
  request.placement = static_cast<wire::Placement>(options->placement);
  request.policy.access.mode = static_cast<AccessMode>(options->access);
  request.policy.pin = options->pin == 1;
  request.policy.idle_ms = options->idle_ms;
  request.source = TextOf(options->source);
  if (options->base != nullptr) request.base = options->base;
  request.builder = TextOf(options->builder);
  request.deadline_ms = options->deadline_ms;
  if (options->recipe_digest != nullptr) {
    Digest digest;
    std::memcpy(digest.bytes.data(), options->recipe_digest, digest.bytes.size());
    request.template_digest = digest;
  }
  out.cpu = TextOf(options->cpu);
  out.connect_ms = options->connect_ms;
  if (options->socket_path != nullptr) out.socket_path = options->socket_path;
  return std::optional(std::move(out));
}

Result<sti_build*> BeginNew(const sti_build_options* raw_options) {
  STICKY_ASSIGN(const std::optional<BuildOptions> options, ReadOptions(raw_options));
  STICKY_ASSIGN(Build build, Build::Begin(options));
  auto* out = new (std::nothrow) sti_build{std::move(build), ::getpid()};
  if (out == nullptr) return Error{Code::kOutOfMemory, "begin a build: no memory is left"};
  return out;
}

Status CheckUsable(const sti_build* build) {
  if (build == nullptr) return Invalid("use a build: it is NULL");
  if (build->pid == ::getpid()) return Ok{};
  return Invalid("use a build: another process began it, before a fork");
}

}  // namespace
}  // namespace sticky::shim

using sticky::Status;
using sticky::shim::CheckUsable;
using sticky::shim::Fail;
using sticky::shim::Invalid;
using sticky::shim::Succeed;

int sti_build_begin(const sti_build_options* options, sti_build** out, sti_error* error) {
  if (out == nullptr) return Fail(Invalid("begin a build: out is NULL"), error);
  const sticky::Result<sti_build*> build = sticky::shim::BeginNew(options);
  if (!build.ok()) return Fail(build.error(), error);
  *out = build.value();
  return Succeed(error);
}

int sti_build_is_there(const sti_build* build) {
  return CheckUsable(build).ok() && build->build.is_there() ? 1 : 0;
}

int sti_build_arena(sti_build* build, uint64_t size_bytes, uint32_t wait_ms, uint32_t* arena,
                    void** memory, sti_error* error) {
  if (const Status status = CheckUsable(build); !status.ok()) return Fail(status.error(), error);
  if (arena == nullptr || memory == nullptr) {
    return Fail(Invalid("ask for an arena: arena or memory is NULL"), error);
  }
  const auto made = build->build.AddArena(size_bytes, wait_ms);
  if (!made.ok()) return Fail(made.error(), error);
  *arena = made.value().index;
  *memory = made.value().memory;
  return Succeed(error);
}

int sti_build_add_tensor(sti_build* build, const sti_build_tensor* what, sti_error* error) {
  if (const Status status = CheckUsable(build); !status.ok()) return Fail(status.error(), error);
  if (what == nullptr || what->name == nullptr || what->rank < 0 || what->rank > STI_RANK_MAX) {
    return Fail(Invalid("add a tensor: it or its name is NULL, or its rank not 0 to 8"), error);
  }
  if (what->dtype < 0 || what->dtype >= sticky::kDtypeCount) {
    return Fail(Invalid("add a tensor: its dtype is none of sti_dtype"), error);
  }
  sticky::wire::ManifestTensor tensor;
  tensor.name = what->name;
  tensor.dtype = static_cast<sticky::Dtype>(what->dtype);
  tensor.shape.assign(what->shape, what->shape + what->rank);
  tensor.arena = what->arena;
  tensor.offset = what->offset;
  const Status added = build->build.AddTensor(std::move(tensor));
  return added.ok() ? Succeed(error) : Fail(added.error(), error);
}

int sti_build_add_asset(sti_build* build, const char* name, uint32_t arena, uint64_t offset,
                        uint64_t size_bytes, sti_error* error) {
  if (const Status status = CheckUsable(build); !status.ok()) return Fail(status.error(), error);
  if (name == nullptr) return Fail(Invalid("add an asset: its name is NULL"), error);
  const Status added = build->build.AddAsset({name, arena, offset, size_bytes});
  return added.ok() ? Succeed(error) : Fail(added.error(), error);
}

int sti_build_commit(sti_build* build, sti_error* error) {
  if (const Status status = CheckUsable(build); !status.ok()) return Fail(status.error(), error);
  const Status done = build->build.Commit();
  return done.ok() ? Succeed(error) : Fail(done.error(), error);
}

void sti_build_give_up(sti_build* build) {
  if (CheckUsable(build).ok()) build->build.GiveUp();
}

void sti_build_end(sti_build* build) { delete build; }
