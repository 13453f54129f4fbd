// StickyInvoc client for C++20: move-only owners over the C ABI, in this header alone.
//
//   auto state = sticky::client::State::Attach("llama-8b");
//   if (!state.ok()) return Report(state.error().message);
//   auto weights = state.value().Find("model.norm.weight");
//
// Failures are values (Result); nothing here throws, and a program built without exceptions can use
// it. Those who prefer exceptions write State::Attach("llama-8b").OrThrow().
//
// Thread: as the C ABI: a State may be read from many threads at once, attached and destroyed from
// one. In a child of fork() every read fails with STI_INVALID_ARGUMENT: attach anew there.
#ifndef STICKYINVOC_STICKYINVOC_HPP_
#define STICKYINVOC_STICKYINVOC_HPP_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>
#if defined(__cpp_exceptions)
#include <stdexcept>
#endif

#include <stickyinvoc/stickyinvoc.h>

namespace sticky::client {

struct Error {
  sti_code code = STI_OK;
  int os_code = 0;      // errno, or 0
  std::string message;  // what was being done, to what, and what to do next
};

#if defined(__cpp_exceptions)
class Exception : public std::runtime_error {
 public:
  explicit Exception(Error error) : std::runtime_error(error.message), error_(std::move(error)) {}
  const Error& error() const { return error_; }

 private:
  Error error_;
};
#endif

// A T, or the Error that there is none for. Asking for the one that is not there aborts.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : content_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return content_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return *Get<0>(content_); }
  const T& value() const& { return *Get<0>(content_); }
  T&& value() && { return std::move(*Get<0>(content_)); }
  const Error& error() const { return *Get<1>(content_); }

#if defined(__cpp_exceptions)
  // The value, or an Exception.
  T OrThrow() && {
    if (!ok()) throw Exception(error());
    return std::move(*this).value();
  }
#endif

 private:
  template <std::size_t kIndex, typename Content>
  static auto Get(Content& content) {
    auto* held = std::get_if<kIndex>(&content);
    if (held == nullptr) std::abort();
    return held;
  }
  std::variant<T, Error> content_;
};

// The dtype whose elements are C++'s T, where there is one.
template <typename T>
constexpr std::optional<sti_dtype> DtypeOf() {
  if constexpr (std::is_same_v<T, bool>) return STI_BOOL;
  if constexpr (std::is_same_v<T, std::uint8_t>) return STI_U8;
  if constexpr (std::is_same_v<T, std::int8_t>) return STI_I8;
  if constexpr (std::is_same_v<T, std::uint16_t>) return STI_U16;
  if constexpr (std::is_same_v<T, std::int16_t>) return STI_I16;
  if constexpr (std::is_same_v<T, std::uint32_t>) return STI_U32;
  if constexpr (std::is_same_v<T, std::int32_t>) return STI_I32;
  if constexpr (std::is_same_v<T, std::uint64_t>) return STI_U64;
  if constexpr (std::is_same_v<T, std::int64_t>) return STI_I64;
  if constexpr (std::is_same_v<T, float>) return STI_F32;
  if constexpr (std::is_same_v<T, double>) return STI_F64;
  return std::nullopt;
}

// A tensor of a state, in place: valid while the State is.
class Tensor {
 public:
  explicit Tensor(const sti_tensor& raw) : raw_(raw) {}

  std::string_view name() const { return raw_.name; }
  sti_dtype dtype() const { return static_cast<sti_dtype>(raw_.dtype); }
  // Elements, outermost first; empty for a scalar. Valid while this Tensor is.
  std::span<const std::int64_t> shape() const {
    return {raw_.shape, static_cast<std::size_t>(raw_.rank)};
  }
  const void* data() const { return raw_.data; }  // aligned to 256
  std::size_t size_bytes() const { return raw_.size_bytes; }
  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(raw_.data), size_bytes()};
  }

  // Its elements. Errors: STI_INVALID_ARGUMENT when they are not of type T. C++20 has no type for
  // f16 and bf16: read those through bytes().
  template <typename T>
  Result<std::span<const T>> As() const {
    if (DtypeOf<T>() == dtype()) {
      return std::span<const T>(static_cast<const T*>(raw_.data), size_bytes() / sizeof(T));
    }
    return Error{
        STI_INVALID_ARGUMENT, 0,
        "read tensor '" + std::string(name()) + "': its dtype is " + sti_dtype_name(raw_.dtype)};
  }

  const sti_tensor& raw() const { return raw_; }

 private:
  sti_tensor raw_;
};

