// SPDX-License-Identifier: Apache-2.0
// The product of few rows with a weight, and what comes before and after it, in one launch:
//
//   epilogue(prologue(x) w^T)
//
// Nothing but the weight's bytes shall count. Each team has an even share of the outputs, and goes over the depth for a
// few of them at a time; its lane groups share out the depth in pieces, and merge their sums in order. Pieces of the
// weight come to team memory in a ring of each lane group's own, so that groups wait for each other only where they
// merge. The prologue is evaluated by every team: it is of few rows, and near. Outputs go in pairs, so that what an
// epilogue takes together (the halves of a rotation, a gate and its up) is in one tile.
//
// A result's bits depend on its row, its output, the depth and the backend: not on other rows or their number, on how
// many multiprocessors there are, or on where operands lie.
//
// 4 kernels for a prologue, an epilogue and an element type.
#ifndef KFUSE_CORE_FEW_ROWS_PRODUCT_HPP
#define KFUSE_CORE_FEW_ROWS_PRODUCT_HPP

#include <kfuse/backends/fragment.hpp>
#include <kfuse/core/chain.hpp>
#include <kfuse/core/divisor.hpp>
#include <kfuse/core/evaluate.hpp>
#include <kfuse/core/launch.hpp>
#include <kfuse/core/product_pieces.hpp>
#include <kfuse/core/read_ahead.hpp>
#include <kfuse/core/row_reduce.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace kfuse {

// May a weight be read before earlier work on the space is done? It may if that work does not write it.
enum class WeightsAre { written_before, constant };

namespace impl {

template <class S>
constexpr bool states_pairs = requires(S const& s) {
  s.product_pairs(0);
};
// The pairs of a product's columns that an epilogue takes together. One that takes none has those of a tile of
// `outputs`.
template <class C>
ProductPairs pairs_of(C const& epilogue, int columns, int outputs) {
  ProductPairs pairs{outputs / 2, outputs};
  for_each_stage(epilogue, [&](auto const& s) {
    if constexpr (states_pairs<std::remove_cvref_t<decltype(s)>>) pairs = s.product_pairs(columns);
  });
  return pairs;
}
template <class C>
constexpr bool joins_pairs = false;
template <class First, class... Rest>
constexpr bool joins_pairs<Chain<First, Rest...>> = is_stage_kind<First, JoinStage>;

// Is there no other stage that joins?
template <class C>
constexpr bool joins_first = true;
template <class First, class... Rest>
constexpr bool joins_first<Chain<First, Rest...>> = (!is_stage_kind<Rest, JoinStage> && ...);

// Can chains be part of one kernel with a product? What follows must reduce nothing, and at most one stage may take
// columns in pairs, ones that it states. All of it must go into a kernel's arguments.
template <class C>
constexpr bool follows_few_rows = false;
template <class... S>
constexpr bool follows_few_rows<Chain<S...>> = (!is_stage_kind<S, RowStage> && ...) &&
                                               ((is_stage_kind<S, PairStage> + is_stage_kind<S, JoinStage>)+...) <= 1 &&
                                               ((!is_stage_kind<S, PairStage> || states_pairs<S>)&&...);

constexpr std::size_t few_rows_arguments = 56;  // bytes beside the chains
template <class P, class E>
constexpr bool fits_few_rows =
    !ChainTypes<P>::has_pairs && follows_few_rows<E> && sizeof(P) + sizeof(E) + few_rows_arguments <= most_kernel_bytes;

template <class Pieces, class Copy, int groups, Access access, class P, class E>
struct FewRowsKernel {
  using Element = typename Pieces::Element;
  using Real = typename Pieces::Real;
  using Memory = typename Pieces::Memory;
  template <class C>
  using RealWith = std::conditional_t<std::is_same_v<Element, double>, double, typename ChainTypes<C>::Real>;
  using PrologueReal = RealWith<P>;
  using EpilogueReal = RealWith<E>;
  using Known = Results<PrologueReal, P>;  // of a row
  static constexpr int chunk = Memory::chunk, group_lanes = Pieces::lanes, threads = groups * group_lanes;
  using X = Values<PrologueReal, chunk, access>;
  static constexpr int outputs = Pieces::outputs, depth = Pieces::depth, most_rows = Pieces::rows;
  static constexpr int tile_pairs = outputs / 2;  // the first of each pair, and then the second
  static constexpr int registers = std::min(255, Copy::team_registers / threads / 8 * 8);
  static constexpr bool waits_itself = true;

