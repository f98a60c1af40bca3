// SPDX-License-Identifier: Apache-2.0
// What an operator's entry in the benchmark program is made of. An entry is one file, bench/<op>.cpp, with one struct
// and one registration; element types, sizes, warm-up, checks, timing and output are the program's:
//
//   struct AddRmsnorm {
//     template <class Element, class Space>
//     static bench::Case<Space> make(bench::Memory<Space>& memory, bench::Sizes const& sizes) {
//       int const rows = sizes["rows"], columns = sizes["columns"];
//       auto const x = bench::random<Element>(memory, -1, 1, rows, columns);
//       auto const y = bench::empty<Element>(memory, rows, columns);
//       ...
//       return {.fused = [=](bench::Context<Space> const& on) { kfuse::add_rmsnorm(on.space, x, ..., y); },
//               .eager = [=](bench::Context<Space> const& on) { ... one launch for each operation ... },
//               .outputs = {bench::output("y", y, [=](std::ptrdiff_t row) { ... the definition, in double ... })}};
//     }
//   };
//   bench::Register<AddRmsnorm> const entry("add_rmsnorm", "h = x + residual, y = rmsnorm(h)",
//                                           {{"rows", 16384}, {"columns", 4096}},
//                                           {{.sizes = {{"rows", 16384}, {"columns", 4096}}, .at_least = 0.98}});
//
// An operator that works in place has its output as the input that it overwrites; Case::restore fills it again (say
// from a second tensor, kfuse::copy_bytes), before each run and outside of what is timed.
//
// make() is called twice: once to count memory, with tensors that must not be touched, and then in earnest. Launches,
// bytes and operations come from what the operators state in the Ledger.
#ifndef KFUSE_BENCH_BENCH_HPP
#define KFUSE_BENCH_BENCH_HPP

#include <kfuse/core/blas.hpp>
#include <kfuse/core/element.hpp>
#include <kfuse/core/tensor.hpp>
#include <kfuse/core/workspace.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bar.hpp"
#include "memory.hpp"

namespace bench {

using DeviceSpace = Kokkos::DefaultExecutionSpace;
using HostSpace = Kokkos::DefaultHostExecutionSpace;

// The element types that a run may ask for.
inline constexpr std::array element_types{kfuse::ElementType::fp64, kfuse::ElementType::fp32, kfuse::ElementType::bf16,
                                          kfuse::ElementType::fp16};

// Calls f(std::type_identity<Element>).
template <class F>
auto with_element(kfuse::ElementType type, F const& f) {
  switch (type) {
    case kfuse::ElementType::fp64:
      return f(std::type_identity<double>());
    case kfuse::ElementType::fp32:
      return f(std::type_identity<float>());
    case kfuse::ElementType::bf16:
      return f(std::type_identity<kfuse::bf16>());
    case kfuse::ElementType::fp16:
      return f(std::type_identity<kfuse::fp16>());
    default:
      throw std::logic_error(std::string("bench: no run has the element type ") + kfuse::name(type));
  }
}

// The sizes of a case by name, in the order in which the entry gives them.
class Sizes {
 public:
  Sizes(std::initializer_list<std::pair<std::string, int>> sizes) : sizes_(sizes) {}

  int operator[](std::string const& name) const {
    for (auto const& [known, value] : sizes_)
      if (known == name) return value;
    throw std::logic_error("bench: the entry has no size " + name);
  }
  // Their product, and `factor` times it: an extent that the entry makes of several sizes.
  int product(std::vector<std::string> const& names, int factor = 1) const {
    double product = factor;
    for (auto const& name : names) product *= (*this)[name];
    if (product > std::numeric_limits<int>::max())
      throw UsageError("--" + names[0] + ": the product of " + listed(names) +
                       " is an extent of more than 2^31 - 1; make them smaller");
    return int(product);
  }
  bool has(std::string const& name) const {
    for (auto const& size : sizes_)
      if (size.first == name) return true;
    return false;
  }
  void set(std::string const& name, int value) {
    for (auto& [known, old] : sizes_)
      if (known == name) {
        old = value;
        return;
      }
    throw std::logic_error("bench: the entry has no size " + name);
  }
  bool operator==(Sizes const&) const = default;
  auto begin() const { return sizes_.begin(); }
  auto end() const { return sizes_.end(); }