struct AttachOptions {
  std::chrono::milliseconds wait{0};        // for a state that is being built; 0: do not wait
  std::chrono::milliseconds connect{5000};  // deadline for connecting and for the reply
  std::string socket_path;                  // empty: $STICKYINVOC_SOCKET and so on
  std::optional<std::array<std::uint8_t, 16>> digest;  // only this content will do
};

// An attached state and its lease, which ends with it.
class State {
 public:
  // `name`: empty means $STICKYINVOC_STATE. Blocking and Errors: as sti_attach.
  static Result<State> Attach(const std::string& name = {}, const AttachOptions& options = {}) {
    sti_attach_options raw{};
    raw.struct_bytes = sizeof raw;
    raw.wait_ms = Milliseconds(options.wait);
    raw.connect_ms = Milliseconds(options.connect);
    raw.socket_path = options.socket_path.empty() ? nullptr : options.socket_path.c_str();
    raw.digest = options.digest.has_value() ? options.digest->data() : nullptr;
    sti_state* state = nullptr;
    sti_error error{};
    const int code = sti_attach(name.empty() ? nullptr : name.c_str(), &raw, &state, &error);
    if (code != STI_OK) return ToError(error);
    return State(state);
  }

  State(State&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  State& operator=(State&& other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~State() { sti_detach(state_); }

  Result<sti_state_info> Info() const {
    sti_state_info info{};
    info.struct_bytes = sizeof info;
    sti_error error{};
    if (sti_state_info_get(state_, &info, &error) != STI_OK) return ToError(error);
    return info;
  }

  // Errors: STI_NOT_FOUND, with the name. Cost: logarithmic in the number of tensors.
  Result<Tensor> Find(const std::string& name) const {
    sti_tensor tensor{};
    sti_error error{};
    if (sti_tensor_find(state_, name.c_str(), &tensor, &error) != STI_OK) return ToError(error);
    return Tensor(tensor);
  }

  // All tensors, in order of name; none in a child of fork().
  std::vector<Tensor> Tensors() const {
    std::vector<Tensor> tensors;
    sti_tensor tensor{};
    for (std::uint32_t i = 0; sti_tensor_at(state_, i, &tensor, nullptr) == STI_OK; ++i) {
      tensors.emplace_back(tensor);
    }
    return tensors;
  }

  // The bytes of an asset (config.json, ...), in place. Errors: STI_NOT_FOUND, with the name.
  Result<std::span<const std::byte>> Asset(const std::string& name) const {
    const void* data = nullptr;
    std::uint64_t size_bytes = 0;
    sti_error error{};
    if (sti_asset_find(state_, name.c_str(), &data, &size_bytes, &error) != STI_OK) {
      return ToError(error);
    }
    return std::span(static_cast<const std::byte*>(data), static_cast<std::size_t>(size_bytes));
  }

  std::vector<std::string_view> AssetNames() const {
    std::vector<std::string_view> names;
    for (std::uint32_t i = 0; const char* name = sti_asset_name_at(state_, i); ++i) {
      names.emplace_back(name);
    }
    return names;
  }

  const sti_state* get() const { return state_; }

 private:
  explicit State(sti_state* state) : state_(state) {}

  static Error ToError(const sti_error& error) {
    return {static_cast<sti_code>(error.code), error.os_code, error.message};
  }
  static std::uint32_t Milliseconds(std::chrono::milliseconds time) {
    constexpr std::int64_t kMax = UINT32_MAX;
    const std::int64_t count = time.count();
    return static_cast<std::uint32_t>(count < 0 ? 0 : count < kMax ? count : kMax);
  }

  sti_state* state_ = nullptr;
};

}  // namespace sticky::client

#endif  // STICKYINVOC_STICKYINVOC_HPP_