  static constexpr int w_bytes = outputs * Memory::pitch, x_bytes = Pieces::x_lines * Memory::pitch;
  static constexpr int sums = groups * most_rows * outputs;  // of a turn
  static constexpr int bytes_beside =
      Memory::pitch + groups * x_bytes + 2 * sums * int(sizeof(Real)) + most_rows * int(sizeof(Known));
  static constexpr int stages =
      std::max(1, std::min(Copy::bytes_ahead, (Copy::team_bytes - bytes_beside) / groups) / w_bytes);
  static constexpr int group_bytes = stages * w_bytes + x_bytes;
  static constexpr std::size_t scratch_bytes = bytes_beside + groups * stages * w_bytes;

  P prologue;
  E epilogue;
  Element const* w;     // [out, in]
  std::ptrdiff_t line;  // from one output's weights to the next
  int out, in;
  int rows, shares;     // of the pairs
  int distance;         // of the columns of a pair: ProductPairs
  Divisor group_pairs;  // of a group
  WeightsAre weights;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    LanesOf<Team> const lanes(team);
    Job const job(*this, team.league_rank(), lanes.rank(), aligned(lanes.scratch(scratch_bytes), Memory::pitch));
    Weights next(*this, job);
    if (weights == WeightsAre::written_before) lanes.wait_for_kernel_before();
    for (int stage = 0; stage < stages; ++stage) bring(job, next, stage);
    if (weights == WeightsAre::constant) lanes.wait_for_kernel_before();
    learn<0>(lanes, job);

    Pieces product(lanes.rank());
    Coming coming;
    read_rows(job, job.group, coming);
    int stage = 0, turn = 0;
    for (int pair = job.first; pair < job.last; pair += tile_pairs, turn ^= 1) {
      for (int piece = job.group; piece < job.pieces; piece += groups) {
        write_rows(job, piece, coming);
        read_rows(job, piece + groups < job.pieces ? piece + groups : job.group, coming);
        Copy::template wait_for_all_but<stages - 1>();
        lanes.group_barrier();  // the group's rows and its oldest stage are there
        product.multiply(job.x_tile(), job.w_tile(stage));
        lanes.group_barrier();  // and no longer needed
        bring(job, next, stage);
        stage = stage + 1 < stages ? stage + 1 : 0;
      }
      Real* const here = job.sums + std::ptrdiff_t(turn) * sums;
      product.take(lanes, [&](int row, int i, Real sum) { here[(job.group * most_rows + row) * outputs + i] = sum; });
      lanes.barrier();  // the sums of all groups are there; those of the turn before are no longer needed
      finish(job, lanes.rank(), pair, here);
    }
  }

 private:
  // What a team does, and a lane of it.
  struct Job {
    int first_row, rows;  // at most `most_rows`
    int first, last;      // pairs
    int pieces;           // of the depth
    int group, lane;
    std::byte* tiles;  // of the group
    Real* sums;        // [turn][group][row][output]
    Known* known;      // [row]

