// The avx2 build of the kernels; its compiler flags are in CMakeLists.txt.

#include "engine/cpu/kernels.h"

#define STICKY_KERNELS_NAMESPACE avx2
#include "engine/cpu/kernels_inl.h"

namespace sticky::engine::cpu {

const KernelTable kAvx2Kernels = {
    "avx2",        avx2::MatMul,    avx2::ToFloat,      avx2::ToBf16,
    avx2::RmsNorm, avx2::Attention, avx2::SiluMultiply,
};

}  // namespace sticky::engine::cpu
