// SPDX-License-Identifier: Apache-2.0
// The product of few rows with a weight, and what comes before and after it, in one launch:
//
//   epilogue(prologue(x) w^T)
//
// Nothing but the weight's bytes shall count. Each team has an even share of the outputs, and goes over the depth for a
// few of them at a time; its lane groups share out the depth in pieces, and merge their sums in order. Pieces of the
// weight come to team memory in a ring of each lane group's own, so that groups wait for each other only where they
// merge. Outputs go in pairs, so that what an epilogue takes together (the halves of a rotation, a gate and its up) is
// in one tile.
//
// Every team holds the prologue's values of its rows in team memory, of all the depth, or of as much of it as there is
// room for: they come there as they are, are reduced and then changed in place. All that happens once a team is in
// loops that are not unrolled: what a kernel executes for the first time comes from memory, behind the weights (H200,
// 2026-12-01: unrolled for two rows and four packs, with the registers to read ahead, a Llama-3-8B layer took 132 us
// instead of 113).
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
#include <kfuse/core/row_reduce.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace kfuse {

// May a weight, and vectors by column of the chain before it, be read before earlier work on the space is done? They
// may if no such work writes them.
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

constexpr std::size_t few_rows_arguments = 64;  // bytes beside the chains
template <class P, class E>
constexpr bool fits_few_rows =
    !ChainTypes<P>::has_pairs && follows_few_rows<E> && sizeof(P) + sizeof(E) + few_rows_arguments <= most_kernel_bytes;

