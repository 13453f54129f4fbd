// The printable alphabet in which byte-level tokenizers write the 256 bytes.
//
// Bytes that print as themselves in Latin-1 do; the others follow from U+0100 on, in order.
//
// Thread: any thread.
// Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (GPT-2).

#ifndef STICKY_WEIGHTS_BYTE_ALPHABET_H_
#define STICKY_WEIGHTS_BYTE_ALPHABET_H_

#include <string>
#include <string_view>

namespace sticky::weights {

// The bytes that `text` (UTF-8) stands for. False when a character is not of the alphabet; `bytes`
// is then of no use.
bool DecodeByteAlphabet(std::string_view text, std::string& bytes);

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_BYTE_ALPHABET_H_
