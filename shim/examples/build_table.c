/* A builder: makes a table of square roots once, for every later process on this node.
 *
 *   cc -std=c11 build_table.c $(pkg-config --cflags --libs stickyinvoc) -lm -o build_table
 *   stickyctl build --name roots -- ./build_table 1000000      (or by itself:
 *   ./build_table 1000000 roots)
 *   ./sum roots sqrt                                            (the other example reads it)
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <stickyinvoc/build.h>
#include <string.h>

static int fail(sti_build* build, const sti_error* error) {
  fprintf(stderr, "build_table: %s\n", error->message);
  sti_build_end(build); /* gives everything back */
  return 1;
}

int main(int argc, char** argv) {
  const long long count = argc == 2 || argc == 3 ? strtoll(argv[1], NULL, 10) : 0;
  if (count < 1) {
    fprintf(stderr, "usage: build_table COUNT [STATE]\n");
    return 64;
  }
  sti_error error;
  sti_build* build = NULL;
  sti_build_options options;
  memset(&options, 0, sizeof options);
  options.struct_bytes = sizeof options;
  options.state = argv[2]; /* NULL: stickyctl build has named it */
  options.builder = "build_table 1";
  if (sti_build_begin(&options, &build, &error) != STI_OK) return fail(build, &error);

  /* The memory is the daemon's; it is filled where it lies. */
  uint32_t arena = 0;
  void* memory = NULL;
  const uint64_t size_bytes = (uint64_t)count * sizeof(float);
  if (sti_build_arena(build, size_bytes, 60000, &arena, &memory, &error) != STI_OK) {
    return fail(build, &error);
  }
  float* const roots = memory;
  for (long long i = 0; i < count; ++i) roots[i] = sqrtf((float)i);

  const sti_build_tensor tensor = {
      .name = "sqrt", .dtype = STI_F32, .rank = 1, .shape = {count}, .arena = arena};
  if (sti_build_add_tensor(build, &tensor, &error) != STI_OK ||
      sti_build_commit(build, &error) != STI_OK) {
    return fail(build, &error);
  }
  sti_build_end(build);
  printf("%lld square roots are shared\n", count);
  return 0;
}