    KOKKOS_FUNCTION Job(FewRowsKernel const& kernel, int team, int rank, std::byte* memory) {
      int const blocks = row_blocks(kernel.rows), share = team / blocks;  // neighbours read the same weights
      first_row = team % blocks * most_rows;
      rows = kernel.rows - first_row < most_rows ? kernel.rows - first_row : most_rows;
      std::ptrdiff_t const all = kernel.pairs();
      first = int(all * share / kernel.shares);
      last = int(all * (share + 1) / kernel.shares);
      pieces = kernel.in / depth + (kernel.in % depth > 0 ? 1 : 0);
      group = rank / group_lanes;
      lane = rank % group_lanes;
      tiles = memory + std::ptrdiff_t(group) * group_bytes;
      sums = reinterpret_cast<Real*>(memory + std::ptrdiff_t(groups) * group_bytes);
      known = reinterpret_cast<Known*>(sums + 2 * FewRowsKernel::sums);
    }
    KOKKOS_FUNCTION Memory w_tile(int stage) const { return {tiles + std::ptrdiff_t(stage) * w_bytes}; }
    KOKKOS_FUNCTION Memory x_tile() const { return {tiles + std::ptrdiff_t(stages) * w_bytes}; }
  };
  // A lane's part of the piece of the weight that its group brings next: a chunk in each of its slots.
  static constexpr int across = depth / chunk, slots = outputs * across / group_lanes;
  static_assert(outputs * across % group_lanes == 0);
  struct Weights {
    Element const* from[slots];  // at a depth of zero
    unsigned exists = 0;         // a bit for each
    int pair, piece;             // the first of the tile

    KOKKOS_FUNCTION Weights(FewRowsKernel const& kernel, Job const& job) : pair(job.first), piece(job.group) {
      aim(kernel, job);
    }
    KOKKOS_FUNCTION void aim(FewRowsKernel const& kernel, Job const& job) {
      exists = 0;
#pragma unroll
      for (int i = 0; i < slots; ++i) {
        int const output = slot_of(job.lane, i) / across, own = pair + output % tile_pairs;
        int const row = kernel.column(own, output / tile_pairs);
        bool const is_there = own < job.last && row < kernel.out;
        exists |= unsigned(is_there) << i;
        from[i] = kernel.w + (is_there ? row * kernel.line : 0) + slot_of(job.lane, i) % across * chunk;
      }
    }
  };
  static_assert(slots <= 32, "there is a bit for each");
  KOKKOS_FUNCTION static int slot_of(int lane, int i) {
    return lane + i * group_lanes;
  }
  // The column of the product that is first or second in a pair.
  KOKKOS_FUNCTION int column(int pair, int which) const {
    int const group = int(group_pairs.quotient(unsigned(pair))), i = pair - group * int(group_pairs.divisor);
    return group * 2 * int(group_pairs.divisor) + (i < distance ? i + which * distance : 2 * i + which);
  }

 public:
  static KOKKOS_FUNCTION int row_blocks(int rows) {
    return (rows + most_rows - 1) / most_rows;
  }
  // Some of the last may have columns that do not exist.
  KOKKOS_FUNCTION int pairs() const {
    int const in_group = int(group_pairs.divisor);
    return (out - 1) / (2 * in_group) * in_group + in_group;
  }

 private:
  // visit(row, column) for the chunks of a tile of `height` rows that are this lane's.
  template <int height, class F>
  KOKKOS_FUNCTION static void each_chunk(int lane, F const& visit) {
    constexpr int all = height * across;
#pragma unroll
    for (int i = 0; i < (all + group_lanes - 1) / group_lanes; ++i) {
      int const c = lane + i * group_lanes;
      if (all % group_lanes == 0 || c < all) visit(c / across, c % across * chunk);
    }
  }

  // Starts to bring the group's next piece of the weight, with zeros for what does not exist.
  KOKKOS_FUNCTION void bring(Job const& job, Weights& next, int stage) const {
    if (next.piece < job.pieces && next.pair < job.last) {
      Memory const to = job.w_tile(stage);
      int const first_depth = next.piece * depth;
#pragma unroll
      for (int i = 0; i < slots; ++i) {
        int const output = slot_of(job.lane, i) / across, k = slot_of(job.lane, i) % across * chunk;
        bool const exists = next.exists >> i & 1u;
        if constexpr (access == Access::wide) {
          Copy::start(to.at(output, k), next.from[i] + first_depth, exists && first_depth + k < in);
        } else {
          for (int c = 0; c < chunk; ++c)
            to.at(output, k)[c] = exists && first_depth + k + c < in ? next.from[i][first_depth + c] : zero();
        }
      }
      next.piece += groups;
      if (next.piece >= job.pieces) {
        next.piece = job.group;
        next.pair += tile_pairs;
        next.aim(*this, job);
      }
    }
    Copy::close_group();  // an empty one at the end, so that they can be counted
  }
  KOKKOS_FUNCTION static Element zero() {
    return from_real<Element>(Real(0));
  }

