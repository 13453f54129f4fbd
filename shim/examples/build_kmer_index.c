/* A builder: where each word of 10 letters stands in a FASTA file, for thousands of short searches.
 *
 *   cc -std=c11 -O2 build_kmer_index.c $(pkg-config --cflags --libs stickyinvoc) \\
 *     -o build_kmer_index
 *   stickyctl build --name genome -- ./build_kmer_index genome.fa
 *   ./find_kmer genome ACGTTGCAACGTAA...                        (the other half)
 *
 * The state is three plain arrays: `text`, the letters A, C, G, T (any other as N; a new record
 * begins with an N); `first`, for each of the 4^10 words where its places begin in `places`.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <stickyinvoc/build.h>
#include <string.h>

#include "kmer.h"

/* Reads the letters of a FASTA file; `text` may be NULL, to count them. */
static uint64_t read_letters(FILE* fasta, char* text) {
  uint64_t count = 0;
  int in_title = 0;
  rewind(fasta);
  for (int c = getc(fasta); c != EOF; c = getc(fasta)) {
    const int begins = c == '>';
    in_title = begins || (in_title && c != '\n');
    if ((in_title && !begins) || isspace(c)) continue;
    const int letter = toupper(c);
    if (text != NULL) text[count] = strchr("ACGT", letter) != NULL ? (char)letter : 'N';
    ++count;
  }
  return count;
}

/* Sorts the places of all words by word: counts, sums up, and puts each place where it belongs.
 * first: KMER_WORDS + 2 zeros. */
static void fill(const char* text, uint64_t count, uint32_t* first, uint32_t* places) {
  for (uint64_t i = 0; i + KMER <= count; ++i) {
    const int64_t word = kmer_at(text + i);
    if (word >= 0) ++first[word + 2];
  }
  for (int64_t word = 0; word < KMER_WORDS; ++word) first[word + 2] += first[word + 1];
  for (uint64_t i = 0; i + KMER <= count; ++i) {
    const int64_t word = kmer_at(text + i);
    if (word >= 0) places[first[word + 1]++] = (uint32_t)i; /* ends at the next word's beginning */
  }
}

static int add(sti_build* build, const char* name, int dtype, uint64_t count, uint64_t offset,
               sti_error* error) {
  const sti_build_tensor tensor = {
      .name = name, .dtype = dtype, .rank = 1, .shape = {(int64_t)count}, .offset = offset};
  return sti_build_add_tensor(build, &tensor, error);
}

int main(int argc, char** argv) {
  FILE* const fasta = argc == 2 ? fopen(argv[1], "r") : NULL;
  if (fasta == NULL) {
    fprintf(stderr,
            argc == 2 ? "build_kmer_index: cannot open %s\n"
                      : "usage: stickyctl build --name STATE -- %s FILE.fa\n",
            argv[argc == 2 ? 1 : 0]);
    return argc == 2 ? 66 : 64;
  }
  const uint64_t count = read_letters(fasta, NULL);
  const uint64_t first_at = (count + 255) / 256 * 256; /* tensors begin at multiples of 256 */
  const uint64_t places_at = first_at + (KMER_WORDS + 64) * sizeof(uint32_t);
  sti_error error = {.message = "too many letters"};
  sti_build* build = NULL;
  uint32_t arena = 0;
  void* memory = NULL;
  if (count > UINT32_MAX || sti_build_begin(NULL, &build, &error) != STI_OK ||
      sti_build_arena(build, places_at + (count + 1) * sizeof(uint32_t), 60000, &arena, &memory,
                      &error) != STI_OK) {
    fprintf(stderr, "build_kmer_index: %s\n", error.message);
    return 1; /* the end of this process gives everything back */
  }
  char* const text = memory;
  uint32_t* const first = (uint32_t*)(text + first_at);
  read_letters(fasta, text);
  fclose(fasta);
  fill(text, count, first, (uint32_t*)(text + places_at));
  if (add(build, "text", STI_U8, count, 0, &error) != STI_OK ||
      add(build, "first", STI_U32, KMER_WORDS + 1, first_at, &error) != STI_OK ||
      add(build, "places", STI_U32, first[KMER_WORDS], places_at, &error) != STI_OK ||
      sti_build_commit(build, &error) != STI_OK) {
    fprintf(stderr, "build_kmer_index: %s\n", error.message);
    return 1;
  }
  sti_build_end(build);
  return 0;
}
