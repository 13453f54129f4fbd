// The avx512 build of the kernels; its compiler flags are in CMakeLists.txt.

#include "engine/cpu/kernels.h"

#define STICKY_KERNELS_NAMESPACE avx512
#include "engine/cpu/kernels_inl.h"

namespace sticky::engine::cpu {

const KernelTable kAvx512Kernels = {
    "avx512",        avx512::MatMul,    avx512::ToFloat,      avx512::ToBf16,
    avx512::RmsNorm, avx512::Attention, avx512::SiluMultiply,
};

}  // namespace sticky::engine::cpu
