/* An invocation that does nothing but attach: spawn_bench times it.
 *
 * usage: spawn_probe MODE, where MODE is one of
 *   none    returns at once: what it costs to be linked with libstickyinvoc
 *   attach  attaches to $STICKYINVOC_STATE and exits
 *   find    then looks up every tensor by its name, too */

#include <string.h>

#include "stickyinvoc/stickyinvoc.h"

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  if (strcmp(argv[1], "none") == 0) return 0;
  sti_state* state = NULL;
  if (sti_attach(NULL, NULL, &state, NULL) != STI_OK) return 69;
  if (strcmp(argv[1], "find") != 0) return 0;
  sti_tensor tensor;
  sti_tensor found;
  uint32_t index = 0;
  for (; sti_tensor_at(state, index, &tensor, NULL) == STI_OK; ++index) {
    if (sti_tensor_find(state, tensor.name, &found, NULL) != STI_OK) return 70;
    if (found.data != tensor.data) return 70;
  }
  return index > 0 ? 0 : 70;
}
