// SPDX-License-Identifier: Apache-2.0
// Blas: the matrix library of an execution space, for the operators that multiply matrices.
//
//   kfuse::Blas<Space> blas(space);
//   kfuse::linear(space, blas, x, w, y);
//
// On NVIDIA GPUs it is cuBLASLt, on AMD GPUs hipBLASLt, which also apply a bias and some activations, or else rocBLAS;
// on the host Kokkos Kernels; each if this build has it. Sums are kept in float, for fp64 in double, and never in TF32.
// The same product on the same device has the same bits each time (of hipBLASLt and rocBLAS this is not secured yet),
// but a row's may depend on how many rows there are: libraries choose their algorithm by shape.
#ifndef KFUSE_CORE_BLAS_HPP
#define KFUSE_CORE_BLAS_HPP

#include <kfuse/backends/blas.hpp>
#include <kfuse/core/check.hpp>
#include <kfuse/core/element.hpp>
#include <kfuse/core/product.hpp>
#include <kfuse/core/tensor.hpp>
#include <kfuse/core/workspace.hpp>

#include <Kokkos_Core.hpp>
#include <Kokkos_Profiling_ScopedRegion.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace kfuse {

struct BlasOptions {
  std::size_t workspace_bytes = std::size_t(32) << 20;  // of GPU memory, which lets libraries split long sums

  // Before the first product of each shape, time the algorithms that the library proposes and keep the fastest. That
  // allocates memory for a second output and waits for the device, once a shape, and not while a stream is captured: a
  // shape first met there keeps the library's first proposal. The choice, and with it the bits, may differ in another
  // run of the program.
  bool tune = false;
};

// Holds the library's handle, its scratch memory, and a plan for each shape it has met; products of a shape met before
// allocate nothing. Products of one Blas share the scratch memory: use it from one thread, on one instance of Space at
// a time. It must be gone before Kokkos::finalize.
template <class Space>
class Blas {
  using Library = typename impl::Backend<Space>::Blas;

 public:
  explicit Blas(Space const& space, BlasOptions const& options = {}) : library_(checked(space, options)) {}

  Blas(Blas&&) = default;
  Blas& operator=(Blas&&) = default;

  // A number no other Blas or Workspace has had: what is recorded with this one holds the address of its memory.
  std::uint64_t generation() const { return generation_; }

  // For operators. Can products of this element type have this epilogue without a launch more?
  static constexpr bool fuses(ElementType element, impl::ProductEpilogue const& epilogue) {
    return Library::fuses(element, epilogue);
  }
  // Does the library take this product? If not, the operator must compute it by a kernel of its own.
  bool supports(impl::Product const& product) { return library_.supports(product); }
  // Starts a supported product on `space`. Profilers see a region `label`.
  void run(Space const& space, std::string const& label, impl::Product const& product) {
    Kokkos::Profiling::ScopedRegion const region(label);
    library_.run(space, product);
  }

 private:
  static Library checked(Space const& space, BlasOptions const& options) {
    impl::check(Kokkos::is_initialized(), "blas",
                "Kokkos is not initialized; create a Kokkos::ScopeGuard in main first");
    return Library(space, options.workspace_bytes, options.tune);
  }

  Library library_;
  std::uint64_t generation_ = impl::next_generation();
};

namespace impl {

// A matrix as a batch of one.
template <class Element>
Tensor<Element, 3> as_batch(Tensor<Element, 2> const& t) {
  return {t.data, {1, t.extent(0), t.extent(1)}, {0, t.stride(0), 1}};
}

// Strides that are never used take one value, so that they neither matter to libraries nor tell plans apart.
template <class Memory, class Element>
Operand<Memory> operand(Tensor<Element, 3> const& t) {
  return {t.data, t.extent(1) > 1 ? t.stride(1) : t.extent(2), t.extent(0) > 1 ? t.stride(0) : 0};
}

// d = a b, for each member of the batch.
template <class Element>
Product product(Tensor<Element const, 3> const& a, Tensor<Element const, 3> const& b, Transpose transpose_b,
                Tensor<Element, 3> const& d) {
  return {.element = element_type<Element>,
          .batch = d.extent(0),
          .rows = d.extent(1),
          .columns = d.extent(2),
          .depth = a.extent(2),
          .a = operand<void const>(a),
          .b = operand<void const>(b),
          .transpose_b = transpose_b,
          .d = operand<void>(d)};
}

// Rows of a matrix must not lie on each other, which libraries do not foresee.
template <class Element>
void check_rows_apart(Tensor<Element, 3> const& t, std::string_view where) {
  check(t.empty() || t.extent(1) == 1 || t.stride(1) >= t.extent(2), where,
        "its rows overlap (the row stride is less than the row); copy it to a matrix of its own first");
}

}  // namespace impl
}  // namespace kfuse

#endif
