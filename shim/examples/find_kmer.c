/* A short task: tells where reads of a sequence lie in the genome whose index is a state.
 *
 *   cc -std=c11 -O2 find_kmer.c $(pkg-config --cflags --libs stickyinvoc) -o find_kmer
 *   ./find_kmer genome ACGTTGCAACGTAA TTTACGTTGCAACC
 *   (or: stickyctl run --state genome -- ./find_kmer - ACGTTGCAACGTAA)
 *
 * Nothing is read and nothing is copied: the arrays are the node's own pages.
 */
#include <stdio.h>
#include <stickyinvoc/stickyinvoc.h>

#include "kmer.h"

static int stands_at(const char* read, const sti_tensor* text, uint32_t place) {
  const size_t length = strlen(read);
  return length <= text->size_bytes - place &&
         memcmp((const char*)text->data + place, read, length) == 0;
}

/* Prints the places, from 0, where all of `read` stands. */
static void find(const char* read, const sti_tensor* text, const uint32_t* first,
                 const uint32_t* places) {
  const int64_t word = strlen(read) >= KMER ? kmer_at(read) : -1;
  printf("%s", read);
  if (word >= 0) {
    for (uint32_t i = first[word]; i < first[word + 1]; ++i) {
      if (stands_at(read, text, places[i])) printf(" %u", places[i]);
    }
  }
  printf("\n");
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: find_kmer STATE|- READ...\n");
    return 64;
  }
  sti_error error;
  sti_state* state = NULL;
  sti_tensor text, first, places;
  /* NULL: the state that `stickyctl run` has the lease of. */
  if (sti_attach(strcmp(argv[1], "-") != 0 ? argv[1] : NULL, NULL, &state, &error) != STI_OK ||
      sti_tensor_find(state, "text", &text, &error) != STI_OK ||
      sti_tensor_find(state, "first", &first, &error) != STI_OK ||
      sti_tensor_find(state, "places", &places, &error) != STI_OK) {
    fprintf(stderr, "find_kmer: %s\n", error.message);
    return error.code == STI_UNAVAILABLE ? 75 : 66;
  }
  for (int i = 2; i < argc; ++i) find(argv[i], &text, first.data, places.data);
  sti_detach(state);
  return 0;
}
