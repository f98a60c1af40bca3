// SPDX-License-Identifier: Apache-2.0
// matmul: the products of a batch of matrices.
//
//   c(i) = alpha a(i) b(i)
//
// One call of the matrix library; on the host, which has none for batches, one for each member. One launch of our own
// kernel for what the library refuses.
#ifndef KFUSE_FUSED_MATMUL_HPP
#define KFUSE_FUSED_MATMUL_HPP

#include <kfuse/core/blas.hpp>
#include <kfuse/core/check_chain.hpp>
#include <kfuse/core/ledger.hpp>
#include <kfuse/core/product_kernel.hpp>
#include <kfuse/fused/stage/arithmetic.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

namespace kfuse {

struct MatmulOptions {
  double alpha = 1;
  Transpose b = Transpose::no;
};

// Every argument moves once, and a matrix that the whole batch shares (its batch stride is zero) once for all.
template <class Element>
Traffic matmul_traffic(Tensor<Element const, 3> const& a, Tensor<Element const, 3> const& b,
                       Tensor<Element, 3> const& c) {
  auto const bytes = [](auto const& t) {
    std::ptrdiff_t const matrices = t.stride(0) == 0 ? std::min(1, t.extent(0)) : t.extent(0);
    return std::size_t(matrices * t.extent(1) * t.extent(2)) * sizeof(Element);
  };
  return {.bytes_read = bytes(a) + bytes(b),
          .bytes_written = bytes(c),
          .flops = 2 * std::size_t(c.size()) * std::size_t(a.extent(2))};
}

namespace impl {

// Do the matrices of an output lie apart, one after another or row by row in turns?
template <class Element>
bool batch_lies_apart(Tensor<Element, 3> const& t) {
  if (t.empty() || t.extent(0) == 1) return true;
  std::ptrdiff_t const matrix = (t.extent(1) - 1) * t.stride(1) + t.extent(2);
  std::ptrdiff_t const rows_in_turn = (t.extent(0) - 1) * t.stride(0) + t.extent(2);
  bool const in_turns = t.stride(0) >= t.extent(2) && (t.extent(1) == 1 || t.stride(1) >= rows_in_turn);
  return t.stride(0) >= matrix || in_turns;
}

template <class Element>
void check_matmul(Tensor<Element const, 3> const& a, Tensor<Element const, 3> const& b, Tensor<Element, 3> const& c,
                  MatmulOptions const& options) {
  bool const transposed = options.b == Transpose::yes;
  int const depth = b.extent(transposed ? 2 : 1), columns = b.extent(transposed ? 1 : 2);
  check(a.extent(0) == b.extent(0) && a.extent(2) == depth, "kfuse::matmul: b", [&] {
    return "its shape " + shape_text(b) + ", taken as " + (transposed ? "[batch, n, k]" : "[batch, k, n]") +
           ", does not fit a, which is " + shape_text(a) + "; is the other Transpose meant?";
  });
  check(c.extent(0) == a.extent(0) && c.extent(1) == a.extent(1) && c.extent(2) == columns, "kfuse::matmul: c", [&] {
    return "its shape is " + shape_text(c) + ", but a " + shape_text(a) + " and b " + shape_text(b) + " make [" +
           std::to_string(a.extent(0)) + ", " + std::to_string(a.extent(1)) + ", " + std::to_string(columns) +
           "]; give c that shape";
  });
  check(std::isfinite(options.alpha), "kfuse::matmul: alpha",
        [&] { return "it must be finite, and is " + number_text(options.alpha) + "; choose 1 to scale nothing"; });
  check_rows_apart(a, "kfuse::matmul: a");
  check_rows_apart(b, "kfuse::matmul: b");
  check_rows_apart(c, "kfuse::matmul: c");
  check(a.stride(0) >= 0, "kfuse::matmul: a",
        "its batch stride is negative; give the batch in the order of its memory");
  check(b.stride(0) >= 0, "kfuse::matmul: b",
        "its batch stride is negative; give the batch in the order of its memory");
  check(batch_lies_apart(c), "kfuse::matmul: c",
        "its matrices overlap (which of them stays would be chance); give each memory of its own");
  check(!overlap(span_of(c), span_of(a)) && !overlap(span_of(c), span_of(b)), "kfuse::matmul: c",
        "it overlaps a or b (which would be overwritten while they are read); give it memory of its own");
}

}  // namespace impl

// a: [batch, m, k]; b: [batch, k, n] or, with Transpose::yes, [batch, n, k]; c: [batch, m, n]. All are of one element
// type: fp64, fp32, bf16 or fp16. Rows and batch may be strided; a batch stride of zero repeats one matrix of a or b. c
// must not lie between the first and the last element of a or b. A k of zero gives zeros. Returns before the work is
// done.
template <class Space, TensorLike A, TensorLike B, TensorLike C>
requires Kokkos::is_execution_space_v<Space>
void matmul(Space const& space, Blas<Space>& blas, A const& a, B const& b, C const& c,
            MatmulOptions const& options = {}) {
  using Element = std::remove_const_t<typename C::value_type>;
  auto const left = impl::tensor_of<3, Space, Element const>(a, "kfuse::matmul", "a");
  auto const right = impl::tensor_of<3, Space, Element const>(b, "kfuse::matmul", "b");
  auto const out = impl::tensor_of<3, Space, Element>(c, "kfuse::matmul", "c");
  impl::check_matmul(left, right, out, options);
  if (out.empty()) return;

  impl::Product product = impl::product(left, right, options.b, out);
  product.alpha = options.alpha;
  bool const library = product.depth > 0 && blas.supports(product);
  int const launches = library && impl::Backend<Space>::is_host ? product.batch : 1;
  if (!Ledger::state("kfuse::matmul", launches, matmul_traffic(left, right, out))) return;
  if (library)
    blas.run(space, "kfuse::matmul", product);
  else
    impl::launch_product(space, "kfuse::matmul", left, right, options.b, out, scale(options.alpha));
}

}  // namespace kfuse

#endif
