// SPDX-License-Identifier: Apache-2.0
// What the vendors' matrix libraries are asked for: a library in plain loops takes their place, which counts columns
// first as they do. So everything but the libraries themselves is tested without a GPU.
#include <kfuse/core/element.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "loops_library.hpp"
#include "support.hpp"

namespace {

using kfuse::Transpose;
using kfuse::impl::Product;
using kfuse::impl::ProductActivation;
using namespace kfuse::test;

using Blas = kfuse::gpu::LtBlas<Loops>;
using Space = LoopsRuntime::Space;
constexpr int batch = 2, rows = 3, columns = 5, depth = 4;

// Small integers in matrices whose rows and members lie apart, so that every sum is exact.
template <class Element>
struct Matrix {
  int height, width, row_stride = width + 3, batch_stride = row_stride * height + 7;
  alignas(256) Element memory[256];

  Matrix(int h, int w, int seed) : height(h), width(w) {
    auto const values = random_values(256, seed, -3, 4);
    for (int i = 0; i < 256; ++i) memory[i] = kfuse::from_real<Element>(std::floor(values[i]));
  }
  double at(int b, int row, int column) const {
    return kfuse::to_real(memory[b * batch_stride + row * row_stride + column]);
  }
  template <class Memory>
  kfuse::impl::Operand<Memory> operand() {
    return {memory, row_stride, batch_stride};
  }
};

template <class Element>
struct Matrices {
  Matrix<Element> a{rows, depth, 1}, b, d{rows, columns, 3}, residual{rows, columns, 4}, bias{1, columns, 5};
  Transpose order;

  explicit Matrices(Transpose o)
      : b(o == Transpose::yes ? columns : depth, o == Transpose::yes ? depth : columns, 2), order(o) {}
  Product product() {
    return {.element = kfuse::element_type<Element>,
            .batch = batch,
            .rows = rows,
            .columns = columns,
            .depth = depth,
            .a = a.template operand<void const>(),
            .b = b.template operand<void const>(),
            .transpose_b = order,
            .d = d.template operand<void>()};
  }
  // Is d what p says, if it was `before`?
  void check(Product const& p, Matrix<Element> const& before) const {
    for (int n = 0; n < batch; ++n)
      for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) {
          double sum = 0;
          for (int k = 0; k < depth; ++k)
            sum += a.at(n, i, k) * (order == Transpose::yes ? b.at(n, j, k) : b.at(n, k, j));
          sum *= p.alpha;
          if (p.bias) sum += bias.at(0, 0, j);
          if (p.residual.data) sum += (p.residual.data == d.memory ? before : residual).at(n, i, j);
          if (p.activation == ProductActivation::relu) sum = std::max(sum, 0.0);
          CHECK(d.at(n, i, j) == sum);
        }
  }
};

TEST_CASE_TEMPLATE("the library is asked for the product that is meant", Element, double, kfuse::bf16) {
  for (Transpose const order : {Transpose::no, Transpose::yes}) {
    Matrices<Element> m(order);
    std::vector<Product> products(6, m.product());
    products[1].alpha = 2;
    products[2].bias = m.bias.memory;
    products[3].bias = m.bias.memory;
    products[3].activation = ProductActivation::relu;
    products[4].residual = m.residual.template operand<void const>();
    products[5].residual = m.d.template operand<void const>();
    Blas blas(Space(), 1000, false);
    for (std::size_t i = 0; i < products.size(); ++i) {
      CAPTURE(i);
      auto const before = m.d;
      REQUIRE(blas.supports(products[i]));
      blas.run(Space(), products[i]);
      m.check(products[i], before);
    }
  }
}

TEST_CASE("a plan is made once for products that are alike, and bound to how their memory is aligned") {
  Matrices<kfuse::bf16> m(Transpose::no);
  Blas blas(Space(), 1000, false);
  Product p = m.product();
  p.bias = m.bias.memory;
  int const before = Loops::proposals;
  for (int i = 0; i < 3; ++i) blas.run(Space(), p);
  p.bias = m.residual.memory;  // aligned the same way: the plan stays, the pointer does not
  blas.run(Space(), p);
  m.bias = m.residual;
  m.check(p, m.d);
  CHECK(Loops::proposals == before + 1);
  p.d.data = m.d.memory + 1;
  blas.run(Space(), p);
  p = m.product();
  p.rows = 2;
  blas.run(Space(), p);
  CHECK(Loops::proposals == before + 3);
}

TEST_CASE("tuning keeps the fastest algorithm that works and leaves the output alone; not while a stream is captured") {
  for (bool const captured : {false, true}) {
    Matrices<double> m(Transpose::yes);
    Product p = m.product();
    p.residual = m.d.operand<void const>();
    auto const before = m.d;
    Blas blas(Space(), 1000, true);
    LoopsRuntime::capturing = captured;
    blas.run(Space(), p);
    LoopsRuntime::capturing = false;
    CHECK(Loops::last_algorithm == (captured ? 0 : 1));
    m.check(p, before);
  }
}

TEST_CASE("what the library does not take is said before; what it fails at is an error with its reason") {
  Matrices<double> m(Transpose::no);
  Product p = m.product();
  Blas blas(Space(), 1000, false);
  Loops::answer = Loops::not_supported;
  CHECK_FALSE(blas.supports(p));
  Loops::answer = Loops::broken;
  p.rows = 2;
  CHECK_THROWS_WITH_AS(blas.supports(p), doctest::Contains("loops could not propose an algorithm: broken"),
                       kfuse::Error);
  Loops::answer = Loops::success;
  CHECK(blas.supports(p));
  p.depth = 0;
  CHECK_FALSE(blas.supports(p));
}

}  // namespace
