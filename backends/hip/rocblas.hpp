// SPDX-License-Identifier: Apache-2.0
#ifndef KFUSE_BACKENDS_HIP_ROCBLAS_HPP
#define KFUSE_BACKENDS_HIP_ROCBLAS_HPP

#if defined(KFUSE_ROCBLAS)

#include <kfuse/backends/gpu/handle.hpp>
#include <kfuse/backends/hip/runtime.hpp>
#include <kfuse/core/check.hpp>
#include <kfuse/core/product.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

#include <rocblas/rocblas.h>

namespace kfuse::hip {

// Matrix products by rocBLAS, which applies no bias and no activation. It counts columns first, so it is given the
// transposed product, as gpu::LtBlas tells. Compiled, and not yet run.
class RocBlas {
 public:
  using Product = impl::Product;

  RocBlas(Kokkos::HIP const& space, std::size_t workspace_bytes, bool /*tune*/)
      : memory_(Kokkos::view_alloc(Kokkos::WithoutInitializing, "kfuse::blas::workspace"), workspace_bytes) {
    check_status(Runtime::set_device(space), "choose the device");
    rocblas_handle handle = nullptr;
    check(rocblas_create_handle(&handle), "start");
    handle_.reset(handle);
    check(rocblas_set_workspace(handle, memory_.data(), memory_.size()), "take the workspace");
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wdeprecated-declarations"  // since newer versions do what it asks for anyway
    check(rocblas_set_atomics_mode(handle, rocblas_atomics_not_allowed), "keep the order of sums");
#pragma clang diagnostic pop
  }

  static constexpr bool fuses(ElementType, impl::ProductEpilogue const& epilogue) {
    return !epilogue.bias && epilogue.activation == impl::ProductActivation::none;
  }
  // It counts a matrix's rows and strides in 32 bits.
  bool supports(Product const& p) const {
    constexpr std::ptrdiff_t most = std::numeric_limits<rocblas_int>::max();
    return p.depth > 0 && p.is_plain() &&
           std::max({p.a.row_stride, p.b.row_stride, p.d.row_stride, p.residual.row_stride}) <= most;
  }
  void run(Kokkos::HIP const& space, Product const& p) const {
    check_status(Runtime::set_device(space), "choose the device");
    check(rocblas_set_stream(handle_.get(), Runtime::stream(space)), "take a stream");
    bool const wide = p.element == ElementType::fp64;
    float const alpha = float(p.alpha), beta = p.residual.data ? 1 : 0;
    double const wide_alpha = p.alpha, wide_beta = beta;
    impl::Operand<void const> const c =
        p.residual.data ? p.residual : impl::Operand<void const>{p.d.data, p.d.row_stride, p.d.batch_stride};
    rocblas_datatype const type = data_type(p.element), sums = wide ? rocblas_datatype_f64_r : rocblas_datatype_f32_r;
    auto const b_order = p.transpose_b == Transpose::yes ? rocblas_operation_transpose : rocblas_operation_none;
    check(rocblas_gemm_strided_batched_ex(handle_.get(), b_order, rocblas_operation_none, p.columns, p.rows, p.depth,
                                          wide ? static_cast<void const*>(&wide_alpha) : &alpha,          //
                                          p.b.data, type, rocblas_int(p.b.row_stride), p.b.batch_stride,  //
                                          p.a.data, type, rocblas_int(p.a.row_stride), p.a.batch_stride,  //
                                          wide ? static_cast<void const*>(&wide_beta) : &beta,            //
                                          c.data, type, rocblas_int(c.row_stride), c.batch_stride,        //
                                          p.d.data, type, rocblas_int(p.d.row_stride), p.d.batch_stride,  //
                                          p.batch, sums, rocblas_gemm_algo_standard, 0, rocblas_gemm_flags_none),
          "multiply");
  }

 private:
  static void check(rocblas_status status, char const* what) {
    impl::check(status == rocblas_status_success, "blas",
                [&] { return std::string("rocBLAS could not ") + what + ": " + rocblas_status_to_string(status); });
  }
  static rocblas_datatype data_type(ElementType element) {
    switch (element) {
      case ElementType::fp64:
        return rocblas_datatype_f64_r;
      case ElementType::fp32:
        return rocblas_datatype_f32_r;
      case ElementType::bf16:
        return rocblas_datatype_bf16_r;
      default:
        return rocblas_datatype_f16_r;
    }
  }

  Kokkos::View<std::byte*, Kokkos::HIPSpace> memory_;
  gpu::Unique<rocblas_handle, &rocblas_destroy_handle> handle_;
};

}  // namespace kfuse::hip

#endif
#endif
