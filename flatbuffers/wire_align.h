// What FlatBuffers' verifier leaves unchecked: the alignment of a vector's elements.
//
// Thread: any thread.

#ifndef STICKY_FLATBUFFERS_WIRE_ALIGN_H_
#define STICKY_FLATBUFFERS_WIRE_ALIGN_H_

#include <cstdint>

#include "flatbuffers/flatbuffers.h"

namespace sticky::wire {

// Whether the elements of a verified vector of scalars may be loaded as what they are. An empty
// vector has none, and builders do not align it.
template <typename T>
bool IsAligned(const ::flatbuffers::Vector<T>& vector) {
  return vector.size() == 0 || reinterpret_cast<std::uintptr_t>(vector.data()) % alignof(T) == 0;
}

}  // namespace sticky::wire

#endif  // STICKY_FLATBUFFERS_WIRE_ALIGN_H_
