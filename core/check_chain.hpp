// SPDX-License-Identifier: Apache-2.0
// What is refused before a chain is launched: memory that overlaps, or that its space cannot reach.
#ifndef KFUSE_CORE_CHECK_CHAIN_HPP
#define KFUSE_CORE_CHECK_CHAIN_HPP

#include <kfuse/core/chain.hpp>
#include <kfuse/core/check.hpp>
#include <kfuse/core/data_status.hpp>
#include <kfuse/core/random_source.hpp>
#include <kfuse/core/tensor.hpp>

#include <array>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace kfuse::impl {

// Do two spans share a byte? Runs of one buffer with one stride may lie side by side, as the parts of a packed QKV do.
inline bool overlap(Span const& a, Span const& b) {
  if (a.empty() || b.empty()) return false;
  auto const first = [](Span const& s) { return reinterpret_cast<std::uintptr_t>(s.data); };
  auto const last = [&](Span const& s) { return first(s) + std::uintptr_t((s.rows - 1) * s.stride + s.row_bytes); };
  if (last(a) <= first(b) || last(b) <= first(a)) return false;
  if (a.stride != b.stride || a.stride <= 0 || a.rows == 1 || b.rows == 1) return true;
  auto const stride = std::uintptr_t(a.stride);
  std::uintptr_t const apart =
      first(b) >= first(a) ? (first(b) - first(a)) % stride : stride - (first(a) - first(b)) % stride;
  return apart < std::uintptr_t(a.row_bytes) || apart + std::uintptr_t(b.row_bytes) > stride;
}
// Exactly the same memory, value by value. What moves in part or many times (a gathered table) is not.
inline bool same_place(Span const& a, Span const& b) {
  return a.moved < 0 && b.moved < 0 && a.data == b.data && a.rows == b.rows && a.row_bytes == b.row_bytes &&
         (a.stride == b.stride || a.rows == 1) && a.element_bytes == b.element_bytes;
}

// What an output must be whose rows are not at one distance: of others, their Span tells (check_aliasing).
template <class Element, int rank>
void check_lies_apart(Tensor<Element, rank> const& t, std::string_view where) {
  check(!overlaps_itself(t), where, [&] {
    return name_of(t, "an output") +
           ": its rows overlap (which of them stays would be chance); give it memory of its own";
  });
}

// May memory be written while the chain runs? It may lie exactly where an earlier stage read it, value by value; any
// other overlap would let one lane see what another has written.
template <class... S>
void check_aliasing(Chain<S...> const& chain, std::string_view where) {
  using Types = ChainTypes<Chain<S...>>;
  int writer = 0;
  for_each_stage(chain, [&](auto const& w) {
    for (Span const& to : writes(w)) {
      check(to.rows <= 1 || to.row_bytes == 0 || to.stride >= to.row_bytes, where, [&] {
        return name_of(to, "an output") +
               ": its rows overlap (which of them stays would be chance); give it memory of its own";
      });
      int reader = 0;
      for_each_stage(chain, [&](auto const& r) {
        for (Span const& from : reads(r)) {
          bool const before = reader < writer || (reader == writer && is_in_place<std::remove_cvref_t<decltype(w)>>);
          bool const in_place = same_place(to, from) && before && !Types::has_pairs;
          check(in_place || !overlap(to, from), where, [&] {
            return name_of(to, "an output") + ": overlaps " + name_of(from, "an input") +
                   " (other lanes would read what is already overwritten); give it memory of its own, or exactly that "
                   "of an input which is read before";
          });
        }
        for (Span const& other : writes(r))
          check(reader >= writer || !overlap(to, other), where, [&] {
            return name_of(to, "an output") + ": overlaps " + name_of(other, "another output") +
                   " (which of them stays would be chance); give each memory of its own";
          });
        ++reader;
      });
    }
    ++writer;
  });
}

template <class S>
concept HasStatus = requires(S const& s) {
  { s.status } -> std::same_as<DataStatus const&>;
};
template <class S>
concept HasRandom = requires(S const& s) {
  { s.random } -> std::same_as<RandomSource const&>;
};

// One value in memory that is not part of any row, if there is one; what a stage has of them.
template <class T>
Span span_of_value(T const* value) {
  return {value, value != nullptr ? 1 : 0, sizeof(T), 0, 0, 0};
}
template <class S>
Span span_of_status(S const& s) {
  if constexpr (HasStatus<S>)
    return span_of_value(s.status.memory());
  else
    return {};
}
template <class S>
Span span_of_random(S const& s) {
  if constexpr (HasRandom<S>)
    return span_of_value(s.random.memory());
  else
    return {};
}

// The status that a stage raises, and the state of the random numbers that it draws, are written and read at any time:
// nothing that is written may lie there, and of a status nothing that is read.
template <class... S>
void check_values_apart(Chain<S...> const& chain, std::string_view where) {
  auto const check_apart = [&](char const* name, Span const& value, auto const& spans) {
    for (Span const& span : spans)
      check(!overlap(value, span), where, [&] {
        return std::string(name) + ": lies in " + name_of(span) +
               " (lanes would read what others write there at some time); give it memory of its own";
      });
  };
  for_each_stage(chain, [&](auto const& s) {
    for_each_stage(chain, [&](auto const& other) {
      check_apart("status", span_of_status(s), reads(other));
      check_apart("status", span_of_status(s), writes(other));
      check_apart("status", span_of_status(s), std::array{span_of_random(other)});
      check_apart("random", span_of_random(s), writes(other));
    });
  });
}

// Can Space reach the memory of all Views that the chain was made of?
template <class Space, class S>
constexpr bool reaches() {
  if constexpr (requires { typename S::memory_space; })
    return Reaches<Space, typename S::memory_space>::value;
  else
    return true;
}

template <class Space, class C>
constexpr bool chain_reaches = false;
template <class Space, class... S>
constexpr bool chain_reaches<Space, Chain<S...>> = (reaches<Space, S>() && ...);

// The same of what options have brought along, whose types do not tell.
template <class Space, class C>
void check_reach(C const& chain, std::string_view where) {
  for_each_stage(chain, [&](auto const& s) {
    using Given = std::remove_cvref_t<decltype(s)>;
    if constexpr (HasStatus<Given>) s.status.template check<Space>(where);
    if constexpr (HasRandom<Given>) s.random.template check<Space>(where);
  });
}

template <class C>
void check_chain(C const& chain, std::string_view where, Shape shape) {
  for_each_stage(chain, [&](auto const& s) {
    if constexpr (requires { s.check(where, shape); }) s.check(where, shape);
  });
  check_aliasing(chain, where);
  check_values_apart(chain, where);
}

}  // namespace kfuse::impl

#endif