  // What row stage `i` of the prologue and those after it find out about the rows, into team memory. All lanes of the
  // team sum up each row; the sums of lane groups are merged in order.
  template <int i, class L>
  KOKKOS_FUNCTION void learn(L const& lanes, Job const& job) const {
    if constexpr (i < P::size) {
      auto const& s = stage<i>(prologue);
      if constexpr (is_stage_kind<std::remove_cvref_t<decltype(s)>, RowStage>) {
        using Sum = SumOf<PrologueReal, std::remove_cvref_t<decltype(s)>>;
        static_assert(sizeof(Sum) <= sizeof(Real) * 2 * outputs, "it lies where the product's sums will");
        auto* const slots = reinterpret_cast<Sum*>(job.sums);  // [row][group]
        for (int row = 0; row < job.rows; row += learnt_at_once) sum_rows<i>(lanes, job, row, slots);
        lanes.barrier();  // the sums of all groups are there
        for (int row = lanes.rank(); row < job.rows; row += threads) {
          Sum const* const of_row = slots + std::ptrdiff_t(row) * groups;
          Sum total = of_row[0];
          for (int group = 1; group < groups; ++group) merge(s, total, of_row[group]);
          result<i>(job.known[row]) = impl::finish(s, total, in, job.first_row + row);
        }
        lanes.barrier();  // what is known of all rows is there, and the slots are free
      }
      learn<i + 1>(lanes, job);
    }
  }
  // A group's sums of some rows. What is read of them is on its way at once.
  static constexpr int learnt_at_once = std::min(4, most_rows);
  template <int i, class L, class Sum>
  KOKKOS_FUNCTION void sum_rows(L const& lanes, Job const& job, int first_row, Sum* slots) const {
    constexpr int packs = 2, step = threads * chunk;
    auto const& s = stage<i>(prologue);
    int const whole = in / chunk * chunk, rank = lanes.rank();
    Sum sums_here[learnt_at_once];
#pragma unroll
    for (Sum& sum : sums_here) sum = s.template identity<PrologueReal>();
    auto const visit = [&](auto const& read, int r, int column, auto& x) {
      Place const at{job.first_row + first_row + r, column};
      evaluate_read<i, Stores::no>(prologue, read, x, at, job.known[first_row + r]);
      accumulate(s, sums_here[r], x, at, prepare(s, at.row));
    };
    for (int column = rank * chunk; column < whole; column += packs * step) {
      ReadAhead<X, Ahead::row_inputs, P> read[learnt_at_once][packs];
      auto const each = [&](auto const& f) {
#pragma unroll
        for (int r = 0; r < learnt_at_once; ++r)
#pragma unroll
          for (int k = 0; k < packs; ++k)
            if (first_row + r < job.rows && column + k * step < whole) f(r, k);
      };
      each([&](int r, int k) {
        read_ahead(prologue, read[r][k], Place{job.first_row + first_row + r, column + k * step});
      });
      each([&](int r, int k) {
        X x;
        visit(read[r][k], r, column + k * step, x);
      });
    }
    if (access == Access::single && whole / chunk % threads == rank)
      for (int r = 0; r < learnt_at_once && first_row + r < job.rows; ++r)
        for (int column = whole; column < in; ++column) {
          Values<PrologueReal, 1, Access::single> x;
          visit(NothingRead{}, r, column, x);
        }
#pragma unroll
    for (int r = 0; r < learnt_at_once; ++r) {
      Sum const sum = reduce_lanes(lanes, group_lanes, sums_here[r], s);
      if (job.lane == 0 && first_row + r < job.rows) slots[(first_row + r) * groups + job.group] = sum;
    }
  }

