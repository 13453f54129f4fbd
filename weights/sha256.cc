#include "weights/sha256.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <dlfcn.h>
#include <openssl/evp.h>
#include <openssl/opensslv.h>

#include "base/text.h"

namespace sticky::weights {
namespace {

// The functions of libcrypto that are used. It is opened when a SHA-256 is first asked for: to
// link it costs every start of a program about a millisecond, and few of them ever ask.
struct Crypto {
  decltype(&::EVP_MD_CTX_new) make = nullptr;
  decltype(&::EVP_MD_CTX_free) end = nullptr;
  decltype(&::EVP_sha256) algorithm = nullptr;
  decltype(&::EVP_DigestInit_ex) init = nullptr;
  decltype(&::EVP_DigestUpdate) update = nullptr;
  decltype(&::EVP_DigestFinal_ex) final = nullptr;
};

#define STICKY_TEXT_OF(word) #word
#define STICKY_TEXT(word) STICKY_TEXT_OF(word)
// The one whose headers this was built with.
constexpr const char* kCryptoLibrary = "libcrypto.so." STICKY_TEXT(OPENSSL_SHLIB_VERSION);

template <typename Function>
bool Find(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(::dlsym(library, name));
  return out != nullptr;
}

Result<Crypto> OpenCrypto() {
  void* const library = ::dlopen(kCryptoLibrary, RTLD_NOW | RTLD_LOCAL);  // never closed
  Crypto crypto;
  const bool found = library != nullptr && Find(library, "EVP_MD_CTX_new", crypto.make) &&
                     Find(library, "EVP_MD_CTX_free", crypto.end) &&
                     Find(library, "EVP_sha256", crypto.algorithm) &&
                     Find(library, "EVP_DigestInit_ex", crypto.init) &&
                     Find(library, "EVP_DigestUpdate", crypto.update) &&
                     Find(library, "EVP_DigestFinal_ex", crypto.final);
  if (found) return crypto;
  return Error{Code::kInternal,
               std::string("open ") + kCryptoLibrary + " of OpenSSL; is it installed?"};
}

}  // namespace

Result<Sha256> Sha256Of(const SourceFile& file, const OnSha256Bytes& on_bytes) {
  constexpr std::uint64_t kPieceBytes = 1u << 20;
  static const Result<Crypto> opened = OpenCrypto();
  const std::string doing = "take the SHA-256 of '" + Escape(file.name) + "': ";
  if (!opened.ok()) return Error{opened.error().code, doing + opened.error().message};
  const Crypto& crypto = opened.value();
  const Error refused{Code::kInternal, doing + "libcrypto does not compute it here"};
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(crypto.make(), crypto.end);
  if (!context || crypto.init(context.get(), crypto.algorithm(), nullptr) != 1) return refused;
  std::vector<std::uint8_t> piece(static_cast<std::size_t>(std::min(kPieceBytes, file.size_bytes)));
  for (std::uint64_t done = 0; done < file.size_bytes; done += kPieceBytes) {
    const auto some = static_cast<std::size_t>(std::min(kPieceBytes, file.size_bytes - done));
    STICKY_TRY(file.bytes->ReadAt(done, std::span(piece).first(some)));
    if (crypto.update(context.get(), piece.data(), some) != 1) return refused;
    if (on_bytes) STICKY_TRY(on_bytes(some));
  }
  Sha256 sha256;
  unsigned int length = 0;
  const bool is_done = crypto.final(context.get(), sha256.bytes.data(), &length) == 1 &&
                       length == sha256.bytes.size();
  if (!is_done) return refused;
  return sha256;
}

}  // namespace sticky::weights
