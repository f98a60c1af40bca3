// SPDX-License-Identifier: Apache-2.0
// The GPUs' matrix instructions for simulated lanes, and the backends' fragments on top of them. These models know
// nothing of the fragments: which lane has which entry of a matrix is what the vendors publish,
//   NVIDIA: PTX ISA 9.0, section 9.7.14.5.8, Matrix Fragments for mma.m16n8k16 with floating point type, and section
//     9.7.14.5.15, Warp-level matrix load instruction: ldmatrix;
//   AMD: Matrix Instruction Calculator 1.3.2, --matrix-layout of v_mfma_f32_16x16x16_f16 and _bf16 (CDNA 3; CDNA 2:
//     v_mfma_f32_16x16x16bf16_1k) and of v_wmma_f32_16x16x16_f16 and _bf16 (RDNA 3, 32 lanes); RDNA 3 ISA, section 7.9.
#ifndef KFUSE_TESTS_SIMULATED_INSTRUCTIONS_HPP
#define KFUSE_TESTS_SIMULATED_INSTRUCTIONS_HPP

#include <kfuse/backends/cuda/fragment.hpp>
#include <kfuse/backends/hip/mfma_fragment.hpp>
#include <kfuse/backends/hip/wmma_fragment.hpp>
#include <kfuse/core/element.hpp>

#include <Kokkos_Core.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "simulated_lanes.hpp"

