// SPDX-License-Identifier: Apache-2.0
// The k largest values of each row, largest first, and their columns:
//   values(r, i) = x(r, indices(r, i)),   the i-th of the row's values in order of size
//
// A NaN is larger than every number; of equals, NaNs among them, the one in the lower column comes first: a full order,
// so nothing is left to chance.
//
// One launch. The lanes of a row each find the few largest values of their share of it and keep them in registers. In k
// rounds all compare the largest that each has left; whose value wins gives it away, and looks for more in its share,
// below the winner, if it has given away all. So a row is read once from memory; looking again, which is rare but where
// large values stand side by side, reads a lane's share of it from cache.
#ifndef KFUSE_FUSED_TOP_K_HPP
#define KFUSE_FUSED_TOP_K_HPP

#include <kfuse/core/check_chain.hpp>
#include <kfuse/core/fuse.hpp>
#include <kfuse/fused/stage/argmax.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

namespace kfuse {

namespace impl {

constexpr int largest_k = 64;

// What lanes agree on: whose value comes first.
template <class Real>
struct FirstOf {
  KOKKOS_FUNCTION void merge(Ranked<Real>& first, Ranked<Real> const& other) const {
    if (ranks_before(other, first)) first = other;
  }
};

// Up to `count` values, in order.
template <class Real, int count>
struct Leading {
  Ranked<Real> held[count];

  KOKKOS_FUNCTION Ranked<Real> const& last() const { return held[count - 1]; }
  KOKKOS_FUNCTION bool is_empty() const { return held[0].index == Ranked<Real>::none; }
  // `added` comes before the last, which makes room for it.
  KOKKOS_FUNCTION void insert(Ranked<Real> const& added) {
    held[count - 1] = added;
    for (int i = count - 1; i > 0; --i)
      if (ranks_before(held[i], held[i - 1])) Kokkos::kokkos_swap(held[i], held[i - 1]);
  }
  KOKKOS_FUNCTION void drop_first() {
    for (int i = 1; i < count; ++i) held[i - 1] = held[i];
    held[count - 1] = {};
  }
};

template <class Element, Access access>
struct TopKKernel {
  static constexpr int threads = 1024, registers = 64;
  static constexpr int width = 16 / int(sizeof(Element)) < 8 ? 16 / int(sizeof(Element)) : 8;
  static constexpr int packs = 2;      // a lane asks for at a time
  static constexpr int most_held = 4;  // more would be found, but seldom needed
  using R = Real<Element>;
  using Scratch = ReduceScratch<16>;

  Tensor<Element const, 2> x;
  Tensor<Element, 2> values;
  Tensor<int, 2> indices;
  int team_size, row_lanes;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    LanesOf<Team> const lanes(team);
    Scratch scratch{nullptr};
    if (row_lanes > LanesOf<Team>::width)
      scratch.memory = static_cast<std::byte*>(lanes.scratch(Scratch::bytes(lanes.size(), LanesOf<Team>::width)));
    int const rank = lanes.rank() % row_lanes;
    std::ptrdiff_t const row =
        std::ptrdiff_t(team.league_rank()) * (lanes.size() / row_lanes) + lanes.rank() / row_lanes;
    bool const exists = row < x.extent(0);  // where not, the lanes come to the reductions alone

    Leading<R, most_held> own;
    Ranked<R> winner{std::numeric_limits<R>::quiet_NaN(), -1};  // what comes before all
    bool has_given = exists;                                    // the last winner, so that it may have no more
    for (int i = 0; i < values.extent(1); ++i) {
      if (has_given && own.is_empty()) look(row, rank, winner, own);
      winner = reduce_row(lanes, row_lanes, own.held[0], FirstOf<R>{}, scratch);
      if (exists && rank == 0) {
        values(row, i) = from_real<Element>(winner.value);
        indices(row, i) = winner.index;
      }
      has_given = exists && own.held[0].index == winner.index;
      if (has_given) own.drop_first();
    }
  }

