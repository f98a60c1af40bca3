// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt or hipBLASLt, on the caller's stream, in scratch memory of our own. Both have the same
// functions; Library tells their names.
//
// They count columns first, so they are given the transposed product: their d, [columns, rows], is their a (our b)
// times their b (our a). All of it is then contiguous the way our rows are, and a bias, one value for each of their
// rows, is one for each of our columns.
#ifndef KFUSE_BACKENDS_GPU_LT_BLAS_HPP
#define KFUSE_BACKENDS_GPU_LT_BLAS_HPP

#include <kfuse/backends/gpu/handle.hpp>
#include <kfuse/backends/gpu/timer.hpp>
#include <kfuse/core/check.hpp>
#include <kfuse/core/product.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace kfuse::gpu {

// The power of two that an address is a multiple of, up to 256.
inline std::uint32_t alignment(void const* data) {
  auto const address = reinterpret_cast<std::uintptr_t>(data);
  return std::uint32_t(std::min<std::uintptr_t>(address & (~address + 1), 256));
}

template <class Library>
class LtBlas {
  using Runtime = typename Library::Runtime;
  using Space = typename Runtime::Space;

 public:
  using Product = impl::Product;

  LtBlas(Space const& space, std::size_t workspace_bytes, bool tune)
      : workspace_bytes_(workspace_bytes),
        memory_(Kokkos::view_alloc(Kokkos::WithoutInitializing, "kfuse::blas::workspace"),
                workspace_bytes + workspace_alignment),
        tune_(tune) {
    check_status<Runtime>(Runtime::set_device(space), "choose the device");
    typename Library::Handle handle = nullptr;
    check(Library::create(&handle), "start");
    handle_.reset(handle);
  }

  // A residual is added before the activation, so it comes without one. Epilogues are not for fp64.
  static constexpr bool fuses(ElementType element, impl::ProductEpilogue const& epilogue) {
    bool const activates = epilogue.activation != impl::ProductActivation::none;
    if (element == ElementType::fp64) return !epilogue.bias && !activates;
    return !activates || epilogue.residual == impl::Residual::none;
  }

  bool supports(Product const& p) { return p.depth > 0 && !plan_of(p).algorithms.empty(); }

  void run(Space const& space, Product const& p) {
    check_status<Runtime>(Runtime::set_device(space), "choose the device");  // as every call of Kokkos does
    Plan& plan = plan_of(p);
    if (p.bias) set(plan.operation, Library::operation_bias, p.bias);
    if (!std::exchange(plan.in_use, true) && tune_ && !is_captured(space)) keep_fastest(space, p, plan);
    multiply(space, p, plan, plan.algorithms.front(), p.d.data);
  }

 private:
  using Handle = Unique<typename Library::Handle, Library::destroy>;
  using Operation = Unique<typename Library::Operation, Library::destroy_operation>;
  using Layout = Unique<typename Library::Layout, Library::destroy_layout>;
  using Preference = Unique<typename Library::Preference, Library::destroy_preference>;
  using Memory = Kokkos::View<std::byte*, typename Space::memory_space>;

  // A name for cuBLASLt's unnamed struct, of which nvcc 13.0 compiles no vector.
  struct Algorithm {
    typename Library::Algorithm value;
  };
  struct Plan {
    Operation operation;
    Layout a, b, c, d;                  // as the library names them
    std::vector<Algorithm> algorithms;  // the best first; none: it does not take such products
    bool in_use = false;
  };
  // All that a choice of algorithm depends on: types, sizes, strides, what is fused, and how pointers are aligned.
  using Key = std::array<std::ptrdiff_t, 20>;

  static Key key_of(Product const& p) {
    return {std::ptrdiff_t(p.element),
            std::ptrdiff_t(p.transpose_b),
            std::ptrdiff_t(p.activation),
            p.batch,
            p.rows,
            p.columns,
            p.depth,
            p.a.row_stride,
            p.a.batch_stride,
            p.b.row_stride,
            p.b.batch_stride,
            p.d.row_stride,
            p.d.batch_stride,
            p.residual.row_stride,
            p.residual.batch_stride,
            alignment(p.a.data),
            alignment(p.b.data),
            alignment(p.d.data),
            alignment(p.residual.data),
            alignment(p.bias)};
  }

  static auto epilogue(Product const& p) {
    if (p.activation == impl::ProductActivation::relu) return p.bias ? Library::relu_bias : Library::relu;
    if (p.activation == impl::ProductActivation::gelu_tanh) return p.bias ? Library::gelu_bias : Library::gelu;
    return p.bias ? Library::bias : Library::no_epilogue;
  }

  // Throws if a call of the library did not succeed. `what` says what was tried.
  static void check(typename Library::Status status, char const* what) {
    impl::check(status == Library::success, "blas", [&] {
      return std::string(Library::name) + " could not " + what + ": " + Library::status_text(status);
    });
  }
  template <class T>
  static void set(Operation const& operation, typename Library::OperationAttribute attribute, T value) {
    check(Library::set_operation(operation.get(), attribute, &value, sizeof(value)), "describe a product");
  }
  template <class T>
  static void set(Layout const& layout, typename Library::LayoutAttribute attribute, T value) {
    check(Library::set_layout(layout.get(), attribute, &value, sizeof(value)), "describe a matrix");
  }
  template <class T>
  static void set(Preference const& preference, typename Library::PreferenceAttribute attribute, T value) {
    check(Library::set_preference(preference.get(), attribute, &value, sizeof(value)), "take a preference");
  }

