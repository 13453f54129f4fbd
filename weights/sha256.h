// The SHA-256 of a file, as model hubs publish it.
//
// Thread: any thread.
// Source: FIPS 180-4, by OpenSSL's libcrypto: it uses the CPU's own instructions where there are
// some.

#ifndef STICKY_WEIGHTS_SHA256_H_
#define STICKY_WEIGHTS_SHA256_H_

#include "base/digest.h"
#include "base/result.h"
#include "weights/byte_source.h"

namespace sticky::weights {

// Reads all of `file`. Cost: one pass over its bytes, and 1 MiB of memory.
// Errors: as ByteSource::ReadAt; kInternal when libcrypto refuses (FIPS mode without SHA-256).
Result<Sha256> Sha256Of(const SourceFile& file);

}  // namespace sticky::weights

#endif  // STICKY_WEIGHTS_SHA256_H_
