// SPDX-License-Identifier: Apache-2.0
// The narrow waist: users pass Kokkos Views, kernels see Tensors.
#ifndef KFUSE_CORE_TENSOR_HPP
#define KFUSE_CORE_TENSOR_HPP

#include <kfuse/core/check.hpp>
#include <kfuse/core/element.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace kfuse {

// What a kernel sees of an argument: where it is, how large, and its strides in elements. The last dimension is
// contiguous, the others are free. Owns nothing and is copied by value into kernels. Its name is for errors alone.
template <class Element, int rank_>
struct Tensor {
  static constexpr int rank = rank_;
  using value_type = Element;

  Element* data = nullptr;
  int extents[rank] = {};
  std::ptrdiff_t strides[rank] = {};
  char const* name = nullptr;  // given by the operator whose argument it is; for the host

  KOKKOS_FUNCTION int extent(int dimension) const { return extents[dimension]; }
  KOKKOS_FUNCTION std::ptrdiff_t stride(int dimension) const { return strides[dimension]; }

  std::ptrdiff_t size() const {
    std::ptrdiff_t n = 1;
    for (int e : extents) n *= e;
    return n;
  }
  bool empty() const { return size() == 0; }

  template <std::integral... Index>
  KOKKOS_FUNCTION Element* at(Index... index) const {
    static_assert(sizeof...(Index) <= rank);
    std::ptrdiff_t const i[] = {std::ptrdiff_t(index)...};
    std::ptrdiff_t offset = 0;
    for (int d = 0; d < int(sizeof...(Index)); ++d) offset += d < rank - 1 ? i[d] * strides[d] : i[d];
    return data + offset;
  }
  template <std::integral... Index>
  KOKKOS_FUNCTION Element& operator()(Index... index) const {
    static_assert(sizeof...(Index) == rank);
    return *at(index...);
  }

  template <class To>
  requires(!std::is_const_v<Element> && std::is_same_v<To, Element const>) operator Tensor<To, rank>() const {
    Tensor<To, rank> result;
    result.data = data;
    for (int d = 0; d < rank; ++d) {
      result.extents[d] = extents[d];
      result.strides[d] = strides[d];
    }
    result.name = name;
    return result;
  }
};

// A contiguous tensor over memory that the caller owns.
template <class Element, std::integral... Extent>
Tensor<Element, sizeof...(Extent)> make_tensor(Element* data, Extent... extent) {
  constexpr int rank = sizeof...(Extent);
  impl::check(((std::in_range<unsigned>(extent) && std::in_range<int>(extent)) && ...), "make_tensor",
              "an extent is negative or larger than 2^31 - 1 (extents are int); make tensors of parts of the memory");
  Tensor<Element, rank> result{data, {int(extent)...}};
  std::ptrdiff_t stride = 1;
  for (int d = rank - 1; d >= 0; --d) {
    result.strides[d] = stride;
    stride *= result.extents[d];
  }
  return result;
}

namespace impl {
inline void check_range(char const* where, int first, int count, int all) {
  check(first >= 0 && count >= 0 && first <= all - count, where, [&] {
    return "[" + std::to_string(first) + ", " + std::to_string(first) + " + " + std::to_string(count) +
           ") is not within [0, " + std::to_string(all) +
           ") of the matrix (other memory would be taken for it); give a "
           "range of what there is";
  });
}
}  // namespace impl

// Columns [first, first + count) of a matrix, without a copy.
template <class Element>
Tensor<Element, 2> columns(Tensor<Element, 2> const& t, int first, int count) {
  impl::check_range("columns", first, count, t.extents[1]);
  return {t.data + first, {t.extents[0], count}, {t.strides[0], 1}, t.name};
}
// Rows [first, first + count) of a matrix, without a copy.
template <class Element>
Tensor<Element, 2> rows(Tensor<Element, 2> const& t, int first, int count) {
  impl::check_range("rows", first, count, t.extents[0]);
  return {t.at(first), {count, t.extents[1]}, {t.strides[0], 1}, t.name};
}

template <class T>
struct IsTensor : std::false_type {};
template <class Element, int rank>
struct IsTensor<Tensor<Element, rank>> : std::true_type {};

template <class T>
concept TensorLike = IsTensor<std::remove_cvref_t<T>>::value || Kokkos::is_view_v<std::remove_cvref_t<T>>;

namespace impl {

// The memory space of a View; void for a Tensor, which does not know.
template <class T>
struct MemoryOf {
  using type = void;
};
template <class T>
requires Kokkos::is_view_v<T>
struct MemoryOf<T> {
  using type = typename T::memory_space;
};

// The memory spaces of several Views, and whether Space can reach all of them.
template <class... Memory>
struct Memories {};
template <class... T>
using MemoriesOf = Memories<typename MemoryOf<T>::type...>;

template <class Space, class Memory>
struct Reaches : std::bool_constant<bool(Kokkos::SpaceAccessibility<Space, Memory>::accessible)> {};
template <class Space>
struct Reaches<Space, void> : std::true_type {};
template <class Space, class... Memory>
struct Reaches<Space, Memories<Memory...>> : std::bool_constant<(Reaches<Space, Memory>::value && ...)> {};

// The same at run time, for Views that are given inside options, whose types do not tell.
class ReachedFrom {
 public:
  ReachedFrom() = default;  // there is nothing to reach
  template <class View>
  static ReachedFrom spaces_of() {
    ReachedFrom reached;
    reached.host_ = Reaches<Kokkos::DefaultHostExecutionSpace, typename View::memory_space>::value;
    reached.device_ = Reaches<Kokkos::DefaultExecutionSpace, typename View::memory_space>::value;
    return reached;
  }
  template <class Space>
  bool from() const {
    return std::is_same_v<typename Space::memory_space, Kokkos::HostSpace> ? host_ : device_;
  }