// Does a chain begin with rows of this element type as they are in memory?
template <class C, class Element>
constexpr bool begins_as_stored = false;
template <class First, class... Rest, class Element>
constexpr bool begins_as_stored<Chain<First, Rest...>, Element> =
    is_row_input<First>&& std::is_same_v<typename StageElement<First>::type, Element>;

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

  // What comes to team memory as it is: the rows, and the prologue's vectors if there is room for them.
  static constexpr bool copies_rows = access == Access::wide && begins_as_stored<P, Element>;
  template <class S>
  KOKKOS_FUNCTION static constexpr bool is_vector() {
    if constexpr (access == Access::wide && is_column_input<S>)
      return sizeof(typename StageElement<S>::type) >= sizeof(Element);  // so that a chunk takes 16 bytes at least
    else
      return false;
  }
  // Bytes that the vectors of the stages before `end` take for a column.
  template <class S>
  KOKKOS_FUNCTION static constexpr int bytes_of_vector() {
    if constexpr (is_vector<S>())
      return int(sizeof(typename StageElement<S>::type));
    else
      return 0;
  }
  template <class... S>
  KOKKOS_FUNCTION static constexpr int vector_bytes(int end, std::type_identity<Chain<S...>>) {
    int i = 0, sum = 0;
    ((sum += i++ < end ? bytes_of_vector<S>() : 0), ...);
    return sum;
  }
  static constexpr int all_vectors = vector_bytes(P::size, std::type_identity<P>{});

  // Team memory, in bytes: the rings, and beside them what `rows` rows need of which `pieces` pieces are held.
  static constexpr int w_bytes = outputs * Memory::pitch, table_bytes = groups * outputs * int(sizeof(int));
  static constexpr int few_sums = 512;
  // Sums of the turns that are finished together: one turn, or more of few rows.
  KOKKOS_FUNCTION static constexpr int sums_of(int rows) {
    return groups * rows * outputs > few_sums ? groups * rows * outputs : few_sums;
  }
  KOKKOS_FUNCTION static constexpr int row_bytes(int rows, int pieces) {
    return ((pieces - 1) * rows + Pieces::x_lines) * Memory::pitch;
  }
  KOKKOS_FUNCTION static constexpr int bytes_beside(int rows, int pieces) {
    return Memory::pitch + row_bytes(rows, pieces) + 2 * sums_of(rows) * int(sizeof(Real)) + table_bytes +
           rows * int(sizeof(Known));
  }
  static constexpr int least_beside = bytes_beside(most_rows, groups), least_vectors = groups * depth * all_vectors;
  static constexpr bool copies_vectors =
      all_vectors > 0 && groups* w_bytes + least_beside + least_vectors <= Copy::team_bytes;
  static constexpr int piece_vectors = copies_vectors ? depth * all_vectors : 0;
  static constexpr int stages = std::max(
      1, std::min(Copy::bytes_ahead, (Copy::team_bytes - least_beside - groups * piece_vectors) / groups) / w_bytes);
  static constexpr int ring_bytes = groups * stages * w_bytes;
  static_assert(ring_bytes + least_beside + groups * piece_vectors <= Copy::team_bytes,
                "kfuse: what the stages before a product know of a row is too large; make their results smaller");
  static_assert(alignof(Known) <= 16 && table_bytes % 16 == 0 && few_sums % 4 == 0, "all of it is aligned to 16 bytes");
  KOKKOS_FUNCTION static constexpr int team_bytes(int rows, int pieces) {
    return ring_bytes + bytes_beside(rows, pieces) + pieces * piece_vectors;
  }

  P prologue;
  E epilogue;
  Element const* w;     // [out, in]
  std::ptrdiff_t line;  // from one output's weights to the next
  int out, in;
  int rows;
  int share, longer;    // pairs of a team; so many teams have one more
  int distance;         // of the columns of a pair: ProductPairs
  Divisor group_pairs;  // of a group
  int held;             // pieces of the depth at a time: all, or as many for each lane group
  int team_rows;
  bool is_constant;  // the weight, and vectors of the prologue

  // Shares out the pairs evenly among at most `teams` teams, for each block of rows, and returns the number of shares.
  // A team holds as much of the depth of its rows at a time as there is memory for.
  int divide(int teams) {
    int const shares = std::min(pairs(), teams);
    share = pairs() / shares;
    longer = pairs() % shares;
    team_rows = std::min(rows, most_rows);
    auto const fits = [&](int pieces) { return team_bytes(team_rows, pieces) <= Copy::team_bytes; };
    constexpr int most_pieces = Copy::team_bytes / Memory::pitch;
    held = std::max(1, pieces());
    if (held <= most_pieces && fits(held)) return shares;
    held = groups;
    while (fits(held + groups)) held += groups;
    return shares;
  }
  // Known at run time alone.
  KOKKOS_FUNCTION std::size_t team_memory() const { return std::size_t(team_bytes(team_rows, held)); }
  KOKKOS_FUNCTION int row_blocks() const { return (rows + team_rows - 1) / team_rows; }
  KOKKOS_FUNCTION int pieces() const { return in / depth + (in % depth > 0 ? 1 : 0); }
  // Some of the last may have columns that do not exist.
  KOKKOS_FUNCTION int pairs() const {
    int const in_group = int(group_pairs.divisor);
    return (out - 1) / (2 * in_group) * in_group + in_group;
  }

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    LanesOf<Team> const lanes(team);
    Job const job(*this, team.league_rank(), lanes.rank(), aligned(lanes.scratch(team_memory()), Memory::pitch));
    Weights next(lanes, *this, job);
    lanes.let_next_kernel_start();
    if (!is_constant) lanes.wait_for_kernel_before();
