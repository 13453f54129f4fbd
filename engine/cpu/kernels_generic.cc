// The generic build of the kernels; its compiler flags are in CMakeLists.txt.

#include "engine/cpu/kernels.h"

#define STICKY_KERNELS_NAMESPACE generic
#include "engine/cpu/kernels_inl.h"

namespace sticky::engine::cpu {

const KernelTable kGenericKernels = {
    "generic",        generic::MatMul,    generic::ToFloat,      generic::ToBf16,
    generic::RmsNorm, generic::Attention, generic::SiluMultiply,
};

}  // namespace sticky::engine::cpu