  // Our [rows, columns] matrices.
  template <class Data>
  static Layout layout(Product const& p, impl::Operand<Data> const& operand, int rows, int columns) {
    typename Library::Layout made = nullptr;
    check(Library::create_layout(&made, Library::data_type(p.element), std::uint64_t(columns), std::uint64_t(rows),
                                 operand.row_stride),
          "describe a matrix");
    Layout result(made);
    set(result, Library::layout_batch, std::int32_t(p.batch));
    set(result, Library::layout_batch_stride, std::int64_t(operand.batch_stride));
    return result;
  }

  // Sums in float (never TF32), or double; parts of split sums are kept in that type, too.
  static Operation operation(Product const& p) {
    bool const wide = p.element == ElementType::fp64;
    typename Library::Operation made = nullptr;
    check(Library::create_operation(&made, wide ? Library::sums_in_double : Library::sums_in_float,
                                    Library::data_type(wide ? ElementType::fp64 : ElementType::fp32)),
          "describe a product");
    Operation result(made);
    set(result, Library::operation_first,
        p.transpose_b == Transpose::yes ? Library::transposed : Library::not_transposed);
    set(result, Library::operation_epilogue, epilogue(p));
    if (p.bias) set(result, Library::operation_bias, p.bias);  // its alignment counts
    return result;
  }
  Preference preference(Product const& p) const {
    typename Library::Preference made = nullptr;
    check(Library::create_preference(&made), "take a preference");
    Preference result(made);
    set(result, Library::preference_workspace, workspace_bytes_);
    Library::refine(p, [&](auto attribute, auto value) { set(result, attribute, value); });
    return result;
  }

  Plan& plan_of(Product const& p) {
    auto const [place, is_new] = plans_.try_emplace(key_of(p));
    if (is_new) try {
        place->second = make_plan(p);
      } catch (...) {
        plans_.erase(place);
        throw;
      }
    return place->second;
  }
  Plan make_plan(Product const& p) const {
    bool const transposed = p.transpose_b == Transpose::yes;
    Plan plan{operation(p),
              layout(p, p.b, transposed ? p.columns : p.depth, transposed ? p.depth : p.columns),
              layout(p, p.a, p.rows, p.depth),
              p.residual.data ? layout(p, p.residual, p.rows, p.columns) : layout(p, p.d, p.rows, p.columns),
              layout(p, p.d, p.rows, p.columns),
              {}};
    Preference const wanted = preference(p);
    std::array<typename Library::Proposal, 8> found;
    int count = 0;
    auto const status =
        Library::propose(handle_.get(), plan.operation.get(), plan.a.get(), plan.b.get(), plan.c.get(), plan.d.get(),
                         wanted.get(), tune_ ? int(found.size()) : 1, found.data(), &count);
    if (status == Library::not_supported || status == Library::invalid_value) return plan;
    check(status, "propose an algorithm");
    for (int i = 0; i < count; ++i)
      if (found[i].state == Library::success) plan.algorithms.push_back({found[i].algo});
    return plan;
  }

  void multiply(Space const& space, Product const& p, Plan const& plan, Algorithm const& algorithm, void* d) const {
    bool const wide = p.element == ElementType::fp64;
    float const alpha = float(p.alpha), beta = p.residual.data ? 1 : 0;
    double const wide_alpha = p.alpha, wide_beta = beta;
    check(Library::multiply(handle_.get(), plan.operation.get(), wide ? static_cast<void const*>(&wide_alpha) : &alpha,
                            p.b.data, plan.a.get(), p.a.data, plan.b.get(),
                            wide ? static_cast<void const*>(&wide_beta) : &beta, p.residual.data ? p.residual.data : d,
                            plan.c.get(), d, plan.d.get(), &algorithm.value, workspace(), workspace_bytes_,
                            Runtime::stream(space)),
          "multiply");
  }

  static bool is_captured(Space const& space) {
    bool captured = false;
    check_status<Runtime>(Runtime::is_captured(Runtime::stream(space), &captured), "tell if a stream is captured");
    return captured;
  }

  // Leaves the fastest algorithm alone in the plan. The products go to memory of their own: d may be added to itself.
  void keep_fastest(Space const& space, Product const& p, Plan& plan) const {
    if (plan.algorithms.size() < 2) return;
    std::size_t const size = p.element == ElementType::fp64 ? 8 : p.element == ElementType::fp32 ? 4 : 2;
    std::size_t const elements =
        std::size_t((p.batch - 1) * p.d.batch_stride + (p.rows - 1) * p.d.row_stride) + std::size_t(p.columns);
    Memory const d(Kokkos::view_alloc(Kokkos::WithoutInitializing, "kfuse::blas::tune"), elements * size);
    Timer<Runtime> timer;
    double best = std::numeric_limits<double>::infinity();
    Algorithm fastest = plan.algorithms.front();
    for (Algorithm const& algorithm : plan.algorithms) {
      multiply(space, p, plan, algorithm, d.data());  // the first run loads its code
      for (int repeat = 0; repeat < 3; ++repeat) {
        timer.start(space);
        for (int i = 0; i < 5; ++i) multiply(space, p, plan, algorithm, d.data());
        timer.stop(space);
        if (double const seconds = timer.seconds(); seconds < best) {
          best = seconds;
          fastest = algorithm;
        }
      }
    }
    plan.algorithms = {fastest};
  }

  // The libraries ask for more than Kokkos' allocations are aligned to.
  static constexpr std::uintptr_t workspace_alignment = 256;
  void* workspace() const {
    auto const address = reinterpret_cast<std::uintptr_t>(memory_.data());
    return reinterpret_cast<void*>((address + workspace_alignment - 1) / workspace_alignment * workspace_alignment);
  }

  std::size_t workspace_bytes_;
  Memory memory_;
  bool tune_;
  Handle handle_;
  std::map<Key, Plan> plans_;
};

}  // namespace kfuse::gpu

#endif