 private:
  // Fills `own`, which is empty, with the first of this lane's values that come after `given`.
  KOKKOS_FUNCTION void look(std::ptrdiff_t row, int rank, Ranked<R> const& given, Leading<R, most_held>& own) const {
    int const columns = x.extent(1), step = row_lanes * width;
    auto const show = [&](R value, int column) {
      Ranked<R> const candidate{value, column};
      if (ranks_before(candidate, own.last()) && ranks_before(given, candidate)) own.insert(candidate);
    };
    int c = rank * width;
    for (; c + width <= columns; c += packs * step) {
      Values<R, width, access> found[packs];
#pragma unroll
      for (int p = 0; p < packs; ++p)
        if (c + p * step + width <= columns) read(x.at(row, c + p * step), found[p]);
#pragma unroll
      for (int p = 0; p < packs; ++p) {
        if (c + p * step + width > columns) continue;
#pragma unroll
        for (int i = 0; i < width; ++i) show(found[p][i], c + p * step + i);
      }
    }
    // What is left over of the row is the share of the lane whose pack it would be.
    int const whole = columns / width * width;
    if (whole / width % row_lanes == rank)
      for (c = whole; c < columns; ++c) show(to_real(x(row, c)), c);
  }
};

template <class Element>
void check_top_k(Tensor<Element const, 2> const& x, Tensor<Element, 2> const& values, Tensor<int, 2> const& indices) {
  int const k = values.extent(1);
  check(values.extent(0) == x.extent(0), "kfuse::top_k: values", [&] {
    return "its shape is " + shape_text(values) + ", but x is " + shape_text(x) + "; give it k values for each row";
  });
  check(same_shape(values, indices), "kfuse::top_k: indices", [&] {
    return "its shape " + shape_text(indices) + " is not that of values, " + shape_text(values) +
           "; each value has one index";
  });
  check(k <= x.extent(1), "kfuse::top_k: values", [&] {
    return "k is " + std::to_string(k) + ", but rows have " + std::to_string(x.extent(1)) + " values; ask for fewer";
  });
  check(k <= largest_k, "kfuse::top_k: values", [&] {
    return "k is " + std::to_string(k) + " and may be " + std::to_string(largest_k) +
           " at most (each is found by a round of its own); sort the rows instead";
  });
  check(x.extent(1) <= largest_columns, "kfuse::top_k: x",
        "rows have more than 2^31 - 2^16 columns (columns are counted in int); ask for parts of them");
  auto const lie_apart = [](Span const& s) { return s.rows <= 1 || s.row_bytes == 0 || s.stride >= s.row_bytes; };
  Span const from = span_of(x), value = span_of(values), index = span_of(indices);
  check(lie_apart(value) && lie_apart(index) && !overlap(value, index), "kfuse::top_k: values, indices",
        "their rows overlap (which of them stays would be chance); give each memory of its own");
  check(!overlap(value, from) && !overlap(index, from), "kfuse::top_k: values, indices",
        "they overlap x (which would be overwritten while it is read); give them memory of their own");
}

template <class Element>
Traffic top_k_traffic(Tensor<Element const, 2> const& x, Tensor<Element, 2> const& values) {
  return {.bytes_read = std::size_t(x.size()) * sizeof(Element),
          .bytes_written = std::size_t(values.size()) * (sizeof(Element) + sizeof(int)),
          .flops = std::size_t(x.size())};
}

template <Access access, class Space, class Element>
void launch_top_k(Space const& space, Tensor<Element const, 2> const& x, Tensor<Element, 2> const& values,
                  Tensor<int, 2> const& indices) {
  using Kernel = TopKKernel<Element, access>;
  constexpr int lane_group = Backend<Space>::lanes;
  constexpr RowKind kind{.pack_registers = 8};  // for its layouts, which end at 1024 lanes with four packs
  int const lanes = Backend<Space>::is_host ? 1 : reducing_plan<kind>(x.extent(1), Kernel::width).layout.lanes;
  int const team = Backend<Space>::is_host ? 1 : std::max(lanes, 128), rows_here = team / lanes;
  launch(space, "kfuse::top_k", (std::ptrdiff_t(x.extent(0)) + rows_here - 1) / rows_here,
         lanes > lane_group ? Kernel::Scratch::bytes(team, lane_group) : 0, Kernel{x, values, indices, team, lanes});
}

}  // namespace impl

// x: [rows, columns]; values: of the element type of x, [rows, k]; indices: int, [rows, k]. k is at most 64 and at most
// columns. Returns before the work is done.
template <class Space, TensorLike X, TensorLike V, TensorLike I>
void top_k(Space const& space, X const& x, V const& values, I const& indices) {
  using Element = impl::ElementOf<X>;
  auto const in = impl::tensor_of<2, Space, Element const>(x, "kfuse::top_k", "x");
  auto const largest = impl::tensor_of<2, Space, Element>(values, "kfuse::top_k", "values");
  auto const places = impl::tensor_of<2, Space, int>(indices, "kfuse::top_k", "indices");
  impl::check_top_k(in, largest, places);
  if (largest.empty()) return;

  if (!Ledger::state("kfuse::top_k", 1, impl::top_k_traffic(in, largest))) return;
  if constexpr (!impl::Backend<Space>::is_host)
    if (impl::is_wide(impl::as_chain(load(in)), impl::TopKKernel<Element, Access::wide>::width))
      return impl::launch_top_k<Access::wide>(space, in, largest, places);
  impl::launch_top_k<Access::single>(space, in, largest, places);
}

// The same arguments as above.
template <class Space, TensorLike X, TensorLike V, TensorLike I>
Traffic top_k_traffic(Space const&, X const& x, V const& values, I const&) {
  using Element = impl::ElementOf<X>;
  return impl::top_k_traffic(impl::tensor_of<2, Space, Element const>(x, "kfuse::top_k", "x"),
                             impl::tensor_of<2, Space, Element>(values, "kfuse::top_k", "values"));
}

}  // namespace kfuse

#endif
