// The C++ header is usable in a program that is built without exceptions: this file is.

#include <stickyinvoc/stickyinvoc.hpp>

std::size_t SizeOf(const std::string& state, const std::string& tensor) {
  const auto attached = sticky::client::State::Attach(state);
  if (!attached.ok()) return 0;
  const auto found = attached.value().Find(tensor);
  return found.ok() ? found.value().size_bytes() : 0;
}
