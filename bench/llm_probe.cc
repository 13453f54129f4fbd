// What llm_bench takes as the floor of an invocation of sticky-llm: a program with the same
// libraries, the engine's module among them, that attaches to $STICKYINVOC_STATE, reads one byte of
// every page of its tensors and exits.
//
// usage: llm_probe MODULE

#include <cstdio>

#include <dlfcn.h>

#include "stickyinvoc/stickyinvoc.h"

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  if (::dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) == nullptr) {
    std::fprintf(stderr, "llm_probe: %s\n", ::dlerror());
    return 66;
  }
  sti_state* state = nullptr;
  if (sti_attach(nullptr, nullptr, &state, nullptr) != STI_OK) return 69;
  constexpr unsigned kPageBytes = 4096;
  unsigned sum = 0;
  sti_tensor tensor;
  for (unsigned index = 0; sti_tensor_at(state, index, &tensor, nullptr) == STI_OK; ++index) {
    const auto* const bytes = static_cast<const volatile unsigned char*>(tensor.data);
    for (unsigned long at = 0; at < tensor.size_bytes; at += kPageBytes) sum += bytes[at];
  }
  return sum == 1 ? 70 : 0;
}