  // What the prologue reads of a piece of the rows, for the first chunks of a lane: the others are read when they are
  // needed.
  static constexpr int chunks = (most_rows * (depth / chunk) + group_lanes - 1) / group_lanes;
  static constexpr int ahead = access == Access::wide ? std::min(4, chunks) : 0;
  struct Coming {
    ReadAhead<X, Ahead::all, P> read[std::max(1, ahead)];
  };
  KOKKOS_FUNCTION void read_rows(Job const& job, int piece, Coming& coming) const {
    int number = 0;
    each_chunk<most_rows>(job.lane, [&](int row, int k) {
      Place const at{job.first_row + row, piece * depth + k};
      if (number < ahead && row < job.rows && at.column < in) read_ahead(prologue, coming.read[number], at);
      ++number;
    });
  }
  // The prologue's values, rounded to Element, with zeros beyond the depth. Rows that do not exist are left alone.
  KOKKOS_FUNCTION void write_rows(Job const& job, int piece, Coming& coming) const {
    int number = 0;
    each_chunk<most_rows>(job.lane, [&](int row, int k) {
      int const own = number++;
      if (row >= job.rows) return;
      Place const at{job.first_row + row, piece * depth + k};
      Element* const to = job.x_tile().at(row, k);
      Known known;
      if constexpr (ChainTypes<P>::row_stages > 0) known = job.known[row];
      if (at.column + chunk <= in) {
        X x;
        if (own < ahead) {
          draw_ahead(prologue, coming.read[own], at);
          evaluate_read<P::size, Stores::no>(prologue, coming.read[own], x, at, known);
        } else {
          evaluate<P::size, Stores::no>(prologue, x, at, known);
        }
        write(to, x);
      } else if constexpr (access == Access::wide) {
        write(to, X{});
      } else {
        for (int c = 0; c < chunk; ++c) {
          Values<PrologueReal, 1, Access::single> x{};
          if (at.column + c < in) evaluate<P::size, Stores::no>(prologue, x, Place{at.row, at.column + c}, known);
          write(to + c, x);
        }
      }
    });
  }

  // The sums of all groups for one output of a tile and one row, merged in order.
  struct Merged {
    Real const* sums;  // [group][row][output]
    KOKKOS_FUNCTION Real operator()(int row, int output) const {
      Real sum = 0;
      for (int group = 0; group < groups; ++group) sum += sums[(group * most_rows + row) * outputs + output];
      return sum;
    }
  };
  // The epilogue of this lane's outputs of those of the pairs from `first` on.
  KOKKOS_FUNCTION void finish(Job const& job, int rank, int first, Real const* sums_here) const {
    constexpr bool joins = joins_pairs<E>;
    constexpr int results = joins ? tile_pairs : outputs;
    for (int e = rank; e < job.rows * results; e += threads) {
      int const row = e / results, output = e % results, pair = first + output % tile_pairs;
      Place const at{job.first_row + row, joins ? pair : column(pair, output / tile_pairs)};
      if (pair >= job.last || (!joins && at.column >= out)) continue;
      Result x;
      follow<E::size, Stores::yes>(Merged{sums_here}, x, row, output, at);
    }
  }
  using Result = Values<EpilogueReal, 1, Access::single>;
  // x = what the epilogue's first `end` stages make of an output.
  template <int end, Stores stores>
  KOKKOS_FUNCTION void follow(Merged const& merged, Result& x, int row, int output, Place at) const {
    x[0] = EpilogueReal(merged(row, output));
    follow_from<0, end, stores>(merged, x, row, output, at);
  }
  template <int i, int end, Stores stores>
  KOKKOS_FUNCTION void follow_from(Merged const& merged, Result& x, int row, int output, Place at) const {
    if constexpr (i < end) {
      auto const& s = stage<i>(epilogue);
      using Given = std::remove_cvref_t<decltype(s)>;
      int const other_output = output < tile_pairs ? output + tile_pairs : output - tile_pairs;
      if constexpr (is_stage_kind<Given, JoinStage>) {
        s.join(x, Result{{EpilogueReal(merged(row, other_output))}});
      } else if constexpr (is_stage_kind<Given, PairStage>) {
        Place const partner = s.template partner<1>(at);
        Result other = x;
        if (partner.column != at.column) follow<i, Stores::no>(merged, other, row, other_output, partner);
        s.apply(x, other, at);
      } else if constexpr (stores == Stores::yes || !writes_memory<Given>) {
        impl::apply(s, x, at);
      }
      follow_from<i + 1, end, stores>(merged, x, row, output, at);
    }
  }
};

