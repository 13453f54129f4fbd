/* Words of 10 letters as numbers: two bits a letter. Of build_kmer_index and find_kmer.
 *
 * Thread: any thread.
 */
#ifndef STICKY_SHIM_EXAMPLES_KMER_H_
#define STICKY_SHIM_EXAMPLES_KMER_H_

#include <stdint.h>
#include <string.h>

enum { KMER = 10, KMER_WORDS = 1 << (2 * KMER) };

/* The number of the word that begins at `text`; -1 when one of its letters is not A, C, G or T. */
static inline int64_t kmer_at(const char* text) {
  int64_t word = 0;
  for (int i = 0; i < KMER; ++i) {
    const char* const letter = text[i] != '\0' ? strchr("ACGT", text[i]) : NULL;
    if (letter == NULL) return -1;
    word = word << 2 | (letter - "ACGT");
  }
  return word;
}

#endif /* STICKY_SHIM_EXAMPLES_KMER_H_ */