 private:
  bool host_ = true, device_ = true;
};

template <class A, class B, int rank>
bool same_shape(Tensor<A, rank> const& a, Tensor<B, rank> const& b) {
  for (int d = 0; d < rank; ++d)
    if (a.extent(d) != b.extent(d)) return false;
  return true;
}

// Might two elements lie in the same place? Not where each dimension steps over all of those with smaller strides.
template <class Element, int rank>
bool overlaps_itself(Tensor<Element, rank> const& t) {
  if (t.empty()) return false;
  std::array<int, rank> order;
  std::iota(order.begin(), order.end(), 0);
  auto const stride = [&](int d) { return d < rank - 1 ? t.stride(d) : std::ptrdiff_t(1); };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return stride(a) < stride(b); });
  std::ptrdiff_t run = 1;  // from the first to the last element of the dimensions so far
  for (int const d : order) {
    if (t.extent(d) == 1) continue;
    if (stride(d) < run) return true;
    run += (t.extent(d) - 1) * stride(d);
  }
  return false;
}

// How an error about an argument begins, after the operator.
template <class T>
std::string name_of(T const& t, char const* nameless = "an argument") {
  return t.name != nullptr ? t.name : nameless;
}

template <class Element, int rank>
std::string shape_text(Tensor<Element, rank> const& t) {
  std::string text = "[";
  for (int d = 0; d < rank; ++d) text += (d > 0 ? ", " : "") + std::to_string(t.extent(d));
  return text + "]";
}

// Narrows a Kokkos View to a Tensor, so that kernels are compiled once per element type and not once per View type.
// What cannot be right for any View of this type does not compile; what depends on the View throws. `where` is the
// operator, or "kfuse" in a stage, which knows none; `name` is what errors call the argument from here on, unless it
// has a name.
template <int rank, class View>
requires Kokkos::is_view_v<View>
auto tensor(View const& view, std::string_view where, char const* name) {
  using Element = typename View::value_type;
  static_assert(View::rank() == rank, "kfuse: this View has the wrong rank");
  static_assert(
      rank == 1 || !std::is_same_v<typename View::array_layout, Kokkos::LayoutLeft>,
      "kfuse: expected a row-major View; write Kokkos::LayoutRight, because the default on GPUs is LayoutLeft");
  Tensor<Element, rank> result;
  result.data = view.data();
  result.name = name;
  for (int d = 0; d < rank; ++d) {
    check(view.extent(d) <= std::size_t(std::numeric_limits<int>::max()), where, [&] {
      return name_of(result) +
             ": an extent is larger than 2^31 - 1; reshape the View, or call the operator for parts of it";
    });
    result.extents[d] = int(view.extent(d));
    result.strides[d] = std::ptrdiff_t(view.stride(d));
  }
  check(result.strides[rank - 1] == 1 || result.extents[rank - 1] <= 1 || view.size() == 0, where, [&] {
    return name_of(result) +
           ": the last dimension is not contiguous (its stride is not 1); copy the View to a LayoutRight one first";
  });
  result.strides[rank - 1] = 1;
  return result;
}
template <int rank, class Element>
Tensor<Element, rank> tensor(Tensor<Element, rank> t, std::string_view where, char const* name) {
  if (t.name == nullptr) t.name = name;
  for (int extent : t.extents)
    check(extent >= 0, where, [&] { return name_of(t) + ": an extent is negative; give it the sizes of its memory"; });
  check(t.stride(rank - 1) == 1 || t.extent(rank - 1) <= 1 || t.empty(), where, [&] {
    return name_of(t) +
           ": the last dimension is not contiguous (its stride is not 1); copy it to a contiguous tensor first";
  });
  return t;
}

// The same with what an operator that runs in Space and works on Element demands.
template <int rank, class Space, class Element, TensorLike T>
Tensor<Element, rank> tensor_of(T const& t, std::string_view where, char const* name) {
  using Given = typename T::value_type;
  if constexpr (Kokkos::is_view_v<T>)
    static_assert(bool(Kokkos::SpaceAccessibility<Space, typename T::memory_space>::accessible),
                  "kfuse: the execution space cannot reach this View's memory");
  constexpr bool same = std::is_same_v<std::remove_const_t<Given>, std::remove_const_t<Element>>;
  constexpr bool may_write = std::is_const_v<Element> || !std::is_const_v<Given>;
  static_assert(same || std::is_integral_v<Element>,
                "kfuse: this argument must have the element type of those before it; convert it with load(...) | "
                "store(...), or give all of them one type");
  static_assert(same || !std::is_integral_v<Element>,
                "kfuse: positions, and indices that are written, are int, and a mask is std::uint8_t; copy to a View "
                "of that type");
  static_assert(may_write, "kfuse: this View is an output and must not be const");
  if constexpr (same && may_write)
    return tensor<rank>(t, where, name);
  else
    return {};
}

}  // namespace impl

// The Tensor of a View, for arguments that are given inside options.
template <class View>
requires Kokkos::is_view_v<View>
auto as_tensor(View const& view) {
  auto t = impl::tensor<int(View::rank())>(view, "kfuse", "as_tensor");
  t.name = nullptr;  // the operator knows it
  return t;
}

}  // namespace kfuse

#endif
