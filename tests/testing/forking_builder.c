/* A builder that forks a child, which keeps the arena mapped writable until its parent is gone. */
#include <signal.h>
#include <stdio.h>
#include <stickyinvoc/build.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(void) {
  sti_error error;
  sti_build* build = NULL;
  uint32_t arena = 0;
  void* memory = NULL;
  int ready[2];
  char byte = 0;
  if (pipe(ready) != 0 || sti_build_begin(NULL, &build, &error) != STI_OK ||
      sti_build_arena(build, 4096, 0, &arena, &memory, &error) != STI_OK) {
    return 2;
  }
  if (fork() == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (write(ready[1], &byte, 1) != 1) return 3;
    for (;;) pause();
  }
  if (read(ready[0], &byte, 1) != 1) return 4;
  if (sti_build_commit(build, &error) == STI_OK) return 0;
  fprintf(stderr, "%s\n", error.message);
  sti_build_end(build);
  return 9;
}
