// SPDX-License-Identifier: Apache-2.0
// Matrix products on the host: Kokkos Kernels' gemm for fp64 and fp32 where this build has it, and nothing else. It
// runs before it returns, allocates nothing and fences nothing; the library that it may call may use threads of its
// own.
#ifndef KFUSE_BACKENDS_HOST_BLAS_HPP
#define KFUSE_BACKENDS_HOST_BLAS_HPP

#include <kfuse/core/product.hpp>

#include <Kokkos_Core.hpp>
#if defined(KFUSE_KOKKOS_KERNELS)
#include <KokkosBlas3_gemm.hpp>
#endif

#include <algorithm>
#include <cstddef>
#include <limits>

namespace kfuse::host {

class Blas {
 public:
  using Product = impl::Product;

  template <class Space>
  Blas(Space const&, std::size_t /*workspace_bytes*/, bool /*tune*/) {}

  // gemm adds to what it overwrites, and applies nothing else.
  static constexpr bool fuses(ElementType, impl::ProductEpilogue const& epilogue) {
    return !epilogue.bias && epilogue.activation == impl::ProductActivation::none &&
           epilogue.residual != impl::Residual::elsewhere;
  }

#if defined(KFUSE_KOKKOS_KERNELS)
  bool supports(Product const& p) const {
    auto const largest = std::max({p.a.row_stride, p.b.row_stride, p.d.row_stride});
    bool const in_place = p.residual.data == nullptr || p.residual.data == p.d.data;
    // gemm hands a b of one column to gemv as if its entries, and those of d, were contiguous.
    bool const dense_column = p.columns > 1 || p.transpose_b == Transpose::yes;
    return (p.element == ElementType::fp64 || p.element == ElementType::fp32) && p.is_plain() && in_place &&
           p.depth > 0 && dense_column && largest <= std::numeric_limits<int>::max();
  }

  template <class Space>
  void run(Space const& space, Product const& p) const {
    if (p.element == ElementType::fp64)
      multiply<double>(space, p);
    else
      multiply<float>(space, p);
  }

 private:
  template <class Real, class Space>
  static void multiply(Space const& space, Product const& p) {
    bool const transposed = p.transpose_b == Transpose::yes;
    for (int i = 0; i < p.batch; ++i) {
      auto const a = matrix<Real const, Space>(p.a, i, p.rows, p.depth);
      auto const b =
          matrix<Real const, Space>(p.b, i, transposed ? p.columns : p.depth, transposed ? p.depth : p.columns);
      auto const d = matrix<Real, Space>(p.d, i, p.rows, p.columns);
      KokkosBlas::gemm(space, "N", transposed ? "T" : "N", Real(p.alpha), a, b, Real(p.residual.data ? 1 : 0), d);
    }
  }

  // Member `i` as a View. Taken out of a wider one, because a row-major View cannot be told its stride.
  template <class Real, class Space, class Memory>
  static auto matrix(impl::Operand<Memory> const& operand, int i, int rows, int columns) {
    using View = Kokkos::View<Real**, Kokkos::LayoutRight, Kokkos::Device<Space, Kokkos::HostSpace>,
                              Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    View const wide(static_cast<Real*>(operand.data) + i * operand.batch_stride, rows, operand.row_stride);
    View const narrow = Kokkos::subview(wide, Kokkos::ALL, Kokkos::pair(0, columns));
    return narrow;
  }
#else
  bool supports(Product const&) const {
    return false;
  }
  template <class Space>
  void run(Space const&, Product const&) const {}
#endif
};

}  // namespace kfuse::host

#endif
