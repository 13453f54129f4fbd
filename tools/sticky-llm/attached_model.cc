// ModelSource over the shim: the weights are the daemon's, mapped read-only.

#include <cstring>
#include <vector>

#include <stickyinvoc/stickyinvoc.h>

#include "base/text.h"
#include "tools/sticky-llm/model_source.h"

namespace sticky::llm {
namespace {

struct Detach {
  void operator()(sti_state* state) const { sti_detach(state); }
};
using State = std::unique_ptr<sti_state, Detach>;

Error FromShim(const sti_error& error) {
  return Error{static_cast<Code>(error.code), error.message, error.os_code};
}

class AttachedModel : public ModelSource {
 public:
  AttachedModel(State state, const sti_state_info& info) : state_(std::move(state)), info_(info) {}

  std::optional<engine::TensorView> Find(std::string_view name) const override {
    const std::string text(name);
    sti_tensor tensor;
    if (sti_tensor_find(state_.get(), text.c_str(), &tensor, nullptr) != STI_OK) {
      return std::nullopt;
    }
    // The shape is copied out by the shim; the engine wants one that stays.
    shapes_.emplace_back(tensor.shape, tensor.shape + tensor.rank);
    return engine::TensorView{tensor.data, static_cast<Dtype>(tensor.dtype), shapes_.back()};
  }

  std::vector<std::string_view> Names() const override {
    std::vector<std::string_view> names;
    for (std::uint32_t i = 0; i < info_.tensor_count; ++i) {
      sti_tensor tensor;
      if (sti_tensor_at(state_.get(), i, &tensor, nullptr) == STI_OK) names.push_back(tensor.name);
    }
    return names;
  }

  std::optional<std::span<const std::uint8_t>> FindAsset(std::string_view name) const override {
    const std::string text(name);
    const void* data = nullptr;
    std::uint64_t size_bytes = 0;
    if (sti_asset_find(state_.get(), text.c_str(), &data, &size_bytes, nullptr) != STI_OK) {
      return std::nullopt;
    }
    return std::span(static_cast<const std::uint8_t*>(data), size_bytes);
  }

  Digest content_digest() const override {
    Digest digest;
    std::memcpy(digest.bytes.data(), info_.content_digest, sizeof info_.content_digest);
    return digest;
  }
  std::uint64_t arena_bytes() const override { return info_.arena_bytes; }
  bool shared() const override { return true; }

 private:
  State state_;
  sti_state_info info_;
  mutable std::vector<std::vector<std::int64_t>> shapes_;  // one for each Find
};

}  // namespace

Result<std::unique_ptr<ModelSource>> AttachModel(const AttachOptions& options) {
  sti_attach_options wanted{};
  wanted.struct_bytes = sizeof wanted;
  wanted.wait_ms = options.wait_ms;
  wanted.socket_path = options.socket_path.empty() ? nullptr : options.socket_path.c_str();
  sti_state* raw = nullptr;
  sti_error error{};
  const char* const name = options.state.empty() ? nullptr : options.state.c_str();
  if (sti_attach(name, &wanted, &raw, &error) != STI_OK) return FromShim(error);
  State state(raw);
  sti_state_info info{};
  info.struct_bytes = sizeof info;
  if (sti_state_info_get(state.get(), &info, &error) != STI_OK) return FromShim(error);
  return std::unique_ptr<ModelSource>(std::make_unique<AttachedModel>(std::move(state), info));
}

}  // namespace sticky::llm
