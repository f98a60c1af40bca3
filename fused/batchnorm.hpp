// SPDX-License-Identifier: Apache-2.0
// Batch normalisation at inference, with the statistics that training has kept (Ioffe, Szegedy 2015), and a ReLU if
// asked for:
//   y = activation((x - running_mean(c)) / sqrt(running_var(c) + epsilon) * weight(c) + bias(c))
//
// The layout follows from the rank of x: [rows, channels] is channels last (NHWC with rows = N H W, or vectors), and
// [images, channels, positions] is NCHW with positions = H W. One launch each.
//
// NCHW is the chain load_batch | batchnorm | store_batch: a row has one channel. Channels last is load | batchnorm |
// store; there, four parameters for each column would cost more reads than x itself (L1, not memory: 128 bytes of float
// parameters for 16 of bf16 values). So where rows are many enough to fill the device, a kernel of its own runs the
// same stages: a lane keeps the parameters of its columns and goes down the rows. The bits are the same.
#ifndef KFUSE_FUSED_BATCHNORM_HPP
#define KFUSE_FUSED_BATCHNORM_HPP

#include <kfuse/core/check_chain.hpp>
#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/batchnorm.hpp>

#include <algorithm>
#include <cstddef>

namespace kfuse {

namespace impl {

template <class T>
constexpr int rank_of() {
  if constexpr (Kokkos::is_view_v<T>)
    return int(T::rank());
  else
    return T::rank;
}

template <class Space, TensorLike M, TensorLike V, TensorLike W, TensorLike B>
auto batchnorm_channels(M const& mean, V const& variance, W const& weight, B const& bias, double epsilon) {
  using Element = ElementOf<M>;
  return BatchNormChannels<Element>{tensor_of<1, Space, Element const>(mean, "kfuse::batchnorm", "running_mean"),
                                    tensor_of<1, Space, Element const>(variance, "kfuse::batchnorm", "running_var"),
                                    tensor_of<1, Space, Element const>(weight, "kfuse::batchnorm", "weight"),
                                    tensor_of<1, Space, Element const>(bias, "kfuse::batchnorm", "bias"), epsilon};
}

template <class Space, TensorLike X, TensorLike Y, class Element>
auto batchnorm_chain(X const& x, BatchNormChannels<Element> const& channels, Y const& y,
                     BatchNormOptions const& options) {
  constexpr int rank = rank_of<X>();
  static_assert(rank == 2 || rank == 3,
                "kfuse: batchnorm takes [rows, channels] (channels last) or [images, channels, positions] (NCHW)");
  auto const in = tensor_of<rank, Space, ElementOf<X> const>(x, "kfuse::batchnorm", "x");
  auto const out = tensor_of<rank, Space, ElementOf<Y>>(y, "kfuse::batchnorm", "y");
  check(same_shape(in, out), "kfuse::batchnorm: y", [&] {
    return "shape " + shape_text(out) + " is not that of x, " + shape_text(in) + "; give it one value for each of x";
  });
  check(options.activation == Activation::none || options.activation == Activation::relu, "kfuse::batchnorm",
        "activation must be none or relu (others are not fused with it); run another one as a chain of its own");
  channels.check("kfuse::batchnorm", in.extent(1));
  float const low = batchnorm_low(options.activation);
  if constexpr (rank == 2)
    return load(in) | BatchNormColumns<Element>{channels, low} | store(out);
  else
    return load_batch(in) | BatchNormRows<Element>{channels, low, BatchRows(in.extent(1))} | store_batch(out);
}

// A team takes `tile` packs of the columns and `rows_here` rows of them; a lane takes one pack, and every `step`-th
// row.
template <class Real, int width, class C>
struct BatchNormKernel {
  static constexpr int threads = 256;
  // Four packs in flight, as they are in memory, beside three values for each column of a pack.
  static constexpr int vectors = 4, registers = 64;
  static constexpr int rows_of_lane = 8;  // so many times less is read of the parameters
  using X = Values<Real, width, Access::wide>;

  C chain;  // load | batchnorm | store
  std::ptrdiff_t rows, step, rows_here;
  int packs, tile, tiles;

