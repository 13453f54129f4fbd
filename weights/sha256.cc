#include "weights/sha256.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <openssl/evp.h>

#include "base/text.h"

namespace sticky::weights {

Result<Sha256> Sha256Of(const SourceFile& file) {
  constexpr std::uint64_t kPieceBytes = 1u << 20;
  const Error refused{Code::kInternal, "take the SHA-256 of '" + Escape(file.name) +
                                           "': libcrypto does not compute it here"};
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(::EVP_MD_CTX_new(),
                                                                   ::EVP_MD_CTX_free);
  if (!context || ::EVP_DigestInit_ex(context.get(), ::EVP_sha256(), nullptr) != 1) return refused;
  std::vector<std::uint8_t> piece(static_cast<std::size_t>(std::min(kPieceBytes, file.size_bytes)));
  for (std::uint64_t done = 0; done < file.size_bytes; done += kPieceBytes) {
    const auto some = static_cast<std::size_t>(std::min(kPieceBytes, file.size_bytes - done));
    STICKY_TRY(file.bytes->ReadAt(done, std::span(piece).first(some)));
    if (::EVP_DigestUpdate(context.get(), piece.data(), some) != 1) return refused;
  }
  Sha256 sha256;
  unsigned int length = 0;
  const bool is_done = ::EVP_DigestFinal_ex(context.get(), sha256.bytes.data(), &length) == 1 &&
                       length == sha256.bytes.size();
  if (!is_done) return refused;
  return sha256;
}

}  // namespace sticky::weights