 private:
  std::vector<std::pair<std::string, int>> sizes_;
};

// What work is done with. The workspace is as large as the work took when it was counted.
template <class Space>
struct Context {
  Space const& space;
  kfuse::Workspace<Space>& workspace;
  kfuse::Blas<Space>& blas;
};

// The relative error that one rounding to the element type makes, and the float or double arithmetic before it.
constexpr double rounding(kfuse::ElementType type) {
  switch (type) {
    case kfuse::ElementType::fp64:
      return 1e-12;
    case kfuse::ElementType::fp32:
      return 1e-5;
    case kfuse::ElementType::bf16:
      return 1.02 / 256;
    case kfuse::ElementType::fp16:
      return 1.02 / 2048;
    case kfuse::ElementType::fp8_e4m3:
      return 1.02 / 16;
    case kfuse::ElementType::fp8_e5m2:
      return 1.02 / 8;
  }
  return 0;
}

// A contiguous result, taken as rows, and what it should be.
struct Output {
  std::string name;
  void* data;
  kfuse::ElementType type;  // of integers, one that is as wide
  std::ptrdiff_t rows;
  int columns;
  // Row `row` by definition, in double; it shares no code with the operator. Empty if there is no way to know: then
  // the modes are held against each other alone.
  std::function<std::vector<double>(std::ptrdiff_t row)> reference;
  double allowed;        // deviation relative to max(|reference|, floor)
  double floor = 1e-2;   // below it, deviations count as absolute
  int rows_checked = 0;  // against the reference, spread evenly; 0: as many as make a million values
  bool is_integer = false;
};

// `roundings`: how many of the element type's roundings the result may be off. Integers may not be off at all.
template <class Element, int rank>
Output output(std::string name, kfuse::Tensor<Element, rank> const& t,
              std::function<std::vector<double>(std::ptrdiff_t row)> reference, double roundings = 1) {
  constexpr bool is_integer = std::is_same_v<Element, int>;
  constexpr auto type = kfuse::element_type<std::conditional_t<is_integer, float, Element>>;
  int const columns = t.extent(rank - 1);
  return {.name = std::move(name),
          .data = t.data,
          .type = type,
          .rows = columns == 0 ? 0 : t.size() / columns,
          .columns = columns,
          .reference = std::move(reference),
          .allowed = is_integer ? 0 : roundings * rounding(type),
          .is_integer = is_integer};
}

template <class Space>
using Work = std::function<void(Context<Space> const&)>;

template <class Space>
struct Case {
  Work<Space> fused;
  Work<Space> eager = {};            // the same results, one launch for each operation
  std::vector<Output> outputs = {};  // both write all of them; inputs stay as they are
  std::string path = {};             // which kernel was chosen, if there is a choice
  int layers = 1;                    // times the work is done in one call; figures are for one
  Work<Space> restore = {};          // of work in place: fills the outputs with its inputs, before each run, untimed
};

// One operator of the program.
struct Entry {
  std::string name, what;
  Sizes sizes;  // their names, and their values if the command line gives none
  std::vector<Bar> bars;
  std::function<Case<DeviceSpace>(Memory<DeviceSpace>&, kfuse::ElementType, Sizes const&)> make_on_device;
  std::function<Case<HostSpace>(Memory<HostSpace>&, kfuse::ElementType, Sizes const&)> make_on_host;

  Sizes sizes_of(Bar const& bar) const {
    Sizes result = sizes;
    for (auto const& [name, value] : bar.sizes) result.set(name, value);
    return result;
  }
  template <class Space>
  Case<Space> make(Memory<Space>& memory, kfuse::ElementType type, Sizes const& given) const {
    if constexpr (std::is_same_v<Space, DeviceSpace>)
      return make_on_device(memory, type, given);
    else
      return make_on_host(memory, type, given);
  }
};

inline std::vector<Entry>& registry() {
  static std::vector<Entry> entries;
  return entries;
}

// Maker: static Case<Space> make<Element>(Memory<Space>&, Sizes const&).
template <class Maker>
struct Register {
  Register(std::string name, std::string what, Sizes sizes, std::vector<Bar> bars = {}) {
    auto const make = []<class Space>(Memory<Space>& memory, kfuse::ElementType type, Sizes const& given) {
      return with_element(type, [&]<class Element>(std::type_identity<Element>) {
        return Maker::template make<Element>(memory, given);
      });
    };
    registry().push_back({std::move(name), std::move(what), std::move(sizes), std::move(bars), make, make});
  }
};

}  // namespace bench

#endif