  BatchNormKernel(C const& c, Shape shape)
      : chain(c), rows(shape.rows), packs(shape.columns / width), tiles((packs + threads - 1) / threads) {
    tile = (packs + tiles - 1) / tiles;
    step = threads / tile;
    rows_here = step * rows_of_lane;
  }
  std::ptrdiff_t league() const { return (rows + rows_here - 1) / rows_here * tiles; }

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    LanesOf<Team> const lanes(team);
    int const pack = team.league_rank() % tiles * tile + lanes.rank() % tile, down = lanes.rank() / tile;
    if (pack >= packs || down >= step) return;
    std::ptrdiff_t const first = std::ptrdiff_t(team.league_rank() / tiles) * rows_here;
    std::ptrdiff_t const end = first + rows_here < rows ? first + rows_here : rows;
    auto const& load = stage<0>(chain);
    auto const& batchnorm = stage<1>(chain);
    auto const& store = stage<2>(chain);
    auto const held = batchnorm.template held<X>(pack * width);
    for (std::ptrdiff_t row = first + down; row < end; row += vectors * step) {
      decltype(load.template fetch<X>(Place{})) read[vectors];
      for_each_row({row, pack * width}, end, [&](int v, Place at) { read[v] = load.template fetch<X>(at); });
      for_each_row({row, pack * width}, end, [&](int v, Place at) {
        X x;
        load.take(x, read[v], at);
        held.apply(x, batchnorm.low);
        store.apply(x, at);
      });
    }
  }

 private:
  template <class F>
  KOKKOS_FUNCTION void for_each_row(Place at, std::ptrdiff_t end, F const& visit) const {
#pragma unroll
    for (int v = 0; v < vectors; ++v, at.row += step)
      if (at.row < end) visit(v, at);
  }
};

// Channels last, by the kernel that keeps the parameters; false if it does not suit.
template <class Space, class C>
bool batchnorm_by_columns(Space const& space, C const& chain) {
  using Types = ChainTypes<C>;
  using Kernel = BatchNormKernel<typename Types::Real, Types::width, C>;
  auto const label = "kfuse::batchnorm";
  Shape const shape = shape_of(chain, label);
  if (shape.columns == 0 || shape.columns % Types::width != 0 || !is_wide(chain, Types::width)) return false;
  Kernel const kernel(chain, shape);
  if (kernel.league() * Kernel::threads < std::ptrdiff_t(space.concurrency())) return false;
  check_chain(chain, label, shape);
  if (Ledger::state(label, 1, traffic(chain))) launch(space, label, kernel.league(), 0, kernel);
  return true;
}

}  // namespace impl

// x, y: [rows, channels], or [images, channels, positions]; running_mean, running_var, weight, bias: [channels], of one
// element type. y may be x. Returns before the work is done.
template <class Space, TensorLike X, TensorLike M, TensorLike V, TensorLike W, TensorLike B, TensorLike Y>
void batchnorm(Space const& space, X const& x, M const& running_mean, V const& running_var, W const& weight,
               B const& bias, Y const& y, BatchNormOptions const& options = {}) {
  auto const channels = impl::batchnorm_channels<Space>(running_mean, running_var, weight, bias, options.epsilon);
  auto const chain = impl::batchnorm_chain<Space>(x, channels, y, options);
  if constexpr (impl::rank_of<X>() == 2 && !impl::Backend<Space>::is_host)
    if (impl::batchnorm_by_columns(space, chain)) return;
  fuse(space, "kfuse::batchnorm", chain);
}

template <class Space, TensorLike X, TensorLike M, TensorLike V, TensorLike W, TensorLike B, TensorLike Y>
Traffic batchnorm_traffic(Space const&, X const& x, M const& running_mean, V const& running_var, W const& weight,
                          B const& bias, Y const& y, BatchNormOptions const& options = {}) {
  auto const channels = impl::batchnorm_channels<Space>(running_mean, running_var, weight, bias, options.epsilon);
  return traffic(impl::batchnorm_chain<Space>(x, channels, y, options));
}

}  // namespace kfuse

#endif