// What multiplies: matrix instructions for 16-bit types where there are any, or plain arithmetic, for about `rows`
// rows.
template <class Unit, class Element, int lanes, class F>
void with_pieces(int rows, F const& f) {
  if constexpr (!std::is_void_v<Unit> && in_pairs<Element>) {
    if (rows <= 8) return f(std::type_identity<FragmentPieces<Unit, Element, 8>>{});
    f(std::type_identity<FragmentPieces<Unit, Element, 16>>{});
  } else {
    if (rows == 1) return f(std::type_identity<LanePieces<Element, lanes, 1>>{});
    f(std::type_identity<LanePieces<Element, lanes, sizeof(Element) == 8 ? 4 : 8>>{});  // sums in registers
  }
}

// The matrix unit for few rows. On the host none: its fragments of 16 rows in plain loops would be mostly empty.
template <class Space>
using FewRowsUnit = std::conditional_t<Backend<Space>::is_host, void, MatrixUnit<Space>>;

// rows: of the prologue. There must be a row and an output; a depth of zero gives the epilogue of zeros.
template <class Unit, class Space, class Element, class P, class E>
void launch_few_rows(Space const& space, std::string const& label, P const& prologue, Tensor<Element const, 2> const& w,
                     E const& epilogue, int rows, WeightsAre weights) {
  constexpr int lanes = Backend<Space>::lanes, groups = AsyncCopy<Space>::lane_groups;
  constexpr int chunk = 16 / int(sizeof(Element));
  static_assert(fits_few_rows<P, E>, "fuse_linear.hpp takes another path for these");
  bool const aligned = reinterpret_cast<std::uintptr_t>(w.data) % 16 == 0 && w.stride(0) % chunk == 0;
  bool const wide = aligned && w.extent(1) % chunk == 0 && is_wide(prologue, chunk);
  with_pieces<Unit, Element, lanes>(rows, [&]<class Pieces>(std::type_identity<Pieces>) {
    auto const run = [&]<Access access>(std::integral_constant<Access, access>) {
      using Kernel = FewRowsKernel<Pieces, AsyncCopy<Space>, groups, access, P, E>;
      ProductPairs const pairs = pairs_of(epilogue, w.extent(0), Pieces::outputs);
      Kernel kernel{prologue,    epilogue, w.data, w.stride(0),    w.extent(0),
                    w.extent(1), rows,     0,      pairs.distance, Divisor(unsigned(pairs.group / 2)),
                    weights};
      kernel.shares = std::min(kernel.pairs(), Backend<Space>::Device::multiprocessors(space));
      impl::launch(space, label, std::ptrdiff_t(kernel.shares) * Kernel::row_blocks(rows), Kernel::scratch_bytes,
                   kernel);
    };
    constexpr bool has_words = ChainTypes<P>::narrowest * chunk >= 4;  // packs of 4 bytes at least
    if constexpr (has_words && !Backend<Space>::is_host)
      if (wide) return run(std::integral_constant<Access, Access::wide>{});
    run(std::integral_constant<Access, Access::single>{});
  });
}

}  // namespace impl
}  // namespace kfuse

#endif
