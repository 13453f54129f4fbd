// What C++ code asks of libstdc++ and this library must have without it: memory from malloc, and an
// end for what cannot go on. Hidden, so that a program's own versions are not touched.
//
// Only small blocks of bounded size are asked for here (a frame is at most 64 KiB); states are
// mapped, never allocated. What remains is the C++ convention that running out of heap ends the
// process.
//
// Thread: any thread.
// Source: docs/decisions/0001-shim-is-libc-alone.md.

#include <cstddef>
#include <cstdlib>
#include <new>

#include "base/check.h"

namespace sticky {

// Without the message that other programs print: this library never prints.
void CheckFailed(const char*, const char*, int) { std::abort(); }

}  // namespace sticky

// The names are the C++ library's own.
// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming)
namespace std {

// Asked for by std::string, std::vector and std::optional when they are misused.
void __throw_length_error(const char*) { abort(); }
void __throw_logic_error(const char*) { abort(); }
void __throw_out_of_range_fmt(const char*, ...) { abort(); }
void __throw_bad_alloc() { abort(); }
void __throw_bad_array_new_length() { abort(); }

}  // namespace std

extern "C" void __cxa_pure_virtual() { std::abort(); }
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)

void* operator new(std::size_t size_bytes) {
  void* block = std::malloc(size_bytes == 0 ? 1 : size_bytes);
  if (block == nullptr) std::abort();
  return block;
}
void* operator new[](std::size_t size_bytes) { return operator new(size_bytes); }
void* operator new(std::size_t size_bytes, const std::nothrow_t&) noexcept {
  return std::malloc(size_bytes == 0 ? 1 : size_bytes);
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete[](void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
void operator delete[](void* block, std::size_t) noexcept { std::free(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { std::free(block); }

// Defined by the library that a C++ header asks for; never read without exceptions.
const std::nothrow_t std::nothrow{};  // NOLINT(readability-identifier-naming)
