// The SHA-256 of a file, as model hubs publish it.
//
// Thread: any thread.
// Source: FIPS 180-4, by OpenSSL's libcrypto: it uses the CPU's own instructions where there are
// some.

#ifndef STICKY_WEIGHTS_SHA256_H_
#define STICKY_WEIGHTS_SHA256_H_

#include <cstdint>
#include <functional>

#include "base/digest.h"
#include "base/result.h"
#include "weights/byte_source.h"

namespace sticky::weights {

// Called on the calling thread when so many more bytes are done; an error ends the reading.
using OnSha256Bytes = std::function<Status(std::uint64_t more_bytes)>;

// Reads all of `file`. on_bytes: may be empty. Cost: one pass over its bytes, and 1 MiB of memory;
// the first call opens libcrypto, which takes about a millisecond.
// Errors: as ByteSource::ReadAt and on_bytes; kInternal when libcrypto is not there, or refuses
//   (FIPS mode without SHA-256).
Result<Sha256> Sha256Of(const SourceFile& file, const OnSha256Bytes& on_bytes = {});

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_SHA256_H_