#pragma unroll 1
    for (int stage = 0; stage < stages; ++stage) bring(lanes, job, next, stage);
    copy_vectors(job, 0);
    if (is_constant) lanes.wait_for_kernel_before();
    copy_rows(job, 0);
    Copy::wait();  // for the weights, too, which were asked for before
    learn<0>(lanes, job);
    hold_rows(lanes, job, 0);

    Pieces product(lanes.rank());
    int stage = 0, turn = 0, half = 0;
    for (int pair = job.first; pair < job.last; pair += tile_pairs) {
      for (int begin = 0; begin < job.pieces; begin += held) {
        if (held < job.pieces && (begin > 0 || pair > job.first)) {
          lanes.barrier();  // what is held is no longer needed
          copy_vectors(job, begin);
          copy_rows(job, begin);
          Copy::wait();
          hold_rows(lanes, job, begin);
        }
        int const end = begin + held < job.pieces ? begin + held : job.pieces;
        for (int piece = begin + job.group; piece < end; piece += groups) {
          Copy::template wait_for_all_but<stages - 1>();
          lanes.group_barrier();  // the group's oldest stage is there
          product.multiply(job.x_tile(piece - begin), job.w_tile(stage));
          lanes.group_barrier();  // and no longer needed
          bring(lanes, job, next, stage);
          stage = stage + 1 < stages ? stage + 1 : 0;
        }
      }
      Turns const turns{job.sums + std::ptrdiff_t(half) * sums_of(team_rows), job.rows};
      product.take(lanes, [&](int row, int i, Real sum) {
        if (row < job.rows) turns.at(turn, job.group, row, i) = sum;
      });
      ++turn;
      if ((turn + 1) * turns.each() > sums_of(team_rows) || pair + tile_pairs >= job.last) {
        lanes.barrier();  // the sums of all groups are there; those of the turns before are no longer needed
        finish(job, pair - (turn - 1) * tile_pairs, turn, turns);
        turn = 0;
        half ^= 1;
      }
    }
  }

 private:
  // What a team does, and a lane of it.
  struct Job {
    int first_row, rows;  // at most `most_rows`
    int first, last;      // pairs
    int pieces;           // of the depth
    int rank, group, lane;
    int rows_held;       // for which there is room
    std::byte* x;        // held: [piece][row], a line each
    std::byte* vectors;  // held: [stage][column]
    std::byte* ring;     // of the group
    Real* sums;          // two times those of some turns
    int* table;          // of the group: the outputs of the tile that it brings next, -1 for those that do not exist
    Known* known;        // [row]

    KOKKOS_FUNCTION Job(FewRowsKernel const& kernel, int team, int rank_, std::byte* memory) {
      int const blocks = kernel.row_blocks(), share = team / blocks;  // neighbours read the same weights
      first_row = team % blocks * kernel.team_rows;
      rows = kernel.rows - first_row < kernel.team_rows ? kernel.rows - first_row : kernel.team_rows;
      first = share * kernel.share + (share < kernel.longer ? share : kernel.longer);
      last = first + kernel.share + (share < kernel.longer ? 1 : 0);
      pieces = kernel.pieces();
      rank = rank_;
      group = rank / group_lanes;
      lane = rank % group_lanes;
      rows_held = kernel.team_rows;
      x = memory;
      vectors = x + row_bytes(rows_held, kernel.held);
      std::byte* const rings = vectors + std::ptrdiff_t(kernel.held) * piece_vectors;
      ring = rings + std::ptrdiff_t(group) * stages * w_bytes;
      sums = reinterpret_cast<Real*>(rings + ring_bytes);
      auto* const tables = reinterpret_cast<int*>(sums + std::ptrdiff_t(2) * sums_of(rows_held));
      table = tables + std::ptrdiff_t(group) * outputs;
      known = reinterpret_cast<Known*>(tables + std::ptrdiff_t(groups) * outputs);
    }
    KOKKOS_FUNCTION Memory w_tile(int stage) const { return {ring + std::ptrdiff_t(stage) * w_bytes}; }
    // The lines beyond its rows hold anything.
    KOKKOS_FUNCTION Memory x_tile(int piece) const { return {x + std::ptrdiff_t(piece) * rows_held * Memory::pitch}; }
  };
  // A lane's part of the piece of the weight that its group brings next: a chunk in each of its slots.
  static constexpr int across = depth / chunk, slots = outputs * across / group_lanes;
  static_assert(outputs * across % group_lanes == 0);
  struct Weights {
    Element const* from[slots];  // at a depth of zero; null where nothing exists
    int pair, piece;             // the first of the tile

    template <class L>
    KOKKOS_FUNCTION Weights(L const& lanes, FewRowsKernel const& kernel, Job const& job)
        : pair(job.first), piece(job.group) {
      aim(lanes, kernel, job);
    }
    template <class L>
    KOKKOS_FUNCTION void aim(L const& lanes, FewRowsKernel const& kernel, Job const& job) {
#pragma unroll 1
      for (int output = job.lane; output < outputs; output += group_lanes) {
        int const own = pair + output % tile_pairs, row = kernel.column(own, output / tile_pairs);
        job.table[output] = own < job.last && row < kernel.out ? row : -1;
      }
      lanes.group_barrier();
#pragma unroll
      for (int i = 0; i < slots; ++i) {
        int const row = job.table[slot_of(job.lane, i) / across];
        from[i] = row >= 0 ? kernel.w + row * kernel.line : nullptr;
      }
      lanes.group_barrier();
    }
  };
  KOKKOS_FUNCTION static int slot_of(int lane, int i) {
    return lane + i * group_lanes;
  }
  // The column of the product that is first or second in a pair.
  KOKKOS_FUNCTION int column(int pair, int which) const {
    int const group = int(group_pairs.quotient(unsigned(pair))), i = pair - group * int(group_pairs.divisor);
    return group * 2 * int(group_pairs.divisor) + (i < distance ? i + which * distance : 2 * i + which);
  }

  // Starts to bring the group's next piece of the weight, with zeros for what does not exist.
  template <class L>
  KOKKOS_FUNCTION void bring(L const& lanes, Job const& job, Weights& next, int stage) const {
    if (next.piece < job.pieces && next.pair < job.last) {
      Memory const to = job.w_tile(stage);
      int const first_depth = next.piece * depth;
#pragma unroll
      for (int i = 0; i < slots; ++i) {
        int const output = slot_of(job.lane, i) / across, k = slot_of(job.lane, i) % across * chunk;
        bool const exists = next.from[i] != nullptr;
        if constexpr (access == Access::wide) {
          Copy::start(to.at(output, k), next.from[i] + first_depth + k, exists && first_depth + k < in);
        } else {
          for (int c = 0; c < chunk; ++c)
            to.at(output, k)[c] = exists && first_depth + k + c < in ? next.from[i][first_depth + k + c] : zero();
        }
      }
      next.piece += groups;
      if (next.piece >= job.pieces) {
        next.piece = job.group;
        next.pair += tile_pairs;
        next.aim(lanes, *this, job);
      }
    }
    Copy::close_group();  // an empty one at the end, so that they can be counted
  }
  KOKKOS_FUNCTION static Element zero() {
    return from_real<Element>(Real(0));
  }

  template <int i>
  using StageAt = std::remove_cvref_t<decltype(stage<i>(std::declval<P const&>()))>;
  template <int i>
  using ElementAt = typename StageElement<StageAt<i>>::type;

  // What is held of the rows and of vectors, of pieces of the depth: each lane has its own chunks until all is there.
  static constexpr int step = threads * chunk;
  // f(column) for this lane's chunks of what is held from a piece on, some of them beyond the depth.
  template <class F>
  KOKKOS_FUNCTION void each_column(Job const& job, int begin, F const& f) const {
    int const end = (begin + held < job.pieces ? begin + held : job.pieces) * depth;
#pragma unroll 1
    for (int column = begin * depth + job.rank * chunk; column < end; column += step) f(column);
  }
  KOKKOS_FUNCTION static Element* held_at(Job const& job, int row, int column, int begin) {
    return job.x_tile(column / depth - begin).at(row, column % depth);
  }
  template <int i>
  KOKKOS_FUNCTION auto* vector_at(Job const& job, int column, int begin) const {
    constexpr int before = vector_bytes(i, std::type_identity<P>{});
    return reinterpret_cast<ElementAt<i>*>(job.vectors + std::ptrdiff_t(before) * held * depth) +
           (column - begin * depth);
  }
  template <int i = 0>
  KOKKOS_FUNCTION void copy_vectors(Job const& job, int begin) const {
    if constexpr (i < P::size) {
      auto const& s = stage<i>(prologue);
      if constexpr (copies_vectors && is_vector<StageAt<i>>()) {
        constexpr int parts = int(sizeof(ElementAt<i>) / sizeof(Element));
        each_column(job, begin, [&](int column) {
#pragma unroll
          for (int part = 0; part < parts; ++part)
            Copy::start(vector_at<i>(job, column + part * (chunk / parts), begin),
                        s.from.at(column < in ? column + part * (chunk / parts) : 0), column < in);
        });
      }
      copy_vectors<i + 1>(job, begin);
    }
  }
  KOKKOS_FUNCTION void copy_rows(Job const& job, int begin) const {
    if constexpr (copies_rows) {
#pragma unroll 1
      for (int row = 0; row < job.rows; ++row)
        each_column(job, begin, [&](int column) {
          Copy::start(held_at(job, row, column, begin),
                      prologue.first.from.at(job.first_row + row, column < in ? column : 0), column < in);
        });
    }
  }
  // x = what the prologue's first `end` stages make of a chunk, of what is held as it was in memory, or of memory.
  template <int end, bool is_held, int i = 0, class X_>
  KOKKOS_FUNCTION void make(Job const& job, X_& x, int row, int column, int begin) const {
    if constexpr (i < end) {
      auto const& s = stage<i>(prologue);
      using Given = std::remove_cvref_t<decltype(s)>;
      Place const at{job.first_row + row, column};
      if constexpr (is_stage_kind<Given, RowStage>)
        s.apply(x, at, result<i>(job.known[row]));
      else if constexpr (is_held && i == 0 && copies_rows)
        take(s, x, kfuse::fetch<X_>(static_cast<Element const*>(held_at(job, row, column, begin))), at);
      else if constexpr (is_held && copies_vectors && is_vector<Given>())
        take(s, x, kfuse::fetch<X_>(static_cast<ElementAt<i> const*>(vector_at<i>(job, column, begin))), at);
      else
        impl::apply(s, x, at);
      make<end, is_held, i + 1>(job, x, row, column, begin);
    }
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
#pragma unroll 1
        for (int row = 0; row < job.rows; ++row) {
          Sum sum = s.template identity<PrologueReal>();
          if (held >= job.pieces)
            sum_row<i, copies_rows || copies_vectors>(job, row, sum);
          else
            sum_row<i, false>(job, row, sum);
          sum = reduce_lanes(lanes, group_lanes, sum, s);
          if (job.lane == 0) slots[std::ptrdiff_t(row) * groups + job.group] = sum;
        }
        lanes.barrier();  // the sums of all groups are there
#pragma unroll 1
        for (int row = job.rank; row < job.rows; row += threads) {
          Sum const* const of_row = slots + std::ptrdiff_t(row) * groups;
          Sum total = of_row[0];
#pragma unroll 1
          for (int group = 1; group < groups; ++group) merge(s, total, of_row[group]);
          result<i>(job.known[row]) = impl::finish(s, total, in, job.first_row + row);
        }
        lanes.barrier();  // what is known of all rows is there, and the slots are free
      }
      learn<i + 1>(lanes, job);
    }
  }
  // This lane's part of a row.
  template <int i, bool is_held, class Sum>
  KOKKOS_FUNCTION void sum_row(Job const& job, int row, Sum& sum) const {
    auto const& s = stage<i>(prologue);
    auto const prepared = prepare(s, job.first_row + row);
    auto const add = [&](auto& x, int column) { accumulate(s, sum, x, Place{job.first_row + row, column}, prepared); };
    int const whole = in / chunk * chunk;
#pragma unroll 1
    for (int column = job.rank * chunk; column < whole; column += step) {
      X x;
      make<i, is_held>(job, x, row, column, 0);
      add(x, column);
    }
    if (access == Access::single && whole / chunk % threads == job.rank)
      for (int column = whole; column < in; ++column) {
        Values<PrologueReal, 1, Access::single> x;
        make<i, false>(job, x, row, column, 0);
        add(x, column);
      }
  }
  // The prologue's values, rounded to Element, of the pieces from `begin` on, with zeros beyond the depth.
  template <class L>
  KOKKOS_FUNCTION void hold_rows(L const& lanes, Job const& job, int begin) const {
    if constexpr (P::size > 1 || !copies_rows) {
#pragma unroll 1
      for (int row = 0; row < job.rows; ++row)
        each_column(job, begin, [&](int column) {
          Element* const to = held_at(job, row, column, begin);
          if (column + chunk <= in) {
            X x;
            make<P::size, true>(job, x, row, column, begin);
            write(to, x);
          } else if constexpr (access == Access::wide) {
            write(to, X{});
          } else {
            for (int c = 0; c < chunk; ++c) {
              Values<PrologueReal, 1, Access::single> x{};
              if (column + c < in) make<P::size, false>(job, x, row, column + c, begin);
              write(to + c, x);
            }
          }
        });
    }
    lanes.barrier();  // the rows are there
  }

  // Sums of some turns, [turn][group][row][output].
  struct Turns {
    Real* sums;
    int rows;
    KOKKOS_FUNCTION int each() const { return groups * rows * outputs; }
    KOKKOS_FUNCTION Real& at(int turn, int group, int row, int output) const {
      return sums[((std::ptrdiff_t(turn) * groups + group) * rows + row) * outputs + output];
    }
  };
  // Those of all groups for one output and one row, merged in order.
  struct Merged {
    Turns turns;
    int turn;
    KOKKOS_FUNCTION Real operator()(int row, int output) const {
      Real sum = 0;
      for (int group = 0; group < groups; ++group) sum += turns.at(turn, group, row, output);
      return sum;
    }
  };
  // The epilogue of this lane's outputs of so many turns, with the pairs from `first` on.
  KOKKOS_FUNCTION void finish(Job const& job, int first, int turn_count, Turns const& turns) const {
    constexpr bool joins = joins_pairs<E>;
    constexpr int results = joins ? tile_pairs : outputs;
#pragma unroll 1
    for (int e = job.rank; e < turn_count * job.rows * results; e += threads) {
      int const output = e % results, line = e / results, turn = line / job.rows, row = line - turn * job.rows;
      int const pair = first + turn * tile_pairs + output % tile_pairs;
      Place const at{job.first_row + row, joins ? pair : column(pair, output / tile_pairs)};
      if (pair >= job.last || (!joins && at.column >= out)) continue;
      Result x;
      follow<E::size, Stores::yes>(Merged{turns, turn}, x, row, output, at);
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
      Kernel kernel{.prologue = prologue,
                    .epilogue = epilogue,
                    .w = w.data,
                    .line = w.stride(0),
                    .out = w.extent(0),
                    .in = w.extent(1),
                    .rows = rows,
                    .share = 0,
                    .longer = 0,
                    .distance = pairs.distance,
                    .group_pairs = Divisor(unsigned(pairs.group / 2)),
                    .held = 0,
                    .team_rows = 0,
                    .is_constant = weights == WeightsAre::constant};
      int const shares = kernel.divide(Backend<Space>::Device::multiprocessors(space));
      impl::launch(space, label, std::ptrdiff_t(shares) * kernel.row_blocks(), kernel.team_memory(), kernel);
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
