// SPDX-License-Identifier: Apache-2.0
// What tests share.
#ifndef KFUSE_TESTS_SUPPORT_HPP
#define KFUSE_TESTS_SUPPORT_HPP

#include <kfuse/core/check.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstring>
#include <string>

#include "agreement.hpp"
#include "guarded_matrix.hpp"
#include "values.hpp"

namespace kfuse::test {

// Memory that no execution space of this program reaches.
struct Elsewhere {
  using memory_space = Elsewhere;
  using execution_space = Space;
  using device_type = Kokkos::Device<execution_space, memory_space>;
  using size_type = std::size_t;
  static constexpr char const* name() { return "elsewhere"; }
};

// Compares whole values, NaNs included, without numbers: the bits.
template <class A, class B>
bool same_bits(A const& a, B const& b) {
  auto const x = elements(a), y = elements(b);
  return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0);
}

// What `call` throws, as text; empty if it does not throw a kfuse::Error.
template <class Call>
std::string error_of(Call const& call) {
  try {
    call();
  } catch (Error const& error) {
    return error.what();
  }
  return {};
}
inline bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace kfuse::test

#endif
