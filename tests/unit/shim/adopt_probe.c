/* Attaches to $STICKYINVOC_STATE and ends with 0 when the lease that came with the process was
 * used, 1 when the daemon was asked, 2 on an error. In C11, as an invocation may be. */

#include <stdio.h>

#include "stickyinvoc/stickyinvoc.h"

int main(void) {
  sti_state* state = NULL;
  sti_error error;
  if (sti_attach(NULL, NULL, &state, &error) != STI_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 2;
  }
  sti_state_info info;
  info.struct_bytes = sizeof info;
  int code = sti_state_info_get(state, &info, &error);
  if (code == STI_OK) code = info.adopted == 1 ? 0 : 1;
  sti_detach(state);
  return code < 0 ? 2 : code;
}