namespace kfuse::test {

// Where entry number i of a lane's registers stands in A [rows, 16], B [16, columns] and the sums [rows, columns]. Two
// 16-bit entries lie in a register, the first in the low half.
struct Position {
  int row, column;
};
struct MmaLayout {
  static constexpr int operation = 1000, columns = 8, a_entries = 8, b_entries = 4, sums = 4;
  static Position a(int lane, int i) {
    return {lane / 4 + (i / 2 % 2 == 0 ? 0 : 8), lane % 4 * 2 + i % 2 + (i < 4 ? 0 : 8)};
  }
  static Position b(int lane, int i) { return {lane % 4 * 2 + i % 2 + (i < 2 ? 0 : 8), lane / 4}; }
  static Position sum(int lane, int i) { return {lane / 4 + (i < 2 ? 0 : 8), lane % 4 * 2 + i % 2}; }
};
struct MfmaLayout {
  static constexpr int operation = 1001, columns = 16, a_entries = 4, b_entries = 4, sums = 4;
  static Position a(int lane, int i) { return {lane % 16, lane / 16 * 4 + i}; }
  static Position b(int lane, int i) { return {lane / 16 * 4 + i, lane % 16}; }
  static Position sum(int lane, int i) { return {lane / 16 * 4 + i, lane % 16}; }
};
struct WmmaLayout {  // lanes 16 apart have the same entries of A and B
  static constexpr int operation = 1002, columns = 16, a_entries = 16, b_entries = 16, sums = 8;
  static Position a(int lane, int i) { return {lane % 16, i}; }
  static Position b(int lane, int i) { return {i, lane % 16}; }
  static Position sum(int lane, int i) { return {2 * i + lane / 16, lane % 16}; }
};

// sums += A B, taken in float and in the order of the depth.
template <class Layout, class Element>
void multiply(float* sums, std::uint32_t const* a, std::uint32_t const* b) {
  constexpr int rows = 16, depth = 16, columns = Layout::columns;
  struct Registers {
    Element a[Layout::a_entries], b[Layout::b_entries];
    float sums[Layout::sums];
  } own;
  std::memcpy(own.a, a, sizeof own.a);
  std::memcpy(own.b, b, sizeof own.b);
  std::memcpy(own.sums, sums, sizeof own.sums);

  auto const put = [](float& entry, Element x) {
    float const value = to_real(x);
    if (!std::isnan(entry) && entry != value) SharedByTeam::running->fail("lanes differ in an entry that they share");
    entry = value;
  };
  own = SharedByTeam::running->together(own, Layout::operation, [&](std::vector<Registers>& lanes) {
    std::vector<std::vector<float>> left(rows, std::vector<float>(depth, NAN)), right(depth, left[0]);
    for (int lane = 0; lane < int(lanes.size()); ++lane) {
      for (int i = 0; i < Layout::a_entries; ++i)
        put(left[Layout::a(lane, i).row][Layout::a(lane, i).column], lanes[lane].a[i]);
      for (int i = 0; i < Layout::b_entries; ++i)
        put(right[Layout::b(lane, i).row][Layout::b(lane, i).column], lanes[lane].b[i]);
    }
    static_assert(columns <= depth);
    for (int lane = 0; lane < int(lanes.size()); ++lane)
      for (int i = 0; i < Layout::sums; ++i)
        for (int k = 0; k < depth; ++k)
          lanes[lane].sums[i] += left[Layout::sum(lane, i).row][k] * right[k][Layout::sum(lane, i).column];
  });
  std::memcpy(sums, own.sums, sizeof own.sums);
}

// ldmatrix.x4: lane l gives the address of row l % 8 of matrix l / 8, and gets of each of the four matrices two
// neighbours in row l / 4 from column 2 (l % 4) on; with .trans, of their transposes.
template <bool transposed>
void load_matrices(std::uint32_t (&word)[4], std::uintptr_t address) {
  struct Registers {
    std::uintptr_t row;
    std::uint16_t entry[4][2];
  } own{address, {}};
  own = SharedByTeam::running->together(own, 1003 + transposed, [](std::vector<Registers>& lanes) {
    for (Registers const& lane : lanes)
      if (lane.row % 16 != 0) SharedByTeam::running->fail("a row of ldmatrix is not aligned to 16 bytes");
    for (int lane = 0; lane < int(lanes.size()); ++lane)
      for (int e = 0; e < 8; ++e) {
        int const matrix = e / 2, outer = lane / 4, inner = lane % 4 * 2 + e % 2;
        int const row = transposed ? inner : outer, column = transposed ? outer : inner;
        auto const* const from = reinterpret_cast<std::uint16_t const*>(lanes[matrix * 8 + row].row);
        lanes[lane].entry[matrix][e % 2] = from[column];
      }
  });
  std::memcpy(word, own.entry, sizeof word);
}

// The same as the backends offer them to their fragments.
struct SimulatedMma {
  using Address = std::uintptr_t;
  KOKKOS_INLINE_FUNCTION static Address address(void const* p) { return reinterpret_cast<Address>(p); }
  template <cuda::Transposed transposed>
  KOKKOS_INLINE_FUNCTION static void load_blocks(std::uint32_t (&word)[4], Address from) {
    KOKKOS_IF_ON_HOST((load_matrices<transposed == cuda::Transposed::yes>(word, from);))
  }
  template <class Element>
  KOKKOS_INLINE_FUNCTION static void multiply(float* sums, std::uint32_t const* a, std::uint32_t const* b) {
    KOKKOS_IF_ON_HOST((test::multiply<MmaLayout, Element>(sums, a, b);))
  }
};
struct SimulatedMfma {
  template <class Element>
  KOKKOS_INLINE_FUNCTION static void multiply(float* sums, std::uint32_t const* a, std::uint32_t const* b) {
    KOKKOS_IF_ON_HOST((test::multiply<MfmaLayout, Element>(sums, a, b);))
  }
};
struct SimulatedWmma {
  template <class Element>
  KOKKOS_INLINE_FUNCTION static void multiply(float* sums, std::uint32_t const* a, std::uint32_t const* b) {
    KOKKOS_IF_ON_HOST((test::multiply<WmmaLayout, Element>(sums, a, b);))
  }
  KOKKOS_INLINE_FUNCTION static std::uint32_t exchange(std::uint32_t word) {
    KOKKOS_IF_ON_HOST((return SharedByTeam::running->permute(word, 1005, [](int lane) { return lane ^ 16; });))
    KOKKOS_IF_ON_DEVICE((return word;))
  }
};

// The units, and what they run on.
struct Mma : cuda::MatrixUnit<SimulatedMma, SimulatedCopy> {
  using Space = SimulatedSpace<32>;
};
struct Mfma : hip::MfmaUnit<SimulatedMfma, SimulatedCopy> {
  using Space = SimulatedSpace<64>;
};
struct Wmma : hip::WmmaUnit<SimulatedWmma, SimulatedCopy> {
  using Space = SimulatedSpace<32>;
};

}  // namespace kfuse::test

#endif
