#include "engine/cpu/one_dnn.h"

#include <map>
#include <new>
#include <tuple>
#include <utility>

#include <dnnl.h>
#include <dnnl.hpp>

#include "base/text.h"

namespace sticky::engine::cpu {

int SgemmTransposed(const float* x, int row_count, const float* w, int out_count, int depth,
                    float* y, int y_stride) {
  return dnnl_sgemm('N', 'T', row_count, out_count, depth, /*alpha=*/1.0f, x, depth, w, depth,
                    /*beta=*/0.0f, y, y_stride);
}

struct Bf16MatMul::Impl {
  using Shape = std::tuple<int, int, int>;  // rows, outputs, depth
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Shape, dnnl::matmul> products;  // a handful: the shapes of one model's layers

  static constexpr std::size_t kProductsMax = 256;

  dnnl::memory::desc Desc(int rows, int columns, dnnl::memory::data_type type, bool transposed) {
    return {{rows, columns},
            type,
            transposed ? dnnl::memory::format_tag::ba : dnnl::memory::format_tag::ab};
  }

  const dnnl::matmul& Product(int rows, const WeightMatrix& w) {
    const Shape shape(rows, w.rows, w.columns);
    if (const auto found = products.find(shape); found != products.end()) return found->second;
    if (products.size() >= kProductsMax) products.clear();
    using dnnl::memory;
    const dnnl::matmul::desc desc(
        Desc(rows, w.columns, memory::data_type::bf16, /*transposed=*/false),
        Desc(w.columns, w.rows, memory::data_type::bf16, /*transposed=*/true),
        Desc(rows, w.rows, memory::data_type::f32, /*transposed=*/false));
    return products.emplace(shape, dnnl::matmul(dnnl::matmul::primitive_desc(desc, engine)))
        .first->second;
  }
};

Bf16MatMul::Bf16MatMul() = default;
Bf16MatMul::~Bf16MatMul() = default;

// The values are sets of bits: a larger instruction set has those of the smaller.
bool Bf16MatMul::available() const {
  return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) ==
         dnnl_cpu_isa_avx512_core_bf16;
}

Status Bf16MatMul::Run(const std::uint16_t* x, int row_count, const WeightMatrix& w, float* y) {
  try {
    if (impl_ == nullptr) impl_ = std::make_unique<Impl>();
    const dnnl::matmul& product = impl_->Product(row_count, w);
    using dnnl::memory;
    const auto bf16 = memory::data_type::bf16;
    // oneDNN's handles are not const; it reads these two only.
    memory source(impl_->Desc(row_count, w.columns, bf16, false), impl_->engine,
                  const_cast<std::uint16_t*>(x));
    memory weights(impl_->Desc(w.columns, w.rows, bf16, true), impl_->engine,
                   const_cast<void*>(w.data));
    memory result(impl_->Desc(row_count, w.rows, memory::data_type::f32, false), impl_->engine, y);
    product.execute(impl_->stream,
                    {{DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, result}});
    impl_->stream.wait();
    return Ok{};
  } catch (const dnnl::error& error) {
    return Error{Code::kInternal, Format("multiply [%d, %d] by [%d, %d] in bf16: oneDNN: %s",
                                         row_count, w.columns, w.columns, w.rows, error.what())};
  } catch (const std::bad_alloc&) {
    return Error{Code::kOutOfMemory, Format("multiply [%d, %d] by [%d, %d] in bf16: no memory",
                                            row_count, w.columns, w.columns, w.rows)};
  }
}

}  // namespace sticky::engine::cpu
