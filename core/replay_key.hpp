// SPDX-License-Identifier: Apache-2.0
// Names for recorded work: replay_key(x, weight, y, epsilon, workspace) is equal for equal arguments only.
#ifndef KFUSE_CORE_REPLAY_KEY_HPP
#define KFUSE_CORE_REPLAY_KEY_HPP

#include <kfuse/core/random.hpp>
#include <kfuse/core/tensor.hpp>
#include <kfuse/core/workspace.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <typeinfo>
#include <vector>

namespace kfuse {

using ReplayKey = std::vector<std::uint64_t>;

namespace impl {

// Numbers and enumerators: their bits.
template <class T>
requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void append_to_key(ReplayKey& key, T x) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t), "kfuse: a long double cannot be part of a key");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &x, sizeof x);
  key.push_back(bits);
}
inline void append_to_key(ReplayKey& key, RandomState const& state) {
  key.insert(key.end(), {state.seed, state.offset});
}
// Views and Tensors: where and how they lie, not what they hold.
template <TensorLike T>
void append_to_key(ReplayKey& key, T const& t) {
  constexpr int rank = [] {
    if constexpr (Kokkos::is_view_v<T>)
      return int(T::rank());
    else
      return T::rank;
  }();
  auto const* const data = [&] {
    if constexpr (Kokkos::is_view_v<T>)
      return t.data();
    else
      return t.data;
  }();
  key.push_back(reinterpret_cast<std::uintptr_t>(data));
  for (int d = 0; d < rank; ++d) key.insert(key.end(), {std::uint64_t(t.extent(d)), std::uint64_t(t.stride(d))});
}
// What owns memory that operators use, and has a number that no other has: Blas, Workspace. Where a workspace stands as
// well: what is taken next lies there.
template <class T>
requires requires(T const& t) {
  t.generation();
}
void append_to_key(ReplayKey& key, T const& owner) {
  key.push_back(owner.generation());
  if constexpr (requires { owner.used(); }) key.push_back(std::uint64_t(owner.used()));
}

}  // namespace impl

// Each argument adds its type and what a recording holds of it.
template <class... T>
ReplayKey replay_key(T const&... recorded) {
  ReplayKey key;
  (..., (key.push_back(typeid(T).hash_code()), impl::append_to_key(key, recorded)));
  return key;
}

}  // namespace kfuse

#endif
